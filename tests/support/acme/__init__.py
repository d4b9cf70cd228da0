"""A package of plug-ins of all kinds, of which tests edit a copy."""
