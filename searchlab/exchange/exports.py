"""Logs in other tuners' formats."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..errors import SearchlabError, did_you_mean
from ..log.format import Log, find_logs, read_log
from . import iohprofiler, kernel_tuner

_FINALISTS = "the times of the finalists when they were measured again"
_RUN = "the options, protocol and versions of the run"
LOST = {
    "metaschedule": f"{_FINALISTS}, except for their order",
    kernel_tuner.T4: f"messages of failures, and whether one was a crash or an error, and which timeout; hashes of "
    f"programs, and which were reused or pruned; how well the cost model predicted; {_RUN}; {_FINALISTS}",
    kernel_tuner.CACHE: f"failures except for invalid, not built and not run; all but the first measurement of a "
    f"config; hashes of programs; space, policy, seed and target; {_RUN}; {_FINALISTS}",
    "iohprofiler": f"configs; repeats, except for the cost; the kinds of failures; time of day; target; {_RUN}; "
    f"{_FINALISTS}",
    "optuna": _FINALISTS,
}
"""The parts of a log that each format cannot represent."""


def export_logs(paths: Sequence[Path], format: str, out: Path) -> tuple[int, list[str]]:
    """Write logs in another tuner's format.

    Args:
        paths: Logs, or directories of logs.
        format: One of :data:`LOST`.
        out: The file or directory to write.

    Returns:
        The number of logs, and a sentence for each part of them that is left out.

    Raises:
        SearchlabError: If there is no log, or if ``out`` cannot be written.
    """
    named: list[tuple[str, Log]] = []
    for given in paths:
        for path in find_logs(given):
            inside = path.relative_to(given) if path != given else Path(path.name)
            named.append((inside.as_posix().removesuffix(".gz").removesuffix(".jsonl"), read_log(path)))
    if not named:
        raise SearchlabError(f"there is no log (*.jsonl) in {', '.join(map(str, paths))}")
    names = [name for name, _ in named]
    if twice := [name for name in names if names.count(name) > 1]:
        raise SearchlabError(
            f"two logs are called {twice[0]!r}; name the directory that contains both, or only one of them"
        )
    logs = [log for _, log in named]
    notes: list[str] = []
    try:
        match format:
            case "metaschedule":
                from . import metaschedule_export

                notes = metaschedule_export.export(logs, out)
            case "iohprofiler":
                notes = iohprofiler.export(logs, out)
            case "optuna":
                from . import optuna_storage

                optuna_storage.export(named, out)
            case kernel_tuner.T4 | kernel_tuner.CACHE:
                if len(logs) > 1:
                    raise SearchlabError(
                        f"a Kernel Tuner file contains one run, but {len(logs)} logs were given; name one log"
                    )
                kernel_tuner.export(logs[0], out, format)
            case _:
                raise SearchlabError(f"unknown format {format!r}{did_you_mean(format, LOST)}")
    except OSError as error:
        raise SearchlabError(f"cannot write {out}: {error.strerror or error}") from None
    return len(named), notes
