"""The report as a single HTML page, with its templates, style and script."""
