"""``searchlab import`` and ``searchlab export``: the files of other tuners, and a program as a library."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ..errors import SearchlabError
from .terminal import TargetOrOwn, name_and_value, out


class Source(StrEnum):
    autotvm = "autotvm"
    ansor = "ansor"
    metaschedule = "metaschedule"
    kernel_tuner = "kernel-tuner"
    kernel_tuner_cache = "kernel-tuner-cache"


class Destination(StrEnum):
    metaschedule = "metaschedule"
    kernel_tuner = "kernel-tuner"
    kernel_tuner_cache = "kernel-tuner-cache"
    iohprofiler = "iohprofiler"
    optuna = "optuna"
    library = "library"


def import_(
    file: Annotated[
        Path,
        typer.Argument(
            help="Records of AutoTVM or Ansor; the directory of a MetaSchedule database; a cache file of Kernel Tuner, "
            "or results in the T4 format.",
            metavar="FILE",
        ),
    ],
    to: Annotated[
        Path,
        typer.Option(
            "--out",
            help="The log to write, `*.jsonl` or `*.jsonl.gz`; or a directory, for a log of each task in the file.",
        ),
    ],
    format: Annotated[
        Source | None, typer.Option(help="The tuner that wrote the file [default: as the file looks].")
    ] = None,
    workload: Annotated[
        str | None,
        typer.Option(help="The workload of the file, where the file does not name it in a way that is known here."),
    ] = None,
    space: Annotated[
        str | None,
        typer.Option(
            help="The space that its configs belong to, as `knob-template` [default: of a file of Kernel Tuner, its "
            "own parameters; else none, for analysis only]."
        ),
    ] = None,
    option: Annotated[list[str] | None, typer.Option(help="An option of that space.", metavar="NAME=VALUE")] = None,
    target: TargetOrOwn = None,
    seed: Annotated[
        int, typer.Option(min=0, help="The seed in the logs: it tells several logs of one tuner apart in a report.")
    ] = 0,
    label: Annotated[
        str, typer.Option(help="The name of the tuner in a report [default: the name of the format].")
    ] = "",
) -> None:
    """Make logs of the file of another tuner: to compare it; with `--space`, also as a table or to start a search.

    A file of Kernel Tuner becomes a table as it is.
    """
    from ..exchange.imports import IMPORTED, READERS, As, detect, import_file
    from ..plugins import Plugin

    if option and not space:
        raise SearchlabError("--option sets an option of a space; name the space with --space")
    plugin = Plugin(space, dict(name_and_value(text) for text in option or [])) if space else None
    logs, notes = import_file(file, to, As(workload, plugin, target, seed, label), format.value if format else None)
    for note in notes:
        out.print(f"left out: {note}", soft_wrap=True)
    for log in logs:
        use = "for analysis only" if log.analysis else f"in {log.header.space.name}"
        out.print(f"{len(log.records):,} trials of {log.header.workload}, {use}: {log.path}", soft_wrap=True)
        if log.left_out:
            line, why = log.left_out[0]
            out.print(
                f"left out, as no config of that space: {len(log.left_out):,} of its records; "
                f"the first, line {line}: {why}",
                soft_wrap=True,
            )
    if any(log.header.measure.items() >= IMPORTED.items() for log in logs):
        out.print(f"not carried over: {READERS[format.value if format else detect(file)].lost}", soft_wrap=True)


def export(
    logs: Annotated[list[Path], typer.Argument(help="Logs, or directories of them.", metavar="LOG...")],
    place: Annotated[
        Path,
        typer.Option(
            "--out",
            help="A new directory for metaschedule and iohprofiler; a file for kernel-tuner (`*.json`), optuna "
            "(`*.db`, or a journal, `*.log`) and a library (`*.so`; or `*.o`, which needs no compiler).",
        ),
    ],
    to: Annotated[
        Destination | None, typer.Option(help="The format to write [default: a library, for `*.so` and `*.o`].")
    ] = None,
) -> None:
    """Write logs in the format of MetaSchedule, Kernel Tuner, IOHprofiler or Optuna; or build the best program."""
    if to is None and place.suffix not in (".so", ".o"):
        raise SearchlabError(
            f"--to must say whose format to write {place} in: {', '.join(Destination)}; only a library, *.so or *.o, "
            f"goes without"
        )
    if to is None or to is Destination.library:
        from ..apply.best import export_library

        made = export_library(logs, place)
        out.print(f"built {place}; with TVM alone, on arrays by tvm.runtime.tensor: {made.call}", soft_wrap=True)
        if made.setting:
            out.print(
                f"to run as fast as its log says, set {made.setting} in the process that calls it: TVM's default "
                f"is half of the cores",
                soft_wrap=True,
            )
        return
    from ..exchange.exports import LOST, export_logs

    count, notes = export_logs(logs, to.value, place)
    for note in notes:
        out.print(f"note: {note}", soft_wrap=True)
    out.print(f"exported to {place}, logs: {count:,}", soft_wrap=True)
    out.print(f"not carried over: {LOST[to]}", soft_wrap=True)
