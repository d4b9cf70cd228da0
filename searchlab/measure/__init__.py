"""Measuring configs: the contract, the settings of each kind of measurement, and the measurers."""
