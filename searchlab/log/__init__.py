"""Logs of runs: writing, reading and repairing them, and the results and the noise in them."""
