"""Logs in other tuners' formats."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..errors import SearchlabError, did_you_mean
from ..log.format import Log, find_logs, read_log

_FINALISTS = "what the fastest trials gave when they were measured again"
_RUN = "the options, protocol and versions of the run"
LOST = {
    "metaschedule": f"{_FINALISTS}, but for the order of these",
    "kernel-tuner": f"messages of failures, and which of the two timeouts, or whether a crash or an error, it was; "
    f"hashes of programs, and which were reused or pruned; how well the cost model predicted; {_RUN}; {_FINALISTS}",
    "kernel-tuner-cache": f"failures but for invalid, not built and not run; all but the first measurement of a "
    f"config; hashes of programs; space, policy, seed and target; {_RUN}; {_FINALISTS}",
    "iohprofiler": f"configs; repeats, of which the cost is there; failures but that they failed; time of day; "
    f"target; {_RUN}; {_FINALISTS}",
    "optuna": _FINALISTS,
}
"""The parts of a log that each format cannot hold."""

FORMATS = tuple(LOST)


def export_logs(paths: Sequence[Path], format: str, out: Path) -> tuple[int, list[str]]:
    """Write the logs at ``paths``, and in the directories among them, to ``out`` in ``format``.

    Returns their number, and a sentence for each part of them that is left out. Raises SearchlabError if there is no
    log, or if ``out`` cannot be written.
    """
    named = [(_name(path, given), read_log(path)) for given in paths for path in find_logs(given)]
    if not named:
        raise SearchlabError(f"there is no log (*.jsonl) in {', '.join(map(str, paths))}")
    names = [name for name, _ in named]
    if twice := [name for name in names if names.count(name) > 1]:
        raise SearchlabError(f"two logs are called {twice[0]!r}; give the directory that both are in, or one of them")
    try:
        return len(named), _export(named, format, out)
    except OSError as error:
        raise SearchlabError(f"cannot write {out}: {error.strerror or error}") from None


def _name(path: Path, given: Path) -> str:
    """A log's name among those exported: its path in the directory that was given."""
    inside = path.relative_to(given) if path != given else Path(path.name)
    return inside.as_posix().removesuffix(".gz").removesuffix(".jsonl")


def _export(named: list[tuple[str, Log]], format: str, out: Path) -> list[str]:
    logs = [log for _, log in named]
    if format == "metaschedule":
        from .metaschedule_export import export

        return export(logs, out)
    if format == "iohprofiler":
        from .iohprofiler import export

        return export(logs, out)
    if format == "optuna":
        from .optuna_storage import export as export_studies

        return export_studies(named, out)
    if format not in FORMATS:
        raise SearchlabError(f"unknown format {format!r}{did_you_mean(format, FORMATS)}")
    from .kernel_tuner import export_cache, export_t4

    if len(logs) > 1:
        raise SearchlabError(f"a Kernel Tuner file contains one run, and these are {len(logs)} logs; give one of them")
    if out.exists():
        raise SearchlabError(f"{out} already exists; choose another file as --out")
    return (export_t4 if format == "kernel-tuner" else export_cache)(logs[0], out)
