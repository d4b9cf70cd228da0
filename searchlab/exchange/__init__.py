"""Importing other tuners' files as logs (:mod:`.imports`), and exporting logs to them (:mod:`.exports`)."""
