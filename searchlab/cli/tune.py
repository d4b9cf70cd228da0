"""``searchlab tune``: one run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .terminal import (
    CostModelName,
    FeaturesName,
    MeasureSpec,
    PolicyOptions,
    SpaceName,
    TargetOrOwn,
    Workload,
    again,
    interruptible,
    json_object,
    milliseconds,
    out,
    plugin,
)


def tune(
    workload: Workload,
    space: SpaceName,
    policy: Annotated[
        str,
        typer.Option(help="A search policy, as `searchlab list policies` names it; with options: `xgb,epsilon=0.2`."),
    ],
    log: Annotated[
        Path,
        typer.Option(help="The log of the run. If the file exists, the run goes on from it.", metavar="FILE.jsonl"),
    ],
    option: PolicyOptions = None,
    trials: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="The number of trials that the log will have at the end [default: 64, or no limit with --seconds or "
            "--stop-after].",
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(help="Stop after this much charged time in seconds: proposing, training, building and running."),
    ] = None,
    stop_after: Annotated[
        int | None,
        typer.Option(min=1, help="Stop after this many trials without a gain of more than 1 % in throughput."),
    ] = None,
    batch: Annotated[
        int, typer.Option(min=1, help="The number of configs that the policy is asked for at a time.")
    ] = 8,
    seed: Annotated[int, typer.Option(min=0, help="Decides everything but the measurements.")] = 0,
    target: TargetOrOwn = None,
    cost_model: CostModelName = None,
    features: FeaturesName = None,
    warm_start: Annotated[
        list[str] | None,
        typer.Option(
            help="The log of an earlier run to start from, or a directory of logs; `store`, or `store:FILE`, for what "
            "a store holds of this space, target and machine. May be repeated.",
            metavar="LOG|store",
        ),
    ] = None,
    measure: MeasureSpec = None,
) -> None:
    """Search one workload in one space with one policy. To resume, run it again; for more trials, raise the budget."""
    from ..run.tune import tune as tune_run

    with interruptible(again()):
        result = tune_run(
            workload, space=plugin(space), policy=plugin(policy, option), log=log, trials=trials, seconds=seconds,
            stop_after=stop_after, batch=batch, seed=seed, target=target, features=features,
            cost_model=cost_model and plugin(cost_model), warm_start=warm_start or [],
            measure=json_object(measure, "--measure"), progress=out,
        )  # fmt: skip
    done = len(result.trials)
    if ended := result.log.ended:
        out.print(f"the run ended after {done}{f' of {trials}' if trials else ''} trials: {ended.reason}")
    best = result.best
    reached = f"{best.gflops:.1f} {result.log.unit} ({milliseconds(best.seconds)})"
    out.print(f"best of {done}: {reached} with {best.config.to_json()}", soft_wrap=True)
    if best.tied:
        names = ", ".join(str(trial.index) for trial in best.tied)
        out.print(f"it does not win beyond the noise: measured again, trials {names} are as fast", soft_wrap=True)
    if result.space.has_programs:
        out.print(f"see it: searchlab best {log} --show tir", soft_wrap=True)
