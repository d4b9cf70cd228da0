"""Building and describing tables, which stand in for the machine, and comparing cost models on recorded trials."""
