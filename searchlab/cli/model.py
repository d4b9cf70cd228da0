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
from ..console import format_execution_time
from ..errors import SearchlabError, warn
from ..machine.host import observe_load
from ..model.inputs import (
    bind_weights,
    describe_weights,
    fix_dimensions,
    inputs_of,
    random_inputs,
    read_arrays,
    write_arrays,
)
from ..model.library import CompiledModel
from ..model.load import load_model
from ..model.tasks import Task, tasks_of
from ..model.tune import TunedModel, time_untuned, tune_model
from ..options import Seed, Trials
from ..plugins import Plugin
from ..run.strategy import DEFAULT_SPACES
from ..target import resolve_target
from . import parameters
from .parameters import number_option, parse_name_and_value, parse_plugin, plugin_option
from .terminal import err, interruptible, say, say_json, say_table

if TYPE_CHECKING:
    import tvm

model = typer.Typer(no_args_is_help=True, help="Tune a model: list its tasks, tune all of them, or run the result.")

ModelReference = Annotated[
    str,
    Argument(
        help="The model: `module:function` or `FILE.py:function`, which returns a Relax module; an ONNX file "
        "(`*.onnx`); or an exported PyTorch program (`*.pt2`).",
        metavar="MODEL",
    ),
]


ShapeOption = Annotated[
    list[str] | None,
    Option("--shape", help="The size of a symbolic dimension. May be repeated.", metavar="NAME=SIZE"),
]
BindOption = Annotated[
    Path | None,
    Option(
        "--bind",
        help="A NumPy archive with weights by the names of the model's parameters, which become constants.",
        metavar="FILE.npz",
    ),
]


def read_model(reference: str, shape: Sequence[str] | None, bind: Path | None) -> tvm.IRModule:
    """Return a model with the sizes in ``shape``, and with the arrays in the file ``bind`` as constants."""
    sizes_by_dimension: dict[str, int] = {}
    for text in shape or ():
        dimension, size = parse_name_and_value(text)
        if type(size) is not int or size < 1:
            raise SearchlabError(f"--shape {text}: the size must be a positive number, as in {dimension}=1")
        sizes_by_dimension[dimension] = size
    module = fix_dimensions(load_model(reference), sizes_by_dimension)
    return module if bind is None else bind_weights(module, bind)


MAX_LISTED_INPUTS = 4
"""The maximum number of a model's inputs, which include weights, to list."""


def format_time(seconds: float) -> str:
    """Format a time in a suitable unit. An infinite time becomes ``none works``."""
    if math.isinf(seconds):
        return "none works"
    return f"{seconds * 1e6:.2f} us" if seconds < 1e-3 else format_execution_time(seconds)


@model.command()
def tasks(
    reference: ModelReference,
    target: parameters.TargetSpec = "native",
    shape: ShapeOption = None,
    bind: BindOption = None,
    with_times: Annotated[
        bool, Option("--time", help="Time each task's untuned program, to show its share of the model's time.")
    ] = False,
    as_json: parameters.AsJson = False,
) -> None:
    """List a model's tasks, which are its distinct functions after fusion, and the spaces with programs for each.

    Those with the most work, or time, come first.

    Below the table, each space that has no programs for some of the tasks says why.
    """
    resolved_target = resolve_target(target)
    if with_times and resolved_target.kind != "llvm":
        raise SearchlabError(
            f"untuned programs for {resolved_target.kind} bind no threads, so they cannot run; omit --time"
        )
    module = read_model(reference, shape, bind)
    model_tasks = tasks_of(module)
    untuned_costs = time_untuned(model_tasks, resolved_target) if with_times else {}
    costs = {task: untuned_costs.get(task.name, math.inf) for task in model_tasks}
    model_seconds = sum(task.occurs * cost for task, cost in costs.items() if math.isfinite(cost))
    rows = [
        TaskRow(
            task, task.refusals(resolved_target), cost, task.occurs * cost / model_seconds if math.isfinite(cost) else 0
        )
        for task, cost in costs.items()
    ]
    rows.sort(key=lambda row: -row.share)
    if as_json:
        say_json([row.to_json(with_times) for row in rows])
        return
    _say_tasks(rows, with_times)
    try:
        inputs_of(module)
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
        time_fields = {"seconds": self.seconds if math.isfinite(self.seconds) else None, "share": self.share}
        return {
            "task": task.name,
            "occurs": task.occurs,
            "flops": task.flops,
            "functions": task.functions,
            "spaces": self.spaces,
            "refusals": {space: reason for space, reason in self.refusals.items() if reason},
            "reason": task.reason,
            **(time_fields if with_times else {}),
        }

    def format_cells(self, with_times: bool) -> list[object]:
        task = self.task
        time_cells = [format_time(self.seconds), f"{self.share:.1%}"] if self.share else ["", ""]
        spaces = ", ".join(self.spaces) or f"none: {task.reason or 'see below'}"
        return [task.name, task.occurs, f"{task.flops / 1e6:,.1f}", *(time_cells if with_times else []), spaces]


def _say_tasks(rows: Sequence[TaskRow], with_times: bool) -> None:
    columns = ("task", "occurs", "MFLOP", *(("untuned", "share") if with_times else ()), "spaces")
    say_table(
        columns, [row.format_cells(with_times) for row in rows], right_aligned=("occurs", "MFLOP", "untuned", "share")
    )
    for text in _describe_refusals(rows):
        say(text)
    tunable_count = sum(bool(row.spaces) for row in rows)
    recognised_share = sum(row.share for row in rows if row.task.workload is not None and row.task.workload.op != "tir")
    time_share_text = ""
    if with_times:
        time_share_text = f"; {recognised_share:.1%} of the measured time is in tasks with a known operator"
    say(f"{len(rows)} tasks, {tunable_count} of which can be tuned{time_share_text}")


def _describe_refusals(rows: Iterable[TaskRow]) -> Iterator[str]:
    """Yield a sentence for each space and each reason why it has no programs; reasons that begin alike are one."""
    reasons_by_group: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for space, reason in row.refusals.items():
            if reason:
                reasons_by_group.setdefault((space, reason.partition(row.task.name)[0]), []).append(reason)
    for (space, _), reasons in reasons_by_group.items():
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
    seed: Annotated[int, number_option(Seed, help="The seed of random inputs.")] = 0,
) -> None:
    """Run an exported model, and print the time of one execution. This executes the library's code."""
    compiled_model = CompiledModel(library)
    if inputs is None:
        arrays = list(random_inputs(compiled_model.signature.inputs, np.random.default_rng(seed)))
        inputs_text = ", ".join(map(str, compiled_model.signature.inputs[:MAX_LISTED_INPUTS]))
        omitted_count = len(compiled_model.signature.inputs) - MAX_LISTED_INPUTS
        say(f"random inputs: {inputs_text}" + (f", and {omitted_count} more" if omitted_count > 0 else ""))
    else:
        arrays = compiled_model.order_inputs(read_arrays(inputs), inputs)
    results = compiled_model.run(arrays)
    if outputs is not None:
        write_arrays(outputs, {f"output_{index}": array for index, array in enumerate(results)})
        output_names = ", ".join(f"output_{index}" for index in range(len(results)))
        say(f"{outputs} contains {output_names}")
    if load := observe_load():
        warn(load)
    seconds = compiled_model.time(arrays)
    say(
        f"one execution takes {format_time(statistics.median(seconds))}, the median of {len(seconds)} readings from "
        f"{format_time(min(seconds))} to {format_time(max(seconds))}"
    )


@model.command()
def tune(
    reference: ModelReference,
    trials: Annotated[int, number_option(Trials, help="The total number of trials for all tasks.")],
    out_dir: Annotated[Path, Option("--out", help="The directory for the logs and the tuned model.", metavar="DIR")],
    scheduler: Annotated[
        str, Option(help="A scheduler from `searchlab list schedulers`; with options: `gradient,alpha=0.3`.")
    ] = "gradient",
    space: Annotated[
        list[Plugin] | None,
        plugin_option(
            help="A space from `searchlab list spaces`; with options: `guided-gemm,blocks=knobs`. May be repeated: the "
            f"first that has programs for a task is used [default: {', '.join(DEFAULT_SPACES)}].",
        ),
    ] = None,
    policy: parameters.PolicyName = "evolutionary-model",
    batch: parameters.BatchSize = 8,
    seed: parameters.RunSeed = 0,
    stop_after: parameters.StopAfter = None,
    target: parameters.TargetOrOwn = None,
    cost_model: parameters.CostModelSpec = None,
    features: parameters.FeaturesName = None,
    measure: parameters.MeasureSpec = None,
    warm_start: parameters.WarmStartSources = None,
    shape: ShapeOption = None,
    bind: BindOption = None,
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
            read_model(reference, shape, bind),
            out=out_dir,
            trials=trials,
            scheduler=parse_plugin(scheduler),
            space=space or DEFAULT_SPACES,
            policy=parse_plugin(policy),
            batch=batch,
            seed=seed,
            stop_after=stop_after,
            target=target,
            features=features,
            cost_model=cost_model,
            measure=measure,
            warm_start=warm_start or [],
            force=force,
            progress=err,
        )
    _say_tuned_model(tuned_model)
    if tuned_model.comparison is not None and tuned_model.comparison.is_slower and not force:
        raise typer.Exit(1)


def _say_tuned_model(tuned_model: TunedModel) -> None:
    """Print a table of the tasks, what was not tuned, and how much faster the model is."""
    say_table(
        ("task", "occurs", "MFLOP", "GFLOPS", "untuned", "time", "total", "share", "trials", "ended"),
        (
            (
                row["task"],
                row["occurs"],
                f"{row['flops'] / 1e6:,.1f}" if row["flops"] else "",
                f"{row['gflops']:.1f}" if row["gflops"] > 0 else "",
                format_time(row["untuned_seconds"]) if math.isfinite(row["untuned_seconds"]) else "",
                format_time(row["seconds"]),
                format_time(row["total_seconds"]),
                f"{row['share']:.0%}" if row["share"] >= 0 else "",
                row["trials"],
                "yes" if row["ended"] else "",
            )
            for row in tuned_model.to_frame().to_dict("records")
        ),
        right_aligned=("occurs", "MFLOP", "GFLOPS", "untuned", "time", "total", "share", "trials"),
    )
    for task, reason in tuned_model.left_out.items():
        say(f"not tuned: {task}: {reason}")
    if text := describe_weights(tuned_model.module):
        say(text)
    if tuned_model.comparison is not None:
        before, after = tuned_model.comparison.seconds
        say(
            f"the model takes {format_time(after)} instead of {format_time(before)}, {before / after:.1f} times as "
            f"fast; its outputs differ by at most {tuned_model.comparison.difference:.1e} of the largest element"
        )
    if tuned_model.library is not None:
        say(f"the tuned model is {tuned_model.library}; run it with searchlab model run {tuned_model.library}")
