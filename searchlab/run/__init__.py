"""Runs: planned, searched trial by trial, gone on with; one of them, or all of a study."""
