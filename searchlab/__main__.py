"""``python -m searchlab`` is the ``searchlab`` command."""

import os
import sys
from contextlib import suppress


def main() -> None:
    """Run the ``searchlab`` command, and exit without a traceback if it is interrupted, even during imports."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # it was closed, as by `>&-`
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115
    try:
        from .cli import main as command

        command()
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        # If an interrupt leaves an exec(), as it can while a dataclass is created, CPython ends the process by SIGINT,
        # whatever the exit code, even if the interrupt was handled; another exec() makes it forget the interrupt.
        exec("")


if __name__ == "__main__":
    with suppress(FileNotFoundError):  # it has been removed, and is not in sys.path
        if not sys.flags.safe_path and os.getcwd():
            del sys.path[:1]  # the current directory, where any file could hide an installed module
    main()
