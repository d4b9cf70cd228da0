"""``python -m searchlab.run.job``: the process of a job. Its messages are classes of :mod:`searchlab.run.executors`."""

from .executors import main

main()
