"""The machine on which searchlab runs: its CPU, its GPU and the installed libraries."""
