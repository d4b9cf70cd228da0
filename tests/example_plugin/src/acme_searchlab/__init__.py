"""Acme's plug-ins for searchlab."""
