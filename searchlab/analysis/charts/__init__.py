"""The charts in a report, as plain numbers and as pictures."""
