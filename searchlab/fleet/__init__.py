"""Planning a fleet: how long a study takes on so many devices and builders, and what it waits for."""
