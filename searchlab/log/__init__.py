"""Write, read and check the logs of runs, and evaluate the results and the noise in them."""
