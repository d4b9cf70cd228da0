"""``searchlab watch``: a running study in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .terminal import out


def watch(
    directory: Annotated[Path, typer.Argument(help="The directory of a study, such as results/STUDY.", metavar="DIR")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port of the page; 0 for any that is free.")] = 0,
) -> None:
    """Show a study as it runs, in a browser of this machine: runs, trials, the best so far, and the time left.

    It only reads, so it may begin and end at any time. Ctrl-C ends it.
    """
    from ..watch.server import WatchServer

    with WatchServer(directory, port) as server:
        out.print(server.watched.state().says, soft_wrap=True)
        out.print(f"watch it at {server.url} (Ctrl-C ends the page; the study goes on)", soft_wrap=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            out.print("\nthe page has ended; a study that runs goes on", soft_wrap=True)
