"""Planning and executing runs: a single run, or all runs of a study."""
