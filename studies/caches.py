"""Compares the times of programs with warm and with cold caches with the times of the model in which they are a layer.

    python studies/caches.py [--models FILE.py:FUNCTION ...] [--layers 6] [--programs 50] [--rounds 5] [--json FILE]

For each model (by default ResNet-18 and a block of BERT, both in studies/tutorials/models.py), random programs of the
space ``sketch`` are drawn for each of its tasks. Of ``--layers`` tasks, from the one with the most work to the one
with the least, ``--programs`` programs each are timed: in turn with warm caches, in turn with cold caches, and in
turn within the model. There, the other tasks keep the fastest of ``--others`` programs, and all calls of the task use
the program. A program that took more than ``--slowest`` times as long as the task's fastest is left out, because no
second time is needed to tell that it is slow.

A row shows Kendall's tau between the times in isolation and those within the model with its 95 % interval (bootstrap
over programs), and by how much the model is slower with the program that is fastest in isolation than with the one that
is fastest within the model. The ratio is the fastest program's time in isolation, divided by its time in the model.

Within the model, each call of a program is timed by itself, since the time of the whole model varies by more than a
small layer takes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from scipy.stats import kendalltau
from tvm import relax
from tvm.ir import Op
from tvm.relax.expr_functor import PyExprMutator, mutator

from searchlab.apply.matching import FlatFunction, match_arguments, substitute_function
from searchlab.arrays import Floats
from searchlab.machine.host import available_cores, observe_load, start_tvm_threads
from searchlab.measure.code import compile_program
from searchlab.measure.local import LocalMeasurer, LocalSettings
from searchlab.model.inputs import find_main_function, inputs_of, random_inputs
from searchlab.model.load import load_model
from searchlab.model.tasks import Task, lower, tasks_of
from searchlab.plugins import Plugin
from searchlab.records import Trial
from searchlab.space import SPACES, Space
from searchlab.target import Target, resolve_target

MODELS = Path(__file__).parent / "tutorials" / "models.py"
RESAMPLES = 2000


@dataclass(frozen=True)
class Layer:
    """A task with its programs, the fastest first, as far as their first times show."""

    task: Task
    space: Space
    trials: list[Trial]


def draw(task: Task, measurer: LocalMeasurer, count: int, slowest: float, rng: np.random.Generator) -> Layer:
    """Measure ``count`` random configs of a task, and return those with distinct programs that work."""
    assert task.workload is not None
    space = SPACES.make(Plugin("sketch"), task.workload, measurer.target)
    configs = space.sample_new(rng, count, {})
    trials = [Trial(i, *pair) for i, pair in enumerate(zip(configs, measurer.measure(space, configs), strict=True))]
    distinct = {trial.measurement.program: trial for trial in trials if trial.measurement.failure is None}
    best = min(trial.cost for trial in distinct.values())
    return Layer(
        task, space, sorted((t for t in distinct.values() if t.cost <= slowest * best), key=lambda trial: trial.cost)
    )


def time_in_turn(layer: Layer, cache: str, target: Target, rounds: int) -> Floats:
    """Return the median seconds of each of a layer's programs, in isolation."""
    settings = LocalSettings(cache=cache, sentinel=0, finalists=0, run_timeout=120)  # type: ignore[arg-type]
    with LocalMeasurer(settings, target, {}, available_cores()) as measurer:
        return np.median(measurer.remeasure(layer.space, layer.trials, rounds), axis=1)


@mutator
class PackedCalls(PyExprMutator):  # type: ignore[misc]
    """Replaces calls of functions in the module by calls of global functions with the same names."""

    names: frozenset[str] = frozenset()

    def visit_call_(self, call: Any) -> Any:
        if not call.op.same_as(Op.get("relax.call_tir")) or call.args[0].name_hint not in self.names:
            return super().visit_call_(call)
        return relax.call_dps_packed(
            global_name(call.args[0].name_hint), self.visit_expr(call.args[1]), call.ty_args[0]
        )


def global_name(function: str) -> str:
    return f"searchlab.caches.{function}"


class Model:
    """A compiled model, the programs of whose tasks can be exchanged."""

    def __init__(self, module: tvm.IRModule, layers: Sequence[Layer], target: Target, seed: int) -> None:
        self.module, self.target = module, target
        self.main_function = find_main_function(module)
        arrays = random_inputs(inputs_of(module), np.random.default_rng(seed))
        self.inputs = [tvm.runtime.tensor(array) for array in arrays]
        calls = PackedCalls(module)
        calls.names = frozenset(name for layer in layers for name in layer.task.functions)
        packed = module.clone()
        packed.update_func(packed.get_global_var(self.main_function), calls.visit_expr(module[self.main_function]))
        self._programs: dict[str, Callable[..., Any]] = {}
        self._seconds: dict[str, list[float]] = {name: [] for name in calls.names}
        for layer in layers:
            self._programs |= self.programs(layer, layer.trials[0])
        for name in calls.names:
            tvm.register_global_func(global_name(name), partial(self._call, name), override=True)
        executable = tvm.compile(relax.transform.DeadCodeElimination()(packed), target=target.tvm)
        self._machine = relax.VirtualMachine(executable, tvm.cpu())

    def programs(self, layer: Layer, trial: Trial) -> dict[str, Callable[..., Any]]:
        """Return a trial's program in the place of each of the layer's functions, compiled, by their names."""
        assert layer.task.workload is not None
        program = layer.space.schedule(trial.config).mod["main"]
        reference = FlatFunction(layer.task.workload.prim_func())
        compiled = {}
        for name in layer.task.functions:
            function = FlatFunction(self.module[name])
            order = match_arguments(function, reference)
            assert order is not None
            main = substitute_function(function.func, program, order, {}).with_attr("global_symbol", "main")
            compiled[name] = compile_program(tvm.IRModule({"main": main}), self.target).jit()["main"]
        return compiled

    def _call(self, name: str, *arguments: Any) -> None:
        start = time.perf_counter()
        self._programs[name](*arguments)
        self._seconds[name].append(time.perf_counter() - start)

    def run(self) -> float:
        """Return the seconds of an execution."""
        start = time.perf_counter()
        self._machine[self.main_function](*self.inputs)
        return time.perf_counter() - start

    def time_in_turn(self, layer: Layer, rounds: int) -> tuple[Floats, float]:
        """Return the median time of each of a layer's programs within the model, and the fastest time of the model."""
        choices = [self.programs(layer, trial) for trial in layer.trials]
        readings: list[list[float]] = [[] for _ in choices]
        model = []
        for first in range(rounds):
            for i in range(len(choices)):
                index = (first + i) % len(choices)
                self._programs |= choices[index]
                self.run()  # maps memory
                for name in choices[index]:
                    self._seconds[name].clear()
                model.append(self.run())
                readings[index] += (second for name in choices[index] for second in self._seconds[name])
        self._programs |= choices[0]
        return np.array([statistics.median(values) for values in readings]), min(model)


def tau_interval(times: Floats, model: Floats, rng: np.random.Generator) -> tuple[float, float, float]:
    samples = rng.integers(len(times), size=(RESAMPLES, len(times)))
    resampled = [kendalltau(times[sample], model[sample]).statistic for sample in samples]
    low, high = np.nanpercentile(resampled, [2.5, 97.5])
    return float(kendalltau(times, model).statistic), float(low), float(high)


def study(name: str, options: argparse.Namespace, target: Target) -> list[dict[str, Any]]:
    """Return a row for each compared layer of a model."""
    rng = np.random.default_rng(options.seed)
    module = lower(load_model(name))
    tasks = [task for task in tasks_of(module) if "sketch" in task.spaces(target)]
    compared_names = {
        tasks[round(i)].name for i in np.linspace(0, sum(task.flops > 0 for task in tasks) - 1, options.layers).tolist()
    }
    settings = LocalSettings(repeat=1, sentinel=0, finalists=0, run_timeout=60)
    with LocalMeasurer(settings, target, {}, available_cores()) as measurer:
        layers = [
            draw(
                task,
                measurer,
                options.programs if task.name in compared_names else options.others,
                options.slowest,
                rng,
            )
            for task in tasks
        ]
    model = Model(module, layers, target, options.seed)
    rows = []
    for layer in layers:
        if layer.task.name not in compared_names:
            continue
        times = {cache: time_in_turn(layer, cache, target, options.rounds) for cache in ("warm", "cold")}
        in_model, model_seconds = model.time_in_turn(layer, options.rounds)
        row = {
            "model": name.rpartition(":")[2],
            "layer": layer.task.name,
            "programs": len(in_model),
            "layer_ms": 1e3 * in_model.min(),
            "model_ms": 1e3 * model_seconds,
        }
        for cache, seconds in times.items():
            fastest = int(seconds.argmin())
            row |= {
                f"{cache}_tau": tau_interval(seconds, in_model, rng),
                f"{cache}_loss": float(layer.task.occurs * (in_model[fastest] - in_model.min()) / model_seconds),
                f"{cache}_ratio": float(seconds[fastest] / in_model[fastest]),
            }
        rows.append(row)
        show(row)
    return rows


def show(row: dict[str, Any]) -> None:
    cells = [
        f"{row['model']:12} {row['layer'][:44]:44} {row['programs']:8} {row['layer_ms']:8.3f} {row['model_ms']:8.2f}"
    ]
    for cache in ("warm", "cold"):
        tau, low, high = row[f"{cache}_tau"]
        cells.append(
            f"{tau:5.2f} [{low:5.2f}, {high:5.2f}] {100 * row[f'{cache}_loss']:6.1f} % {row[f'{cache}_ratio']:6.2f}"
        )
    print("  ".join(cells), flush=True)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    models = [f"{MODELS}:resnet18", f"{MODELS}:transformer"]
    parser.add_argument("--models", nargs="+", default=models, metavar="FILE.py:FUNCTION", help="models to run")
    parser.add_argument("--layers", type=int, default=6, help="number of layers of each model (6)")
    parser.add_argument("--programs", type=int, default=50, help="number of programs of each of these layers (50)")
    parser.add_argument("--others", type=int, default=16, help="number of programs of each other layer (16)")
    parser.add_argument("--slowest", type=float, default=20, help="largest ratio of a program's time to the best (20)")
    parser.add_argument("--rounds", type=int, default=5, help="number of times that each program is timed (5)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, metavar="FILE", help="file to which the rows are also written")
    options = parser.parse_args(argv)
    if load := observe_load():
        print(f"warning: {load}", file=sys.stderr)
    os.environ["TVM_NUM_THREADS"] = str(available_cores())
    start_tvm_threads()
    target = resolve_target("native")
    start = time.perf_counter()
    sides = "".join(f"  {f'{cache}: tau':20} {'loss':>8} {'ratio':>6}" for cache in ("warm", "cold"))
    print(f"{'model':12} {'layer':44} programs layer ms model ms{sides}")
    rows = [row for name in options.models for row in study(name, options, target)]
    print(f"{(time.perf_counter() - start) / 60:.1f} minutes")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
