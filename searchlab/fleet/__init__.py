"""Planning a fleet: how long a study takes with a number of devices and builders, and what it waits for."""
