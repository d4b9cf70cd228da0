"""Plug-ins that are each broken in one way, by the name of the check that is there to find it."""
