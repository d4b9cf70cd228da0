"""A report's charts: as plain numbers, and drawn as pictures."""
