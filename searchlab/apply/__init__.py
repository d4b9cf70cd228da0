"""Rebuilding a log's programs, in order to show, compile or verify them, or to insert them into models."""

from .best import TEXTS, apply_best, build_best, text_of
from .history import apply_history_best

__all__ = ["TEXTS", "apply_best", "apply_history_best", "build_best", "text_of"]
