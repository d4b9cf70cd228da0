"""Watch a running study in the browser."""
