"""Import of other tuners' files as logs (:mod:`.imports`), and export of logs as such files (:mod:`.exports`)."""
