"""``python -m searchlab`` is the ``searchlab`` command."""

import sys


def main() -> None:
    """The ``searchlab`` command. An interrupt ends it quietly, also while it is still importing its modules."""
    try:
        from .cli import main as command

        command()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
