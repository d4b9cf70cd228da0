"""Watching a running study in a browser."""
