"""Export of logs to other tuners' formats."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from ..errors import SearchlabError, did_you_mean
from ..log.columns import LogColumns
from ..log.format import Log
from ..log.frames import make_study_frame
from ..log.read import read_log, read_logs_in
from . import ioh, kernel_tuner, optuna_storage


class Writer(NamedTuple):
    """The function for exporting to a format.

    Attributes:
        lost: The parts of a log that the format cannot represent.
        write: A function that writes logs to a file or directory, and returns a sentence for each omitted part.
    """

    lost: str
    write: Callable[[Sequence[Log], Path], list[str]]


def export_logs(paths: Sequence[Path], format: str, out_path: Path) -> tuple[int, list[str]]:
    """Write logs in another tuner's format.

    Args:
        paths: Logs, or directories of logs.
        format: One of :data:`WRITERS`.
        out_path: The file or directory to write.

    Returns:
        The number of logs, and a sentence for each omitted part.

    Raises:
        SearchlabError: If no log is found, or if ``out_path`` cannot be written.
    """
    logs = read_logs_in(paths, read_log)
    if format not in WRITERS:
        raise SearchlabError(f"unknown format {format!r}{did_you_mean(format, WRITERS)}")
    try:
        return len(logs), WRITERS[format].write(logs, out_path)
    except OSError as error:
        raise SearchlabError(f"cannot write {out_path}: {error.strerror or error}") from None


def _write_metaschedule(logs: Sequence[Log], out_path: Path) -> list[str]:
    from . import metaschedule_export  # imported here because it imports TVM

    return metaschedule_export.export(logs, out_path)


def _write_parquet(logs: Sequence[Log], out_path: Path) -> list[str]:
    """Write the frame of :meth:`.Results.to_frame`. The values of a knob of mixed types are written as JSON."""
    import pyarrow as pa

    frame = make_study_frame([LogColumns.from_log(log) for log in logs])
    for name, column in frame.select_dtypes("object").items():
        try:
            pa.array(column, from_pandas=True)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            frame[name] = [msgspec.json.encode(value).decode() for value in column]
    out_path.parent.mkdir(parents=True, exist_ok=True)
    frame.to_parquet(out_path)
    return []


_LOST_FINALISTS = "the finalists' times from when they were measured again"
_LOST_RUN_FIELDS = "the run's options, protocol and versions"

WRITERS = {
    "metaschedule": Writer(f"{_LOST_FINALISTS}, except for their order", _write_metaschedule),
    kernel_tuner.T4_FORMAT: Writer(
        "failure messages; the distinctions between crashes and errors and between timeouts; program hashes; which "
        f"programs were reused or pruned; how well the cost model predicted; {_LOST_RUN_FIELDS}; {_LOST_FINALISTS}",
        partial(kernel_tuner.export, format=kernel_tuner.T4_FORMAT),
    ),
    kernel_tuner.CACHE_FORMAT: Writer(
        "all failure kinds except for invalid, failed to build and failed to run; all but the first measurement of "
        f"each config; program hashes; space, policy, seed and target; {_LOST_RUN_FIELDS}; {_LOST_FINALISTS}",
        partial(kernel_tuner.export, format=kernel_tuner.CACHE_FORMAT),
    ),
    "ioh": Writer(
        "configs; repeats, except for the cost; failure kinds; time of day; target; "
        f"{_LOST_RUN_FIELDS}; {_LOST_FINALISTS}",
        ioh.export,
    ),
    "optuna": Writer(_LOST_FINALISTS, optuna_storage.export),
    "parquet": Writer(f"{_LOST_RUN_FIELDS}; the target; failure messages; program hashes", _write_parquet),
}
"""The formats that logs can be exported to."""
