"""Tables: logs that measure all of a space, or a random sample of it, to stand in for the machine later."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from ..errors import SearchlabError
from ..log.format import read_log
from ..log.writer import check_identity
from ..measure.settings import Settings
from ..run.executors import OnRun, execute
from ..run.plan import Run
from ..run.spec import Named
from ..run.study import Study
from ..schema import explained

LABEL = "table"
BATCH = 32
"""Configs measured at a time: enough to keep every building process at work, few enough to lose when interrupted."""


@dataclass(frozen=True)
class TableRun:
    """A table that is to be measured by ``run``, and the file that it goes to: the run's log, or that compressed."""

    run: Run
    path: Path

    @classmethod
    def at(cls, run: Run, path: Path) -> TableRun:
        log = path.with_suffix("") if path.suffix == ".gz" else path
        return cls(replace(run, log=log), path)


def table_study(
    what: str,
    space: str = "",
    options: Mapping[str, Any] | None = None,
    target: str | None = None,
    measure: Mapping[str, Any] | None = None,
) -> Study:
    """The study whose spaces are to be measured: the file ``what`` (``*.toml``), or the one of a workload and a space.

    target, measure: in place of the file's. Raises SearchlabError for bad input.
    """
    if what.endswith(".toml"):
        if space or options:
            raise SearchlabError(f"{what} names its spaces itself; leave out --space and --option")
        study = Study.load(what)
    elif not space:
        raise SearchlabError(f"--space is missing: which space of {what} shall be measured?")
    else:
        entry = {"name": space, "options": dict(options or {})}
        study = Study.from_dict({"workloads": [what], "spaces": [entry], "policies": ["random"]})
    changes: dict[str, Any] = {} if target is None else {"target": target}
    if measure is not None:
        changes["measure"] = explained(dict(measure), Settings, "measure")
    return Study(msgspec.structs.replace(study.spec, **changes), study.base)


def placed(runs: Sequence[Run], out: Path | None, default: Path) -> list[TableRun]:
    """``runs`` under the directory ``out``, else ``default``; or the only one at the file that ``out`` is."""
    if out is None or not out.name.endswith((".jsonl", ".jsonl.gz")):
        return [TableRun.at(run, (out or default) / run.log) for run in runs]
    if len(runs) > 1:
        raise SearchlabError(f"{len(runs)} tables do not fit one file, {out}; give a directory as --out")
    return [TableRun.at(runs[0], out)]


def plan_tables(study: Study, limit: int | None = None, seed: int = 0) -> tuple[list[Run], list[str]]:
    """A table of each workload and space of ``study``, with logs ``<workload>/<space>.jsonl``, and what is left out.

    Each holds all configs of its space, or ``limit`` random ones. They are measured in random order, or a machine that
    gets slower would look like a knob. Raises SearchlabError for a space that is too large to be counted where there is
    no limit.
    """
    if study.spec.measure.replays:
        raise SearchlabError('a table is measured, but measure.kind is "table", which measures nothing; choose another')
    if limit is not None and limit < 1:
        raise SearchlabError(f"the limit is the number of configs to measure, at least 1, not {limit}")
    spec = msgspec.structs.replace(
        study.spec, policies=[Named("random", label=LABEL)], seeds=[seed], batch=BATCH, warm_start=[]
    )
    planned, left_out = Study(spec, study.base).plan()
    runs = []
    for run in planned:
        # Where a decision takes milliseconds, counting to the limit is all that is asked.
        size = run.space.size(limit) if limit and run.space.builds_programs else run.space.size()
        if size is None and limit is None:
            raise SearchlabError(
                f"{run.searched.name} has more configs for {run.workload} than can be counted; say with --limit how "
                f"many of them to measure"
            )
        trials = min(number for number in (size, limit) if number is not None)
        log = Path(f"{run.log.parent.parent}.jsonl")
        runs.append(replace(run, searched=replace(run.searched, size=size), trials=trials, log=log))
    return runs, left_out


def build_tables(study: Study, tables: Sequence[TableRun], on_run: OnRun) -> None:
    """Measure what is missing of ``tables``, planned from ``study``; run again, it goes on.

    A path ``*.gz`` is written when its table is complete. Raises SearchlabError where a file is of another run.
    """
    open_tables = [table for table in tables if not _packed(table)]
    if not open_tables:
        return
    path_of = {table.run.log: table.path for table in open_tables}
    for run, _ in execute([table.run for table in open_tables], study.base, on_run):
        if path_of[run.log] != run.log:
            pack(run.log, path_of[run.log])


def _packed(table: TableRun) -> bool:
    """Whether the table is there already, compressed. Raises SearchlabError where that is another, or a part."""
    path, run = table.path, table.run
    if path == run.log or not path.exists():
        return False
    log = read_log(path)
    check_identity(path, log.header, run.header(log.header.workers))
    if len(log.records) < run.trials:
        raise SearchlabError(
            f"{path} holds {len(log.records)} of {run.trials} configs, and a compressed log is only read; "
            f"unpack it with gunzip, and go on with {run.log}"
        )
    return True


def pack(log: Path, packed: Path) -> None:
    """Compress ``log`` into ``packed``, and remove it. The same log always gives the same bytes."""
    part = packed.with_name(packed.name + ".part")
    try:
        with (
            open(log, "rb") as source,
            open(part, "wb") as raw,
            gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as target,
        ):
            shutil.copyfileobj(source, target)
        part.replace(packed)
        log.unlink()
    except OSError as error:
        raise SearchlabError(f"cannot write {packed}: {error.strerror}; {log} is whole") from None
