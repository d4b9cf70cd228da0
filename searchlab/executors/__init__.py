"""Executors: processes of this machine, a Dask cluster, Slurm."""
