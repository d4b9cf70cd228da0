"""Export of logs to other tuners' formats."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from ..errors import SearchlabError, did_you_mean
from ..log.columns import Columns, ConfigTexts
from ..log.format import Log
from ..log.frames import make_study_frame
from ..log.read import read_log, read_logs_in
from . import ioh, kernel_tuner

_FINALISTS = "the finalists' times from when they were measured again"
_RUN = "the run's options, protocol and versions"

LOST = {
    "metaschedule": f"{_FINALISTS}, except for their order",
    kernel_tuner.T4: (
        "failure messages; the distinctions between crashes and errors and between timeouts; program hashes; which "
        f"programs were reused or pruned; how well the cost model predicted; {_RUN}; {_FINALISTS}"
    ),
    kernel_tuner.CACHE: (
        "all failure kinds except for invalid, failed to build and failed to run; all but the first measurement of "
        f"each config; program hashes; space, policy, seed and target; {_RUN}; {_FINALISTS}"
    ),
    "ioh": f"configs; repeats, except for the cost; failure kinds; time of day; target; {_RUN}; {_FINALISTS}",
    "optuna": _FINALISTS,
    "parquet": f"{_RUN}; the target; failure messages; program hashes",
}
"""The parts of a log that each format cannot represent."""


def export_logs(paths: Sequence[Path], format: str, out: Path) -> tuple[int, list[str]]:
    """Write logs in another tuner's format.

    Args:
        paths: Logs, or directories of logs.
        format: One of :data:`LOST`.
        out: The file or directory to write.

    Returns:
        The number of logs, and a sentence for each omitted part.

    Raises:
        SearchlabError: If no log is found, or if ``out`` cannot be written.
    """
    logs = read_logs_in(paths, read_log)
    notes: list[str] = []
    try:
        match format:
            case "metaschedule":
                from . import metaschedule_export

                notes = metaschedule_export.export(logs, out)
            case kernel_tuner.T4 | kernel_tuner.CACHE:
                if len(logs) > 1:
                    raise SearchlabError(
                        f"a Kernel Tuner file can contain only one run, but {len(logs)} logs were given; pass a "
                        "single log"
                    )
                kernel_tuner.export(logs[0], out, format)
            case "ioh":
                notes = ioh.export(logs, out)
            case "optuna":
                from . import optuna_storage

                optuna_storage.export(logs, out)
            case "parquet":
                _write_parquet(logs, out)
            case _:
                raise SearchlabError(f"unknown format {format!r}{did_you_mean(format, LOST)}")
    except OSError as error:
        raise SearchlabError(f"cannot write {out}: {error.strerror or error}") from None
    return len(logs), notes


def _write_parquet(logs: Sequence[Log], out: Path) -> None:
    """Write the frame of :meth:`.Results.to_frame`. The values of a knob of mixed types are written as JSON."""
    import pyarrow as pa

    texts: ConfigTexts = {}
    frame = make_study_frame([Columns.from_log(log, texts) for log in logs])
    for name, column in frame.select_dtypes("object").items():
        try:
            pa.array(column, from_pandas=True)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            frame[name] = [msgspec.json.encode(value).decode() for value in column]
    out.parent.mkdir(parents=True, exist_ok=True)
    frame.to_parquet(out)
