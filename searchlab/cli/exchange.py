"""``searchlab import`` and ``searchlab export``: the files of other tuners, and a program as a library."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from ..apply.best import export_library
from ..errors import SearchlabError
from ..exchange import exports, imports
from ..plugins import Plugin
from .terminal import Logs, SpaceOptions, TargetOrOwn, plugin, say

Source = StrEnum(
    "Source",
    {
        "autotvm": "autotvm", "ansor": "ansor", "metaschedule": "metaschedule", "kernel_tuner": "kernel-tuner",
        "kernel_tuner_cache": "kernel-tuner-cache",
    },
)  # fmt: skip
Destination = StrEnum(
    "Destination",
    {
        "metaschedule": "metaschedule", "kernel_tuner": "kernel-tuner", "kernel_tuner_cache": "kernel-tuner-cache",
        "iohprofiler": "iohprofiler", "optuna": "optuna", "library": "library",
    },
)  # fmt: skip


def import_(
    file: Annotated[
        Path,
        Argument(
            help="Records of AutoTVM or Ansor; the directory of a MetaSchedule database; a cache file of Kernel Tuner, "
            "or results in the T4 format.",
            metavar="FILE",
        ),
    ],
    to: Annotated[
        Path,
        Option("--out", help="The log to write, `*.jsonl` or `*.jsonl.gz`; or a directory, for one log per task."),
    ],
    format: Annotated[Source | None, Option(help="The tuner that wrote the file [default: detected].")] = None,
    workload: Annotated[
        str | None, Option(help="The workload of the file, if it does not name one that searchlab knows.")
    ] = None,
    space: Annotated[
        str | None,
        Option(
            help="The space that its configs belong to, as `knob-template` [default: for Kernel Tuner, the parameters "
            "of the file; else none, for analysis only]."
        ),
    ] = None,
    option: SpaceOptions = None,
    target: TargetOrOwn = None,
    seed: Annotated[
        int, Option(min=0, help="The seed in the logs: it tells several logs of one tuner apart in a report.")
    ] = 0,
    label: Annotated[str, Option(help="The name of the tuner in a report [default: the name of the format].")] = "",
) -> None:
    """Convert a file of another tuner to logs: to compare it; with `--space`, also as a table or to start a search.

    A file of Kernel Tuner becomes a table without `--space`.
    """
    if option and not space:
        raise SearchlabError("--option sets an option of a space; name the space with --space")
    named = Plugin(space, plugin("", option)["options"]) if space else None
    logs, notes = imports.import_file(file, to, imports.As(workload, named, target, seed, label), format)
    for note in notes:
        say(f"left out: {note}")
    for log in logs:
        use = "for analysis only" if log.analysis else f"in {log.header.space.name}"
        say(f"{len(log.records):,} trials of {log.header.workload}, {use}: {log.path}")
        if log.left_out:
            line, why = log.left_out[0]
            say(
                f"left out: {len(log.left_out):,} of its records, which are no configs of that space; the first, line "
                f"{line}: {why}"
            )
    if any(log.header.measure.items() >= imports.IMPORTED.items() for log in logs):
        say(f"not carried over: {imports.READERS[format or imports.detect(file)].lost}")


def export(
    logs: Logs,
    place: Annotated[
        Path,
        Option(
            "--out",
            help="A new directory for metaschedule and iohprofiler; a file for kernel-tuner (`*.json`), optuna "
            "(`*.db`, or a journal, `*.log`) and a library (`*.so`; or `*.o`, which needs no compiler).",
        ),
    ],
    to: Annotated[
        Destination | None, Option(help="The format to write [default: a library, for `*.so` and `*.o`].")
    ] = None,
) -> None:
    """Write logs in the format of MetaSchedule, Kernel Tuner, IOHprofiler or Optuna; or build the best program."""
    if to is None and place.suffix not in (".so", ".o"):
        raise SearchlabError(
            f"--to must name the format of {place}: {', '.join(Destination)}; only a library, *.so or *.o, needs none"
        )
    if to in (None, Destination.library):
        made = export_library(logs, place)
        say(f"built {place}; with TVM alone, on arrays from tvm.runtime.tensor: {made.call}")
        if made.setting:
            say(
                f"to run as fast as its log records, set {made.setting} in the process that calls it: TVM uses half of "
                f"the cores by default"
            )
        return
    assert to is not None
    count, notes = exports.export_logs(logs, to, place)
    for note in notes:
        say(f"note: {note}")
    say(f"exported to {place}, logs: {count:,}")
    say(f"not carried over: {exports.LOST[to]}")
