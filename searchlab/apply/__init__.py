"""From a log back to the program: made again, shown, built, verified."""

from .best import apply_best, build_best
from .history import apply_history_best
from .texts import TEXTS, text_of

__all__ = ["TEXTS", "apply_best", "apply_history_best", "build_best", "text_of"]
