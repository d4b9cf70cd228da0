"""From a log back to the program: made again, looked at, built, checked."""

from .best import apply_best
from .history import apply_history_best

__all__ = ["apply_best", "apply_history_best"]
