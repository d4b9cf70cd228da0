"""Functions that write, read and check the logs of runs, and evaluate the results and their noise."""
