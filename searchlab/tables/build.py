"""Building tables: logs of all configs of a space, or of a random sample, which replace the machine later."""

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
from ..run.spec import NamedPolicy
from ..run.study import Study
from ..schema import explained

LABEL = "table"
BATCH = 32
"""Configs measured at a time: enough to keep all build processes busy, and few enough to lose in an interrupt."""


@dataclass(frozen=True)
class TableRun:
    """The run that measures a table, and the file of the table: the run's log, or the compressed log."""

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
    """The study whose spaces are to be measured: of the file ``what`` (``*.toml``), or of a workload and a space.

    target, measure: replace those of the file. Raises SearchlabError for bad input.
    """
    if what.endswith(".toml"):
        if space or options:
            raise SearchlabError(f"{what} names its spaces itself; leave out --space and --option")
        study = Study.load(what)
    elif not space:
        raise SearchlabError(f"--space is missing; name the space of {what} to measure")
    else:
        entry = {"name": space, "options": dict(options or {})}
        study = Study.from_dict({"workloads": [what], "spaces": [entry], "policies": ["random"]})
    changes: dict[str, Any] = {} if target is None else {"target": target}
    if measure is not None:
        changes["measure"] = explained(dict(measure), Settings, "measure")
    return Study(msgspec.structs.replace(study.spec, **changes), study.base)


def placed(runs: Sequence[Run], out: Path | None, default: Path) -> list[TableRun]:
    """``runs`` with their files in the directory ``out`` (else ``default``); or a single run with the file ``out``."""
    if out is None or not out.name.endswith((".jsonl", ".jsonl.gz")):
        return [TableRun.at(run, (out or default) / run.log) for run in runs]
    if len(runs) > 1:
        raise SearchlabError(f"{len(runs)} tables do not fit one file, {out}; give a directory as --out")
    return [TableRun.at(runs[0], out)]


def plan_tables(study: Study, limit: int | None = None, seed: int = 0) -> tuple[list[Run], list[str]]:
    """The run of each table: each workload and space of ``study``. Also a sentence for each that is left out.

    The logs are ``<workload>/<space>.jsonl``. A table holds all configs of its space, or ``limit`` random ones. Their
    order is random, or a machine that gets slower would look like a knob. Raises SearchlabError for a space that is too
    large to be counted, if there is no limit.
    """
    if study.spec.measure.replays:
        kind = study.spec.measure.identity()["kind"]
        raise SearchlabError(f'measure.kind is "{kind}", which measures nothing; to build a table, choose another kind')
    if limit is not None and limit < 1:
        raise SearchlabError(f"the limit is the number of configs to measure; it must be at least 1, not {limit}")
    spec = msgspec.structs.replace(
        study.spec, policies=[NamedPolicy("random", label=LABEL)], seeds=[seed], batch=BATCH, warm_start=[]
    )
    planned, left_out = Study(spec, study.base).plan()
    runs = []
    for run in planned:
        # Where a decision takes milliseconds, configs are counted up to the limit only.
        size = run.space.size(limit) if limit and run.space.builds_programs else run.space.size()
        if size is None and limit is None:
            raise SearchlabError(
                f"{run.searched.name} has more configs for {run.workload} than can be counted; set --limit to the "
                f"number of configs to measure"
            )
        trials = min(number for number in (size, limit) if number is not None)
        log = Path(f"{run.log.parent.parent}.jsonl")
        runs.append(replace(run, searched=replace(run.searched, size=size), trials=trials, log=log))
    return runs, left_out


def build_tables(study: Study, tables: Sequence[TableRun], on_run: OnRun) -> None:
    """Measure those ``tables`` of ``study`` that are not complete. To resume, call it again.

    A file ``*.gz`` is written when its table is complete. Raises SearchlabError if a file is of another run.
    """
    open_tables = [table for table in tables if not _packed(table)]
    if not open_tables:
        return
    path_of = {table.run.log: table.path for table in open_tables}
    for run, _ in execute([table.run for table in open_tables], study.base, on_run):
        if path_of[run.log] != run.log:
            pack(run.log, path_of[run.log])


def _packed(table: TableRun) -> bool:
    """Whether the compressed table exists. Raises SearchlabError if it is another table, or not complete."""
    path, run = table.path, table.run
    if path == run.log or not path.exists():
        return False
    log = read_log(path)
    check_identity(path, log.header, run.header(log.header.workers))
    if len(log.records) < run.trials:
        raise SearchlabError(
            f"{path} holds {len(log.records)} of {run.trials} configs, and a compressed log can only be read; "
            f"unpack it with gunzip, and run this again"
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
        raise SearchlabError(f"cannot write {packed}: {error.strerror}; {log} is complete") from None
