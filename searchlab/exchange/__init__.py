"""Other tuners' files: imported as logs (:mod:`.imports`), and written from logs (:mod:`.exports`)."""
