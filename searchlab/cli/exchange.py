"""``searchlab import`` and ``searchlab export``: other tuners' files, and a program as a library."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from ..errors import SearchlabError
from .terminal import TargetOrOwn, name_and_value, out


class Source(StrEnum):
    autotvm = "autotvm"
    ansor = "ansor"
    metaschedule = "metaschedule"


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
        typer.Argument(help="Records of AutoTVM or Ansor, or a MetaSchedule database's directory.", metavar="FILE"),
    ],
    to: Annotated[
        Path, typer.Option("--out", help="The log, `*.jsonl`; or a directory, for each task in the file a log.")
    ],
    format: Annotated[Source | None, typer.Option(help="Whose file it is [default: as it looks].")] = None,
    workload: Annotated[
        str | None, typer.Option(help="Which workload it is of, where the file's name for it does not say.")
    ] = None,
    space: Annotated[
        str | None, typer.Option(help="The space that its configs are of, as `knob-template` [default: analysis only].")
    ] = None,
    option: Annotated[list[str] | None, typer.Option(help="An option of that space.", metavar="NAME=VALUE")] = None,
    target: TargetOrOwn = None,
    seed: Annotated[int, typer.Option(min=0, help="Tells apart several logs of one tuner in a report.")] = 0,
    label: Annotated[str, typer.Option(help="What a report calls the tuner [default: the format's name].")] = "",
) -> None:
    """Make logs of another tuner's file: to compare it, or, with `--space`, as a table or to start a search from."""
    from ..exchange.imports import IMPORTED, LOST, As, detect, import_file
    from ..plugins import Plugin

    if option and not space:
        raise SearchlabError("--option is of a space; name it with --space")
    plugin = Plugin(space, dict(name_and_value(text) for text in option or [])) if space else None
    made, notes = import_file(file, to, As(workload, plugin, target, seed, label), format.value if format else None)
    for note in notes:
        out.print(f"left out: {escape(note)}", soft_wrap=True)
    for one in made:
        use = "for analysis only" if one.analysis else f"in {one.header.space.name}"
        out.print(
            f"{len(one.records):,} trials of {one.header.workload}, {use}: {escape(str(one.path))}", soft_wrap=True
        )
        if one.left_out:
            line, why = one.left_out[0]
            out.print(
                f"left out, as no config of that space: {len(one.left_out):,} of its records; "
                f"the first, line {line}: {escape(why)}",
                soft_wrap=True,
            )
    if any(one.header.measure == IMPORTED for one in made):
        out.print(f"not carried over: {LOST[format.value if format else detect(file)]}", soft_wrap=True)


def export(
    logs: Annotated[list[Path], typer.Argument(help="Logs, or directories of them.", metavar="LOG...")],
    place: Annotated[
        Path,
        typer.Option(
            "--out",
            help="A new directory for metaschedule and iohprofiler; a file for kernel-tuner (`*.json`), optuna "
            "(`*.db`, or a journal, `*.log`) and a library (`*.so`, or `*.o`, which takes no compiler).",
        ),
    ],
    to: Annotated[
        Destination | None, typer.Option(help="Whose format [default: a library, for `*.so` and `*.o`].")
    ] = None,
) -> None:
    """Write logs as MetaSchedule, Kernel Tuner, IOHprofiler or Optuna read them; or a log's best program, built."""
    if to is None and place.suffix not in (".so", ".o"):
        raise SearchlabError(
            f"--to must say whose format to write {place} in: {', '.join(Destination)}; only a library, *.so or *.o, "
            f"goes without"
        )
    if to is None or to is Destination.library:
        from ..apply.library import export_library

        call = escape(export_library(logs, place))
        out.print(
            f"built {escape(str(place))}; with TVM alone, on arrays by tvm.runtime.tensor: {call}", soft_wrap=True
        )
        return
    from ..exchange.exports import LOST, export_logs

    count, notes = export_logs(logs, to.value, place)
    for note in notes:
        out.print(f"note: {escape(note)}", soft_wrap=True)
    out.print(f"exported to {escape(str(place))}, logs: {count:,}", soft_wrap=True)
    out.print(f"not carried over: {LOST[to]}", soft_wrap=True)
