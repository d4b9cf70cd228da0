"""Write, read and repair the logs of runs, and evaluate the results and the noise in them."""
