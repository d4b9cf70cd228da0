"""Plan and execute runs: a single run, or all runs in a study."""
