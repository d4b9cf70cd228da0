"""Rebuilding a log's programs, in order to show, compile or verify them, or to insert them into models."""

from .best import TEXT_FORMS, apply_best, build_best, program_text
from .history import apply_history_best

__all__ = ["TEXT_FORMS", "apply_best", "apply_history_best", "build_best", "program_text"]
