"""Import of logs from other tuners' files (:mod:`.imports`), and export of logs to such files (:mod:`.exports`)."""
