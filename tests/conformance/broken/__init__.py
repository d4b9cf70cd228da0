"""Plug-ins that each break one rule, by the name of the check that detects this."""
