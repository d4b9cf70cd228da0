"""Executors: local processes, Dask clusters and Slurm."""
