"""The charts of a report: as plain numbers, and drawn as pictures."""
