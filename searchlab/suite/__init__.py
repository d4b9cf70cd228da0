"""Suites of tables: their cards and manifests, the runs of baselines, and comparisons with these."""
