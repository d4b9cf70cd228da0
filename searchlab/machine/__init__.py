"""Facts about the machine on which searchlab runs: its CPU, its GPU and its installed libraries."""
