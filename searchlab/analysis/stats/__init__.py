"""Statistics of searches: pure functions over arrays, an idea a file. Nothing here knows of logs or of reports."""
