"""The built-in search spaces."""
