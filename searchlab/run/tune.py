"""One run, from Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from ..errors import SearchlabError
from ..log.result import Result
from ..measure.settings import LocalSettings, Settings
from ..options import Count, Natural, NonNegative, checked
from ..plugins import PluginSpec
from ..schema import explained
from ..space import Space
from ..store import Store
from ..target import Target, resolve_target
from ..workload import Workload, parse_workload
from .begun import as_begun
from .execute import execute_one, warn_of_a_busy_machine, warn_of_disagreement, warn_of_more
from .plan import OnTrial, Searched, Strategy, plan_run
from .progress import shown
from .spec import budget_of
from .warm_start import Source, check_used, earlier_runs


def tune(
    workload: str | Workload,
    *,
    space: PluginSpec | Space,
    policy: PluginSpec,
    log: str | Path,
    trials: int | None = None,
    seconds: float | None = None,
    stop_after: int | None = None,
    batch: int = 8,
    seed: int = 0,
    cost_model: PluginSpec | None = None,
    features: str | None = None,
    target: str | Mapping[str, Any] | Target | None = None,
    measure: Settings | Mapping[str, Any] | None = None,
    warm_start: Source | Sequence[Source] = (),
    on_trial: OnTrial | None = None,
    progress: bool | Console | None = None,
) -> Result:
    """Search one workload in one space with one policy, and log the run in the file ``log``. Call it again to resume.

    space, policy, cost_model: a registered name, ``"module:Class"``, the class, or ``{"name": ..., "options": {...}}``
    with one of these as its name; or a Space.
    trials, seconds, stop_after: where the run ends: after so many trials; when so many seconds have been charged for
    proposing, training, building and running; after so many trials without a gain over 1 % of the best throughput.
    The first that is reached counts, at the end of a batch (but for ``trials``). By default 64 trials, or with one of
    the others as many as it allows. With more of them a later call goes on.
    cost_model, features: for a policy that takes a cost model; by default those that belong to the policy, else
    ``xgboost`` and ``knob``. measure: as in a study file, ``{"kind": "local", ...}``. target: by default this machine,
    or the target of the table.
    warm_start: logs of earlier runs, directories of them, results, or a Store; ``"store"`` is the store of this user,
    and ``"store:PATH"`` that at PATH. The policy is told those in this space; a cost model with features of programs is
    trained on the others, one with knob features on other shapes in the same space. A store gives the runs in this
    space, so for this target, on the machine that is measured. If the log is there already, what it says that the run
    took from the store counts, and no more.
    on_trial: called as ``on_trial(trial, replayed)`` with every trial of the log, in order. ``replayed`` is True for
    the trials that the log held before; of a complete log, for all. To stop the run, raise an error in it: the log
    keeps the trial, and the error reaches the caller; :func:`~searchlab.log.result.load_log` then gives what there is,
    and the same call goes on. What it returns does not matter: neither True nor False stops the run.
    progress: False for no bar; by default it is shown in a terminal, and in a notebook that has ipywidgets. A console
    of rich is where to show it.
    Raises SearchlabError for bad input, and if ``log`` is of another run. Warns (SearchlabWarning) if ``log`` holds
    more trials than it was to have: the result is then of all.
    """
    checked("batch", batch, Count)
    checked("seed", seed, Natural)
    checked("trials", trials, Count | None)
    checked("stop_after", stop_after, Count | None)
    checked("seconds", seconds, NonNegative | None)
    if seconds == 0:
        raise SearchlabError("option 'seconds' is 0; it must be more than 0")
    budget = budget_of(trials, seconds, stop_after)
    settings = explained(dict(measure), Settings, "measure") if isinstance(measure, Mapping) else measure
    settings = settings or LocalSettings()
    if target is None and not isinstance(space, Space):
        target = settings.default_target()
    resolved = None if target is None else resolve_target(target)
    sources = [warm_start] if isinstance(warm_start, str | Path | Store | Result) else warm_start
    earlier = earlier_runs(sources, settings.statistic)
    run = plan_run(
        Searched.of(space, parse_workload(workload), resolved, settings=settings),
        Strategy.of(policy, cost_model, features), settings,
        seed=seed, batch=batch, trials=budget.trials, log=Path(log), earlier=earlier,
    )  # fmt: skip
    run = replace(run, seconds=budget.seconds, stop_after=budget.stop_after)
    (run,) = as_begun([run])
    check_used(earlier, [run.warm_start])
    warn_of_a_busy_machine([run])
    with shown(progress, [run], lambda *_: on_trial) as on_run:
        complete = execute_one(run, Path(), on_run)
    warn_of_more([run], {run.log: complete})
    warn_of_disagreement([complete])
    return Result(complete, run.space)
