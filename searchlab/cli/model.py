"""``searchlab model``: the tasks of a model, and tuning all of them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
import typer
from typer import Argument, Option

from ..analysis.words import counted
from ..console import milliseconds
from ..errors import SearchlabError, warn
from ..machine.host import observe_load
from ..model.inputs import (
    bind_weights,
    describe_weights,
    entry_of,
    fix_dimensions,
    inputs_of,
    random_inputs,
    read_arrays,
    write_arrays,
)
from ..model.library import CompiledModel
from ..model.tasks import Task, load_model, tasks_of
from ..model.tune import time_untuned, tune_model
from ..options import Batch, Seed, Trials
from ..run.plan import DEFAULT_SPACES
from ..target import resolve_target
from .terminal import (
    AsJson,
    CostModelName,
    FeaturesName,
    MeasureSpec,
    TargetOrOwn,
    TargetSpec,
    WarmStartSources,
    err,
    interruptible,
    json_object,
    name_and_value,
    number,
    plugin,
    say,
    say_json,
    say_table,
)

if TYPE_CHECKING:
    import tvm

model = typer.Typer(no_args_is_help=True, help="Tune a model: list its tasks, tune all of them, or run the result.")

ModelSpec = Annotated[
    str,
    Argument(
        help="The model: `module:function` or `FILE.py:function`, which returns a Relax module; an ONNX file "
        "(`*.onnx`); or an exported PyTorch program (`*.pt2`).",
        metavar="MODEL",
    ),
]


Shape = Annotated[
    list[str] | None,
    Option("--shape", help="The size of a symbolic dimension. May be repeated.", metavar="NAME=SIZE"),
]
Bind = Annotated[
    Path | None,
    Option(
        "--bind",
        help="A NumPy archive with weights by the names of the model's parameters, which become constants.",
        metavar="FILE.npz",
    ),
]


def read_model(name: str, shape: Sequence[str] | None, bind: Path | None) -> tvm.IRModule:
    """Return the model ``name`` with the sizes in ``shape``, and with the arrays in the file ``bind`` as constants."""
    sizes: dict[str, int] = {}
    for text in shape or ():
        dimension, size = name_and_value(text)
        if type(size) is not int or size < 1:
            raise SearchlabError(f"--shape {text}: the size must be a positive number, as in {dimension}=1")
        sizes[dimension] = size
    module = fix_dimensions(load_model(name), sizes)
    return module if bind is None else bind_weights(module, bind)


MAX_INPUTS = 4
"""The maximum number of a model's inputs, which include weights, to list."""


def time_text(seconds: float) -> str:
    """Format a time in a suitable unit. An infinite time becomes ``none works``."""
    if math.isinf(seconds):
        return "none works"
    return f"{seconds * 1e6:.2f} us" if seconds < 1e-3 else milliseconds(seconds)


@model.command()
def tasks(
    name: ModelSpec,
    target: TargetSpec = "native",
    shape: Shape = None,
    bind: Bind = None,
    with_times: Annotated[
        bool, Option("--time", help="Time each task's untuned program, to show its share of the model's time.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List a model's tasks, which are its distinct functions after fusion, and the spaces with programs for each.

    Those with the most work, or time, come first.

    Below the table, each space that has no programs for some of the tasks says why.
    """
    resolved = resolve_target(target)
    if with_times and resolved.kind != "llvm":
        raise SearchlabError(f"untuned programs for {resolved.kind} bind no threads, so they cannot run; omit --time")
    module = read_model(name, shape, bind)
    model_tasks = tasks_of(module)
    refusals = [task.refusals(resolved) for task in model_tasks]
    seconds = time_untuned(model_tasks, resolved) if with_times else [math.inf] * len(model_tasks)
    totals = [
        task.occurs * cost if math.isfinite(cost) else 0.0 for task, cost in zip(model_tasks, seconds, strict=True)
    ]
    shares = [total / (sum(totals) or 1) for total in totals]
    rows = [TaskRow(*values) for values in zip(model_tasks, refusals, seconds, shares, strict=True)]
    rows.sort(key=lambda row: -row.share)
    if as_json:
        say_json([row.to_json(with_times) for row in rows])
        return
    _say_tasks(rows, with_times)
    try:
        inputs_of(module[entry_of(module)])
    except SearchlabError as error:
        say(f"the model cannot be exported: {error}")


class TaskRow(NamedTuple):
    """A task of a model, with why each space has no programs for it.

    Attributes:
        refusals: The reason of each space, which is empty if the space has programs.
        seconds: The time of the untuned program, infinite if it was not measured.
        share: The task's share of the model's time.
    """

    task: Task
    refusals: dict[str, str]
    seconds: float
    share: float

    @property
    def spaces(self) -> list[str]:
        return [space for space, reason in self.refusals.items() if not reason]

    def to_json(self, with_times: bool) -> dict[str, Any]:
        task = self.task
        times = {"seconds": self.seconds if math.isfinite(self.seconds) else None, "share": self.share}
        return {
            "task": task.name,
            "occurs": task.occurs,
            "flops": task.flops,
            "functions": task.functions,
            "spaces": self.spaces,
            "refusals": {space: reason for space, reason in self.refusals.items() if reason},
            "reason": task.reason,
            **(times if with_times else {}),
        }

    def cells(self, with_times: bool) -> list[object]:
        task = self.task
        times = [time_text(self.seconds), f"{self.share:.1%}"] if self.share else ["", ""]
        spaces = ", ".join(self.spaces) or f"none: {task.reason or 'see below'}"
        return [task.name, task.occurs, f"{task.flops / 1e6:,.1f}", *(times if with_times else []), spaces]


def _say_tasks(rows: Sequence[TaskRow], with_times: bool) -> None:
    columns = ("task", "occurs", "MFLOP", *(("untuned", "share") if with_times else ()), "spaces")
    say_table(columns, [row.cells(with_times) for row in rows], right=("occurs", "MFLOP", "untuned", "share"))
    for text in _describe_refusals(rows):
        say(text)
    tunable = sum(bool(row.spaces) for row in rows)
    recognised_share = sum(row.share for row in rows if row.task.workload is not None and row.task.workload.op != "tir")
    in_time = f"; {recognised_share:.1%} of the measured time is in tasks with a known operator" if with_times else ""
    say(f"{len(rows)} tasks, {tunable} of which can be tuned{in_time}")


def _describe_refusals(rows: Iterable[TaskRow]) -> Iterator[str]:
    """Yield a sentence for each space and each reason why it has no programs; reasons that begin alike are one."""
    groups: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for space, reason in row.refusals.items():
            if reason:
                groups.setdefault((space, reason.partition(row.task.name)[0]), []).append(reason)
    for (space, _), reasons in groups.items():
        yield f"{space} has no programs for {counted(len(reasons), 'task')}: {reasons[0]}"


@model.command()
def run(
    library: Annotated[
        Path, Argument(help="The library that `searchlab model tune` has exported.", metavar="MODEL.so")
    ],
    inputs: Annotated[
        Path | None,
        Option(help="A NumPy archive with the inputs by name [default: random inputs].", metavar="FILE.npz"),
    ] = None,
    outputs: Annotated[
        Path | None, Option(help="The NumPy archive to write the outputs to, as `output_0`, ...", metavar="FILE.npz")
    ] = None,
    seed: Annotated[int, number(Seed, help="The seed of random inputs.")] = 0,
) -> None:
    """Run an exported model, and print the time of one execution. This executes the library's code."""
    compiled_model = CompiledModel(library)
    if inputs is None:
        arrays = list(random_inputs(compiled_model.signature.inputs, np.random.default_rng(seed)))
        inputs_text = ", ".join(map(str, compiled_model.signature.inputs[:MAX_INPUTS]))
        more = len(compiled_model.signature.inputs) - MAX_INPUTS
        say(f"random inputs: {inputs_text}" + (f", and {more} more" if more > 0 else ""))
    else:
        arrays = compiled_model.order_inputs(read_arrays(inputs), inputs)
    results = compiled_model.run(arrays)
    if outputs is not None:
        write_arrays(outputs, {f"output_{index}": array for index, array in enumerate(results)})
        names = ", ".join(f"output_{index}" for index in range(len(results)))
        say(f"{outputs} contains {names}")
    if load := observe_load():
        warn(load)
    seconds = compiled_model.time(arrays)
    say(
        f"one execution takes {time_text(statistics.median(seconds))}, the median of {len(seconds)} readings from "
        f"{time_text(min(seconds))} to {time_text(max(seconds))}"
    )


@model.command()
def tune(
    name: ModelSpec,
    trials: Annotated[int, number(Trials, help="The total number of trials for all tasks.")],
    directory: Annotated[Path, Option("--out", help="The directory for the logs and the tuned model.", metavar="DIR")],
    scheduler: Annotated[
        str, Option(help="A scheduler from `searchlab list schedulers`; with options: `gradient,alpha=0.3`.")
    ] = "gradient",
    space: Annotated[
        list[str] | None,
        Option(
            help="A space from `searchlab list spaces`; with options: `guided-gemm,blocks=knobs`. May be repeated: the "
            "first that has programs for a task is used "
            f"[default: {', '.join(DEFAULT_SPACES)}].",
        ),
    ] = None,
    policy: Annotated[
        str, Option(help="The policy for every task, from `searchlab list policies`; with options: `xgb,epsilon=0.2`.")
    ] = "evolutionary-model",
    batch: Annotated[int, number(Batch, help="The number of trials in a round.")] = 8,
    seed: Annotated[int, number(Seed, help="The seed, which determines everything but the measurements.")] = 0,
    stop_after: Annotated[
        int | None, number(Trials, help="Stop tuning a task after this many trials without a gain of more than 1 %.")
    ] = None,
    target: TargetOrOwn = None,
    cost_model: CostModelName = None,
    features: FeaturesName = None,
    measure: MeasureSpec = None,
    warm_start: WarmStartSources = None,
    shape: Shape = None,
    bind: Bind = None,
    force: Annotated[
        bool, Option("--force", help="Export the tuned model even if it is slower than the untuned one.")
    ] = False,
) -> None:
    """Tune a model's tasks, and export the tuned model. To resume or extend, repeat the command.

    A task keeps its untuned program unless a faster one is found. The result is compared with the untuned model: their
    outputs must agree, and the two are timed in turn. If it is slower by more than the noise, it is not exported, and
    the exit code is 1.
    """
    with interruptible():
        tuned_model = tune_model(
            read_model(name, shape, bind),
            out=directory,
            trials=trials,
            scheduler=plugin(scheduler),
            space=[plugin(text) for text in space or DEFAULT_SPACES],
            policy=plugin(policy),
            batch=batch,
            seed=seed,
            stop_after=stop_after,
            target=target,
            features=features,
            cost_model=cost_model and plugin(cost_model),
            measure=json_object(measure, "--measure"),
            warm_start=warm_start or [],
            force=force,
            progress=err,
        )
    say_table(
        ("task", "occurs", "MFLOP", "GFLOPS", "untuned", "time", "total", "share", "trials", "ended"),
        (
            (
                row["task"],
                row["occurs"],
                f"{row['flops'] / 1e6:,.1f}" if row["flops"] else "",
                f"{row['gflops']:.1f}" if row["gflops"] > 0 else "",
                time_text(row["untuned_seconds"]) if math.isfinite(row["untuned_seconds"]) else "",
                time_text(row["seconds"]),
                time_text(row["total_seconds"]),
                f"{row['share']:.0%}" if row["share"] >= 0 else "",
                row["trials"],
                "yes" if row["ended"] else "",
            )
            for row in tuned_model.to_frame().to_dict("records")
        ),
        right=("occurs", "MFLOP", "GFLOPS", "untuned", "time", "total", "share", "trials"),
    )
    for task, reason in tuned_model.left_out.items():
        say(f"not tuned: {task}: {reason}")
    if text := describe_weights(tuned_model.module):
        say(text)
    if tuned_model.comparison is not None:
        before, after = tuned_model.comparison.seconds
        say(
            f"the model takes {time_text(after)} instead of {time_text(before)}, {before / after:.1f} times as "
            f"fast; its outputs differ by at most {tuned_model.comparison.difference:.1e} of the largest element"
        )
    if tuned_model.library is not None:
        say(f"the tuned model is {tuned_model.library}; run it with searchlab model run {tuned_model.library}")
    if tuned_model.comparison is not None and tuned_model.comparison.is_slower and not force:
        raise typer.Exit(1)
