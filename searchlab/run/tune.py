"""The function that executes a single run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from rich.console import Console

from ..log.result import Result
from ..machine.scratch import ScratchFolder
from ..measure.settings import Settings, settings_for
from ..options import Batch, Seconds, Seed, Trials, checks_arguments
from ..plugins import PluginSpec
from ..space import Space
from ..target import Target, resolve_target
from ..workload import Workload, parse_workload
from .execute import execute_run, warn_of_a_busy_machine, warn_of_doubts, warn_of_extra_trials
from .plan import OnTrial, Run, plan_run
from .progress import show_progress
from .spec import make_budget
from .strategy import DEFAULT_POLICY, SpaceChoice, Strategy, list_default_spaces, make_space_spec
from .warm_start import Source, WarmStart


@checks_arguments
def tune(
    workload: str | Workload | Callable[..., Any],
    space: PluginSpec | Space | None = None,
    *,
    log: str | Path | None = None,
    policy: PluginSpec = DEFAULT_POLICY,
    trials: Trials | None = None,
    seconds: Seconds | None = None,
    stop_after: Trials | None = None,
    batch: Batch = 8,
    seed: Seed = 0,
    cost_model: PluginSpec | None = None,
    features: str | None = None,
    target: str | Mapping[str, Any] | Target | None = None,
    measure: Settings | Mapping[str, Any] | None = None,
    warm_start: Source | Sequence[Source] = (),
    discard: bool = False,
    on_trial: OnTrial | None = None,
    progress: bool | Console = True,
    restrictions: Sequence[str | Callable[..., Any]] = (),
    schedule: Callable[..., Any] | None = None,
) -> Result:
    """Search one workload in one space with one policy, and log the run to a file.

    If you pass ``log``, the same call resumes an interrupted run, or extends a complete run with a larger budget.

    Args:
        workload: A workload, or its name, such as ``"gemm:512x512x512"``. It may also be any function that receives a
            config, ``f(config)``, or knobs, ``f(x, y)``, and returns the seconds that it takes; or :func:`maximize` or
            :func:`minimize` of a function that returns any other number.
        space: A registered name, a ``"module:Class"`` string, a class, or a mapping ``{"name": ..., "options": {...}}``
            whose name is any of these. You can also pass a :class:`~searchlab.space.Space`, or a mapping from the names
            of knobs to lists, ranges or arrays of their values, such as ``{"x": [1, 2, 4], "y": range(8)}``. The
            default is the first of ``guided-conv2d``, ``guided-gemm`` and ``sketch`` that has programs for it.
        log: The path of the run's log. By default, only the result that is returned contains the trials.
        policy: The policy, specified in the same way as ``space``, except that it cannot be an instance.
        trials: The maximum number of trials. The default is 64, or no limit if you pass ``seconds`` or ``stop_after``.
        seconds: The maximum charged time (proposing, training, building and running), in seconds.
        stop_after: Stop after this many trials without a gain of more than 1 % in throughput. The run ends when the
            first of the three limits is reached. ``seconds`` and ``stop_after`` take effect at the end of a batch.
        batch: The number of configs to request from the policy at a time.
        seed: The seed, which determines everything except the measurements.
        cost_model: The cost model, for policies that use one, specified in the same way as ``policy``. The default is
            the policy's own cost model, or ``xgboost`` if it has none.
        features: The features for the cost model. The default is the policy's own features, or ``knob`` if it has none.
        target: The target; see :func:`resolve_target`. The default is this machine, or the table's target.
        measure: How to measure, as in a study file: ``{"repeat": 5}``. The default ``kind`` is ``"function"`` if
            ``workload`` is a function, and ``"local"`` otherwise.
        warm_start: Logs of earlier runs, directories of logs, results, or ``"default"``, with which the run's first
            trial is the default config of its space. The policy learns from earlier runs in the same space; those in a
            directory must also have been measured on the same machine. A cost model with program features is also
            trained on all other runs, and one with knob features on runs for other shapes in the same space. A resumed
            run keeps its original warm start even if the directory has grown.
        discard: Whether to rename a log that this run cannot continue, because it belongs to a different run or because
            code has changed and no longer reproduces it, and to start again. By default, this is an error.
        on_trial: Called as ``on_trial(trial, replayed)`` for every trial in order. ``replayed`` is True if the trial
            was already in the log when the run began. To stop the run, raise an exception: the trial is kept, the
            exception propagates, and the same call resumes the run. The return value is ignored.
        progress: Pass False to hide the progress, which is a bar on standard error or below a notebook's cell, and a
            line from time to time where bars cannot be drawn. Pass a rich console to show it there.
        restrictions: Conditions that all configs satisfy if ``space`` is a mapping from knobs to values: expressions
            such as ``"x * y <= 1024"``, or functions of knobs such as ``lambda x, y: x * y <= 1024``.
        schedule: A function that transforms a schedule of the workload's program, ``schedule(sch, config)`` or
            ``schedule(sch, x, y)``, if ``space`` is a mapping from knobs to values and the workload is not a function.

    Returns:
        The run, with all trials in the log.

    Raises:
        SearchlabError: If an argument is invalid, or ``log`` belongs to a different run.

    Warns:
        SearchlabWarning: If ``log`` contains more trials than the budget, if other processes keep the machine busy, or
            if the best program's time differs when it is measured again.

    Example:
        >>> import searchlab
        >>> result = searchlab.tune(
        ...     "gemm:32x32x32", space="knob-template", policy="random", log="gemm.jsonl", trials=3
        ... )
        >>> result
        <Result of random on gemm:32x32x32, seed 0: 3 trials, best ... GFLOPS>
        >>> result.best.gflops > 0
        True
    """
    spec = make_space_spec(space, restrictions, schedule)
    parsed_workload = parse_workload(workload)
    settings = settings_for(parsed_workload, measure)
    if target is None and not isinstance(space, Space):
        target = settings.default_target()
    resolved_target = None if target is None else resolve_target(target)
    earlier_runs = WarmStart.from_sources(warm_start, settings.statistic)
    specs = list_default_spaces(parsed_workload) if spec is None else [spec]
    with nullcontext() if log else ScratchFolder() as folder:
        run = Run(
            SpaceChoice.from_specs(specs, parsed_workload, resolved_target, settings=settings),
            Strategy.from_specs(policy, cost_model, features),
            seed,
            batch,
            make_budget(trials, seconds, stop_after),
            settings,
            Path(log or f"{folder}/log.jsonl"),
            warm_start=earlier_runs,
            discard=discard,
        )
        run = plan_run(run)
        earlier_runs.check_used([run.warm_start])
        warn_of_a_busy_machine([run])
        with show_progress(progress, [run], lambda *_: on_trial) as on_run:
            complete_log = execute_run(run, on_run)
        warn_of_extra_trials([run], [complete_log])
        warn_of_doubts([complete_log])
    return Result(complete_log, run.space)
