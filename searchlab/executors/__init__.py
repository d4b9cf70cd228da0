"""Where runs are made: processes of this machine, a Dask cluster, Slurm; see ``contract.py``."""
