"""Watch a running study in a browser."""
