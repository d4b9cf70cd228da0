"""A running study, watched in a browser."""
