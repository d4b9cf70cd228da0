"""``python -m searchlab`` is the ``searchlab`` command."""

import sys


def main() -> None:
    """Run the ``searchlab`` command. An interrupt shows no traceback, even while modules are still being imported."""
    try:
        from .cli import main as command

        command()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
