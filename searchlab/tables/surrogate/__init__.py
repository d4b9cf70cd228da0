"""Training surrogate tables from logs, and the gate that decides whether they may be used."""
