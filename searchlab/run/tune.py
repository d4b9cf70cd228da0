"""One run, from Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from .execute import execute_one, warn_of_a_busy_machine, warn_of_results
from .plan import OnTrial, Searched, Source, Strategy, as_begun, check_used, earlier_runs, plan_run
from .progress import shown
from .study import budget_of


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
    """Search one workload in one space with one policy, and log the run to a file.

    Call it again to resume an interrupted run, or with a larger budget to extend a complete one.

    Args:
        workload: A workload, or its spelling: ``"gemm:512x512x512"``.
        space: A registered name, ``"module:Class"``, a class, a mapping ``{"name": ..., "options": {...}}`` with one of
            these as its name, or a :class:`~searchlab.space.Space`.
        policy: As ``space``, but not an object.
        log: The file of the run.
        trials: The budget of trials. 64 by default, or unlimited if ``seconds`` or ``stop_after`` is given.
        seconds: The budget of charged time: proposing, training, building and running.
        stop_after: Stop after this many trials without a gain of more than 1 % in throughput. The run ends when the
            first of the three is reached, ``seconds`` and ``stop_after`` at the end of a batch.
        batch: The number of configs that the policy is asked for at a time.
        seed: Determines everything that is not a measurement.
        cost_model: For a policy that takes a cost model; as ``policy``. By default the policy's own, or ``xgboost``.
        features: The features of the cost model. By default the policy's own, or ``knob``.
        target: See :func:`resolve_target`. By default this machine, or the target of the table.
        measure: The measurement, as in a study file: ``{"kind": "local", "repeat": 5}``.
        warm_start: Logs of earlier runs, directories of logs, results, or a :class:`Store`; ``"store"`` is the default
            store, ``"store:PATH"`` the one at PATH. The policy learns from the runs in the same space, on the same
            machine if they come from a store. A cost model with features of programs is also trained on all others, one
            with knob features on other shapes in the same space. A resumed run keeps the runs that it started from,
            even if the store has grown.
        on_trial: Called as ``on_trial(trial, replayed)`` for every trial in order, where ``replayed`` is whether the
            log held the trial when the run began. Raise an exception to stop the run: the trial is kept, the exception
            propagates, and the same call resumes the run. The return value is ignored.
        progress: False for no progress bar. By default there is one in a terminal, and in a notebook with ipywidgets; a
            rich console shows it there.

    Returns:
        The run, with all trials in the log.

    Raises:
        SearchlabError: If an argument is invalid, or if ``log`` belongs to another run.

    Warns:
        SearchlabWarning: If ``log`` has more trials than the budget, if other processes keep the machine busy, or if
            the best program took a different time when it was measured again.

    Example:
        >>> import searchlab
        >>> result = searchlab.tune(
        ...     "gemm:32x32x32", space="knob-template", policy="random", log="gemm.jsonl", trials=3
        ... )
        >>> result
        <Result of random on gemm:32x32x32, seed 0: 3 trials>
        >>> result.best.gflops > 0
        True
    """
    checked("batch", batch, Count)
    checked("seed", seed, Natural)
    checked("trials", trials, Count | None)
    checked("stop_after", stop_after, Count | None)
    checked("seconds", seconds, NonNegative | None)
    if seconds == 0:
        raise SearchlabError("option 'seconds' is 0; it must be more than 0")
    settings = explained(dict(measure), Settings, "measure") if isinstance(measure, Mapping) else measure
    settings = settings or LocalSettings()
    if target is None and not isinstance(space, Space):
        target = settings.default_target()
    resolved = None if target is None else resolve_target(target)
    sources = [warm_start] if isinstance(warm_start, str | Path | Store | Result) else warm_start
    earlier = earlier_runs(sources, settings.statistic)
    run = plan_run(
        Searched.of(space, parse_workload(workload), resolved, settings=settings),
        Strategy.of(policy, cost_model, features), settings, budget_of(trials, seconds, stop_after),
        seed=seed, batch=batch, log=Path(log), earlier=earlier,
    )  # fmt: skip
    (run,) = as_begun([run])
    check_used(earlier, [run.warm_start])
    warn_of_a_busy_machine([run])
    with shown(progress, [run], lambda *_: on_trial) as on_run:
        complete = execute_one(run, Path(), on_run)
    warn_of_results([run], {run.log: complete})
    return Result(complete, run.space)
