"""Tables: logs that measure all of a space, or a random sample of it, to stand in for the machine later."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from .errors import SearchlabError
from .log import check_identity, read_log
from .measure.contract import Cache
from .measure.settings import Settings
from .schema import explained
from .study import Named, Study
from .tuner import Cell, OnTrial, recall, run_cell

LABEL = "table"
BATCH = 32
"""Configs measured at a time: enough to keep every building process at work, few enough to lose when interrupted."""


@dataclass(frozen=True)
class TableJob:
    """A table that is to hold ``trials`` configs of its space, measured by ``cell``."""

    cell: Cell
    path: Path
    trials: int

    @property
    def log(self) -> Path:
        """What is written: ``path`` itself, or what will be compressed into it."""
        return self.path.with_suffix("") if self.path.suffix == ".gz" else self.path


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


def placed(jobs: Sequence[TableJob], out: Path | None, default: Path) -> list[TableJob]:
    """``jobs`` under the directory ``out``, else ``default``; or the only one at the file that ``out`` is."""
    if out is None or not out.name.endswith((".jsonl", ".jsonl.gz")):
        return [replace(job, path=(out or default) / job.path) for job in jobs]
    if len(jobs) > 1:
        raise SearchlabError(f"{len(jobs)} tables do not fit one file, {out}; give a directory as --out")
    return [replace(jobs[0], path=out)]


def plan_tables(study: Study, limit: int | None = None, seed: int = 0) -> tuple[list[TableJob], list[str]]:
    """A table of each workload and space of ``study``, under paths ``<workload>/<space>.jsonl``, and what is left out.

    Each holds all configs of its space, or ``limit`` random ones: whatever order they are measured in, it must not be
    that of the knobs, or a machine that gets slower would look like a knob. Raises SearchlabError for a space that is
    too large to be counted where there is no limit.
    """
    if study.spec.measure.replays:
        raise SearchlabError('a table is measured, but measure.kind is "table", which measures nothing; choose another')
    if limit is not None and limit < 1:
        raise SearchlabError(f"the limit is the number of configs to measure, at least 1, not {limit}")
    spec = msgspec.structs.replace(
        study.spec, policies=[Named("random", label=LABEL)], seeds=[seed], batch=BATCH, warm_start=[]
    )
    cells, left_out = Study(spec, study.base).cells()
    jobs = []
    for item in cells:
        space = item.cell.space
        # Where a decision takes milliseconds, counting to the limit is all that is asked.
        size = space.size(limit) if limit and space.builds_programs else space.size()
        if size is None and limit is None:
            raise SearchlabError(
                f"{item.cell.space_label or item.cell.space_plugin.name} has more configs for {space.workload} than "
                f"can be counted; say with --limit how many of them to measure"
            )
        trials = min(number for number in (size, limit) if number is not None)
        jobs.append(TableJob(replace(item.cell, space_size=size), Path(f"{item.path.parent.parent}.jsonl"), trials))
    return jobs, left_out


def build_tables(study: Study, jobs: Sequence[TableJob], on_job: Callable[[TableJob], OnTrial]) -> None:
    """Measure what is missing of ``jobs``, planned from ``study``; run again, it goes on.

    A path ``*.gz`` is written when its table is complete. Raises SearchlabError where a file is of another run.
    """
    cache: Cache = {}
    open_jobs = [job for job in jobs if not _packed(job)]
    if not open_jobs:
        return
    with study.spec.measure.make(jobs[0].cell.space.target, cache, study.base) as measurer:
        for job in open_jobs:
            recall(job.cell, job.log, measurer, cache)
        for job in open_jobs:
            run_cell(job.cell, job.log, job.trials, measurer, on_job(job))
            if job.path != job.log:
                pack(job.log, job.path)


def _packed(job: TableJob) -> bool:
    """Whether the table is there already, compressed. Raises SearchlabError where that is another, or a part."""
    if job.path == job.log or not job.path.exists():
        return False
    log = read_log(job.path)
    check_identity(job.path, log.header, job.cell.header(log.header.workers))
    if len(log.records) < job.trials:
        raise SearchlabError(
            f"{job.path} holds {len(log.records)} of {job.trials} configs, and a compressed log is only read; "
            f"unpack it with gunzip, and go on with {job.log}"
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
