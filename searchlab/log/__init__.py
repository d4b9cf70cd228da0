"""Logs: how they are written, read and repaired, and what a reader sees in them."""
