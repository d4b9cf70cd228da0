"""Suites of tables: cards, manifests, baseline runs, and comparisons with the baselines."""
