"""``python -m searchlab`` is the ``searchlab`` command."""

from .cli import main

main()
