"""``searchlab import`` and ``export``: convert between searchlab and other tools' formats, and build libraries."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from ..analysis.words import counted
from ..apply.best import export_library
from ..errors import SearchlabError
from ..exchange import exports, imports
from ..options import Seed
from . import parameters
from .parameters import number_option, parse_plugin
from .terminal import say

EXPORT_FORMATS = ", ".join(exports.WRITERS)


def import_(
    file: Annotated[
        Path,
        Argument(
            help="An AutoTVM or Ansor record file, a MetaSchedule database directory, a Kernel Tuner cache file, or "
            "results in the T4 format.",
            metavar="FILE",
        ),
    ],
    output: Annotated[
        Path,
        Option(
            "--out",
            help="The log to write (`*.jsonl`, `*.jsonl.gz` or `*.parquet`), or a directory for one log per task.",
        ),
    ],
    format: Annotated[
        str | None, Option(help=f"The format of the file: {', '.join(imports.READERS)} [default: detected].")
    ] = None,
    workload: Annotated[
        str | None, Option(help="The workload, if the file does not specify one that searchlab knows.")
    ] = None,
    space: Annotated[
        str | None,
        Option(
            help="The space that the configs belong to, such as `knob-template`; for Ansor, `parameters` applies its "
            "transform steps [default: for Kernel Tuner, the parameters in the file; otherwise none, which is enough "
            "for analysis]."
        ),
    ] = None,
    option: parameters.SpaceOptions = None,
    target: Annotated[
        str | None, Option(help=f"The target: {parameters.TARGET_HELP} [default: as in the file].")
    ] = None,
    seed: Annotated[
        int, number_option(Seed, help="The seed to write to the logs, which distinguishes a tuner's runs in a report.")
    ] = 0,
    label: Annotated[str, Option(help="The tuner's name in reports [default: the format's name].")] = "",
) -> None:
    """Convert another tuner's file to logs for comparison. With `--space`, logs also serve as tables or warm starts.

    A Kernel Tuner file becomes a table even without `--space`.
    """
    if option and not space:
        raise SearchlabError("--option sets an option of a space; specify the space with --space")
    options = imports.ImportOptions(workload, parse_plugin(space, option) if space else None, target, seed, label)
    logs, notes = imports.import_file(file, output, options, format)
    for note in notes:
        say(f"skipped: {note}")
    for log in logs:
        use_text = "for analysis only" if log.is_for_analysis else f"in {log.header.space.name}"
        say(f"{counted(len(log.records), 'trial')} of {log.header.workload}, {use_text}: {log.path}")
        if log.omitted_records:
            count, (line_number, reason) = len(log.omitted_records), log.omitted_records[0]
            say(f"skipped records that are not in the space: {count:,}; the first is on line {line_number}: {reason}")
    if any(log.header.measure.items() >= imports.IMPORTED_MEASURE.items() for log in logs):
        say(f"not carried over: {imports.READERS[format or imports.detect_format(file)].lost}")


def export(
    logs: parameters.Logs,
    output: Annotated[
        Path,
        Option(
            "--out",
            help="The output: a new directory for metaschedule and ioh; a file for kernel-tuner (`*.json`), optuna "
            "(`*.log`, or `*.db`), parquet (`*.parquet`) and a library (`*.so`, or `*.o`, which needs no compiler).",
        ),
    ],
    to: Annotated[
        str | None,
        Option(help=f"The format: {EXPORT_FORMATS} or library [default: by the name of the file]."),
    ] = None,
) -> None:
    """Export logs to another tool's format, or build the best program as a library."""
    if to is None and output.suffix not in (".so", ".o"):
        raise SearchlabError(
            f"specify the format of {output} with --to ({EXPORT_FORMATS}); --to can be omitted only for *.so "
            "and *.o files"
        )
    if to is None or to == "library":
        library = export_library(logs, output)
        say(f"built {output}; to call it with only TVM, on arrays from tvm.runtime.tensor: {library.call_expression}")
        if library.pack_statements:
            say(f"before calling it, pack its weights once: {'; '.join(library.pack_statements)}")
        if library.environment_setting:
            say(
                f"for the speed recorded in the log, set {library.environment_setting} in the process that calls the "
                "library: by default, TVM uses half of the cores"
            )
        return
    count, notes = exports.export_logs(logs, to, output)
    for note in notes:
        say(f"note: {note}")
    say(f"exported {counted(count, 'log')} to {output}")
    say(f"not carried over: {exports.WRITERS[to].lost}")
