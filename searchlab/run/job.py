"""``python -m searchlab.run.job``: the process of a job. Its messages are in :mod:`searchlab.run.executors`."""

from .executors import main

main()
