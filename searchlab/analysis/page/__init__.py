"""The report as one HTML page, with its template, style and script."""

from .render import page

__all__ = ["page"]
