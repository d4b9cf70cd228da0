"""Measuring configs: the contract, the settings for each kind of measurement, and the measurers."""
