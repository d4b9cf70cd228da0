"""``searchlab import`` and ``export``: convert from and to other tools' formats, and build libraries."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from ..apply.best import export_library
from ..errors import SearchlabError
from ..exchange import exports, imports
from ..plugins import Plugin
from .terminal import NATIVE, Logs, SpaceOptions, plugin, say


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
        Option(
            "--out",
            help="The log to write, `*.jsonl`, `*.jsonl.gz` or `*.packed`; or a directory, for one log per task.",
        ),
    ],
    format: Annotated[
        str | None, Option(help=f"The format of the file: {', '.join(imports.READERS)} [default: detected].")
    ] = None,
    workload: Annotated[
        str | None, Option(help="The workload, if the file does not name one that searchlab knows.")
    ] = None,
    space: Annotated[
        str | None,
        Option(
            help="The space that the configs belong to, such as `knob-template` [default: for Kernel Tuner, the "
            "parameters in the file; otherwise none, for analysis only]."
        ),
    ] = None,
    option: SpaceOptions = None,
    target: Annotated[str | None, Option(help=f"The target: {NATIVE} [default: that of the file].")] = None,
    seed: Annotated[
        int, Option(min=0, help="The seed in the logs, to tell several runs of one tuner apart in a report.")
    ] = 0,
    label: Annotated[str, Option(help="The name of the tuner in a report [default: the name of the format].")] = "",
) -> None:
    """Convert another tuner's file to logs, to compare it; with `--space`, also to use it as a table or a warm start.

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
            say(f"left out: {len(log.left_out):,} of its records, not configs of that space; first, line {line}: {why}")
    if any(log.header.measure.items() >= imports.IMPORTED.items() for log in logs):
        say(f"not carried over: {imports.READERS[format or imports.detect(file)].lost}")


def export(
    logs: Logs,
    place: Annotated[
        Path,
        Option(
            "--out",
            help="A new directory for metaschedule and iohprofiler; a file for kernel-tuner (`*.json`), optuna "
            "(`*.db`, or `*.log` for a journal) and a library (`*.so`; or `*.o`, which needs no compiler).",
        ),
    ],
    to: Annotated[
        str | None, Option(help=f"The format: {', '.join(exports.LOST)} or library [default for `*.so` and `*.o`].")
    ] = None,
) -> None:
    """Export logs to MetaSchedule, Kernel Tuner, IOHprofiler or Optuna; or build the best program as a library."""
    if to is None and place.suffix not in (".so", ".o"):
        raise SearchlabError(
            f"--to must name the format of {place}: {', '.join(exports.LOST)}; only a library, *.so or *.o, needs none"
        )
    if to is None or to == "library":
        made = export_library(logs, place)
        say(f"built {place}; with TVM alone, on arrays from tvm.runtime.tensor: {made.call}")
        if made.setting:
            say(
                f"to run as fast as its log records, set {made.setting} in the process that calls it: TVM uses half of "
                f"the cores by default"
            )
        return
    count, notes = exports.export_logs(logs, to, place)
    for note in notes:
        say(f"note: {note}")
    say(f"exported {count:,} log{'s' * (count != 1)} to {place}")
    say(f"not carried over: {exports.LOST[to]}")
