"""Other tuners' files: their logs as ours (:mod:`.imports`), and ours as theirs, one module a format."""
