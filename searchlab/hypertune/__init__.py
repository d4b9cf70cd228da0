"""Searching for better options of a policy on recorded tables, and testing them on held-out workloads."""
