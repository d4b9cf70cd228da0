"""The command-line interface."""

from .app import main

__all__ = ["main"]
