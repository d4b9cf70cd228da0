"""The machine that searchlab runs on: its CPU, its GPU, and the libraries installed."""
