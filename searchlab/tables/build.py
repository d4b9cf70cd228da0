"""Building tables: logs of all configs of a space, or of a random sample, that later stand in for the machine.

First, a run builds and checks every program. Without passes, the log of this run is the table. With passes, the
compiled programs are kept and timed in passes, and the table is the log with the times from the passes.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from ..errors import SearchlabError
from ..log.budget import Budget
from ..log.format import TABLE_LABEL, Log, Record
from ..log.read import LOG_SUFFIXES, WRITABLE_SUFFIX, read_log
from ..log.result import Result
from ..log.writer import check_identity, compress_log, write_log
from ..measure.settings import LocalSettings, Settings, add_kind
from ..options import Seed, Trials, checks_arguments
from ..plugins import PluginSpec
from ..records import select_first_of_each_program
from ..run.execute import execute_run
from ..run.plan import OnChargedRun, Run
from ..run.progress import show_progress
from ..run.spec import PolicyEntry
from ..run.strategy import make_space_spec
from ..run.study import Study
from ..schema import convert
from ..space import Space
from ..target import Target
from ..workload import Workload
from .passes import OnBlock, PassTimer, ProgramReadings

DEFAULT_PASSES = 3
"""The default number of passes over all programs."""

MAX_PASSES = 1000

WORK_DIR_SUFFIX = ".building"
"""The suffix of the directory in which a table is built."""

BATCH_SIZE = 32
"""The number of configs in a batch: enough to keep all build processes busy, but little to lose in an interruption."""


def make_table_study(
    source: str,
    space: str = "",
    options: Mapping[str, Any] | None = None,
    target: str | None = None,
    measure: Mapping[str, Any] | None = None,
) -> Study:
    """Return the study that specifies the spaces to measure.

    Args:
        source: A study file (``*.toml``), or a workload.
        space: The name of the space, if ``source`` is a workload.
        options: The options of the space.
        target: The target, which overrides that in the file.
        measure: The measurement settings, which override those in the file.

    Raises:
        SearchlabError: If an argument is invalid.
    """
    if source.endswith(".toml"):
        if space or options:
            raise SearchlabError(f"{source} specifies its own spaces; omit --space and --option")
        study = Study.load(source)
    elif not space:
        raise SearchlabError(f"--space is missing; specify which space of {source} to measure")
    else:
        space_entry = {"name": space, "options": dict(options or {})}
        study = Study.from_dict({"workloads": [source], "spaces": [space_entry], "policies": ["random"]})
    changes: dict[str, Any] = {} if target is None else {"target": target}
    if measure is not None:
        changes["measure"] = convert(add_kind(dict(measure), study.spec.workloads), Settings, "measure")
    return replace(study, spec=msgspec.structs.replace(study.spec, **changes))


def choose_passes(runs: Sequence[Run], passes: int | None = None) -> int:
    """Return the number of passes over all programs, or 0 to keep the times of the run that checks them.

    The default is :data:`DEFAULT_PASSES` for programs on this machine; on a fleet, and for functions, it is 0. Raises
    SearchlabError if ``runs`` cannot be timed in this number of passes.
    """
    can_time_again = isinstance(runs[0].settings, LocalSettings)
    if passes is None:
        passes = DEFAULT_PASSES if can_time_again else 0
    if passes != 0 and not 2 <= passes <= MAX_PASSES:
        raise SearchlabError(
            f"passes must be from 2 to {MAX_PASSES}, or 0 to keep the times of a single run; got {passes}"
        )
    if passes and not can_time_again:
        raise SearchlabError("only programs on this machine can be timed again without rebuilding; set passes to 0")
    return passes


def make_table_runs(runs: Sequence[Run], out: Path | None, default: Path, passes: int) -> dict[Path, Run]:
    """Return the run that builds each table, by the table's path.

    Args:
        runs: The runs that build the tables.
        out: A directory, or a file if there is only one run.
        default: The directory to use if ``out`` is None.
        passes: The number of passes over all programs; see :func:`choose_passes`.

    Raises:
        SearchlabError: If several tables are to be written to one file.
    """
    if out is None or not out.name.endswith(LOG_SUFFIXES):
        paths = [(out or default) / run.log_path for run in runs]
    elif len(runs) > 1:
        raise SearchlabError(f"cannot write {len(runs)} tables to one file, {out}; pass a directory as --out")
    else:
        paths = [out]
    return {path: _redirect_run(run, path, passes) for path, run in zip(paths, runs, strict=True)}


def _redirect_run(run: Run, path: Path, passes: int) -> Run:
    """Return ``run`` for the table at ``path``. It writes intermediate files to a directory next to it.

    Without passes, a table that is a plain log needs none.
    """
    if not passes and path.name.endswith(WRITABLE_SUFFIX):
        return replace(run, log_path=path)
    ending = next(ending for ending in LOG_SUFFIXES if path.name.endswith(ending))
    work_dir = path.with_name(path.name.removesuffix(ending) + WORK_DIR_SUFFIX)
    settings = run.settings
    if passes:
        assert isinstance(settings, LocalSettings)
        settings = msgspec.structs.replace(settings, programs=str(work_dir / "programs"), sentinel=0, finalists=0)
    return replace(run, log_path=work_dir / "built.jsonl", settings=settings)


@checks_arguments
def build_table(
    workload: str | Workload | Callable[..., Any],
    space: PluginSpec | Space,
    path: str | Path,
    *,
    restrictions: Sequence[str | Callable[..., Any]] = (),
    schedule: Callable[..., Any] | None = None,
    limit: Trials | None = None,
    seed: Seed = 0,
    target: str | Mapping[str, Any] | Target | None = None,
    measure: Settings | Mapping[str, Any] | None = None,
    passes: int | None = None,
    progress: bool | Console = True,
) -> Result:
    """Measure all configs of a space, or a random sample, into a table. To resume, call this function again.

    Studies can then run over the table instead of measuring: ``measure = { kind = "table", path = ... }``.

    Args:
        workload: As in :func:`~searchlab.run.tune.tune`; so are ``space``, ``restrictions``, ``schedule``, ``target``,
            ``measure`` and ``progress``.
        space: The space.
        path: The table's file, whose name ends in ``.parquet`` or ``.jsonl``.
        restrictions: Conditions that all configs satisfy.
        schedule: A function that transforms the schedule of the workload's program.
        limit: Measure this many random configs instead of all.
        seed: The seed, which determines the configs and their order.
        target: The target.
        measure: How to measure.
        passes: The number of times that all programs are timed, each time in a different order, or 0 to keep the times
            of the run that checks them. The default is 3 for programs on this machine, and 0 for functions.
        progress: Whether to show the progress.

    Returns:
        The table, as a run with all its configs.

    Raises:
        SearchlabError: If an argument is invalid, or ``path`` is a different table.

    Example:
        >>> import searchlab
        >>> def cost(config):
        ...     return config["x"] * 1e-3
        >>> table = searchlab.build_table(cost, {"x": [1, 2, 4]}, "cost.parquet", progress=False)
        >>> len(table.trials), table.best.config
        (3, Config({'x': 1}))
    """
    if not str(path).endswith(LOG_SUFFIXES):
        raise SearchlabError(f"the name of a table must end in .parquet or .jsonl, unlike {str(path)!r}")
    space_entry = make_space_spec(space, restrictions, schedule)
    study_keys = {"workloads": [workload], "spaces": [space_entry], "policies": ["random"], "target": target}
    if measure is not None:
        study_keys["measure"] = measure
    study = Study.from_dict(study_keys)
    runs, _ = plan_tables(study, limit, seed)
    passes = choose_passes(runs, passes)
    runs_by_table = make_table_runs(runs, Path(path), Path(), passes)
    with show_progress(progress, list(runs_by_table.values()), lambda *_: None) as on_run:
        build_tables(runs_by_table, passes, on_run)
    return Result(read_log(path), runs[0].space)


def plan_tables(study: Study, limit: int | None = None, seed: int = 0) -> tuple[list[Run], list[str]]:
    """Plan a table for each workload and space of ``study``.

    The logs are ``<workload>/<space>.jsonl``. A table contains all configs of its space, or ``limit`` random ones. The
    order is random, because otherwise a machine that becomes slower would look like the effect of a knob.

    Returns:
        The runs that build the tables, and a sentence for each workload and space that is skipped.

    Raises:
        SearchlabError: If a space is too large to count and no limit is set.
    """
    if study.spec.suite:
        raise SearchlabError("the study uses a suite, whose tables already exist; specify workloads and spaces")
    if study.spec.measure is not None and study.spec.measure.replays:
        measure_kind = study.spec.measure.identity()["kind"]
        raise SearchlabError(
            f'measure.kind is "{measure_kind}", which measures nothing; choose another kind to build a table'
        )
    if limit is not None and limit < 1:
        raise SearchlabError(f"the limit on the number of configs to measure must be at least 1; got {limit}")
    spec = msgspec.structs.replace(
        study.spec,
        policies=[PolicyEntry("random", label=TABLE_LABEL)],
        seeds=[seed],
        batch=BATCH_SIZE,
        warm_start=[],
        seconds=None,
        stop_after=None,
    )
    study_runs, skip_reasons = replace(study, spec=spec).plan()
    runs = []
    for run in study_runs:
        # If checking a config takes milliseconds, count only up to the limit.
        space_size = run.space.size(limit) if limit and run.space.builds_programs else run.space.size()
        if space_size is None and limit is None:
            raise SearchlabError(
                f"{run.space_choice.name} has too many configs to count for {run.workload_name}; set --limit to the "
                f"number of configs to measure"
            )
        trials = min(number for number in (space_size, limit) if number is not None)
        log_path = Path(f"{run.log_path.parent.parent}.jsonl")
        runs.append(
            replace(
                run, space_choice=replace(run.space_choice, size=space_size), budget=Budget(trials), log_path=log_path
            )
        )
    return runs, skip_reasons


def build_tables(
    runs_by_table: Mapping[Path, Run], passes: int, on_run: OnChargedRun, on_block: OnBlock = lambda *_: None
) -> None:
    """Measure the tables that are not complete. To resume, call this function again.

    A table that is timed in passes, or whose name does not end in ``.jsonl``, is written only when it is complete.

    Raises:
        SearchlabError: If a file belongs to a different run, or if the machine is too unsteady.
    """
    for path, run in runs_by_table.items():
        if not _is_complete(path, run):
            log = execute_run(run, on_run)
            if path == run.log_path:
                continue
            if passes:
                write_log(path, _replace_times(log, run, passes, on_block))
            else:
                compress_log(run.log_path, path)
            shutil.rmtree(run.log_path.parent)


def _replace_times(log: Log, run: Run, passes: int, on_block: OnBlock) -> Log:
    """Return the ``log`` of ``run`` with the times from the passes, or unchanged if no program runs."""
    trials, settings = select_first_of_each_program(log.trials), run.settings
    assert isinstance(settings, LocalSettings)
    if not trials:
        return log
    timer = PassTimer(run.space, trials, passes, settings.repeat, run.seed, run.log_path.with_name("passes.jsonl"))
    with settings.make(run.space.target, {}) as measurer:
        timer.time(measurer, on_block)
    readings_by_program = timer.collect_readings()
    records = [_replace_readings(record, readings_by_program.get(record.program)) for record in log.records]
    header = msgspec.structs.replace(log.header, passes=timer.summarize())
    return replace(log, header=header, records=tuple(records), finalist_times=None, run_end=None)


def _replace_readings(record: Record, readings: ProgramReadings | None) -> Record:
    """Return ``record`` with the readings of its program, which counts as failed if it failed in any pass."""
    if readings is None:
        return record
    if readings.failure_message:
        return msgspec.structs.replace(record, seconds=(), failure="run_error", message=readings.failure_message)
    return msgspec.structs.replace(record, seconds=readings.seconds, measured_at=readings.measured_at)


def _is_complete(path: Path, run: Run) -> bool:
    """Return whether the table is complete. Raises SearchlabError if it is a different table or has fewer configs."""
    if path == run.log_path or not path.exists():
        return False
    log = read_log(path)
    check_identity(path, log.header, run.header)
    if len(log.records) < run.trial_count:
        raise SearchlabError(
            f"{path} is a complete table of {len(log.records)} configs instead of {run.trial_count}; remove it or "
            "choose another file, and run this again"
        )
    return True
