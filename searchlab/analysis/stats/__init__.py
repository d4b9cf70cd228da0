"""Statistics of searches: pure functions over arrays, one idea per file. Nothing here depends on logs or reports."""
