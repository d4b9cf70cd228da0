"""Times the extraction of program features, in configs per second, compared with MetaSchedule's own search.

    python studies/benchmarks/features.py [--configs 512] [--features per-store ...] [--workers N] [--json FILE]

Configs of a 512^3 GEMM are scheduled and their features extracted, either in this process (``one process``) or in the
build workers (``processes``), which are started before timing.

``metaschedule`` is one round of TVM's own evolutionary search with 512 programs and four generations: it samples the
first generation, mutates, postprocesses, extracts features, and predicts 2,560 programs with a trained cost model. It
requires a space whose knobs are TVM's own samples. The policy ``metaschedule`` runs it with ``1 thread``.

CPU seconds include all processes; wall seconds depend on the machine's load.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from searchlab.costmodel.features import FEATURES, make_features
from searchlab.machine.host import available_cores
from searchlab.measure.building import BuildPool
from searchlab.metaschedule import TracedSpace
from searchlab.plugins import Plugin
from searchlab.space import SPACES, Space
from searchlab.target import resolve_target
from searchlab.workload import parse_workload

WORKLOAD = "gemm:512x512x512"
SPACE_NAMES = ("sketch", "knob-template")
POPULATION, GENERATIONS, TRAINED_ON = 512, 4, 64
ROUND = 2560
"""The number of programs that one round of the original searches predicts."""


def cpu_seconds() -> float:
    """Return the CPU seconds that this process and its children have used."""
    this = psutil.Process()
    return sum(sum(process.cpu_times()[:2]) for process in (this, *this.children()))


@contextmanager
def record_times(row: dict[str, Any]) -> Iterator[None]:
    cpu, wall = cpu_seconds(), time.perf_counter()
    yield
    row |= {"wall": time.perf_counter() - wall, "cpu": cpu_seconds() - cpu}


def measure(space: Space, name: str, features: str, count: int, pool: BuildPool) -> Iterator[dict[str, Any]]:
    """Yield a row for each way to extract ``features`` from the same random configs."""
    configs = space.sample_new(np.random.default_rng(0), count, ())
    extractor = make_features(features, space)
    extractor(configs[:1])  # imports
    row: dict[str, Any] = {"space": name, "features": features, "route": "one process", "programs": len(configs)}
    with record_times(row):
        make_features(features, space)(configs)
    yield row
    pool.set_up_processes(pool.make_set_up_message(space), pool.workers)
    pool.extract(space, features, configs[:32])  # imports
    row = {**row, "route": f"{pool.workers} processes"}
    with record_times(row):
        pool.extract(space, features, configs)
    yield row


def metaschedule(space: Space, name: str, threads: int) -> dict[str, Any]:
    """Time one round of TVM's search, from sampling to the last prediction."""
    from tvm.ir.utils import derived_object
    from tvm.s_tir import meta_schedule as ms
    from tvm.s_tir.meta_schedule import _ffi_api
    from tvm.s_tir.meta_schedule.cost_model.xgb_model import XGBConfig, XGBModel

    assert isinstance(space, TracedSpace)
    target, postprocs = space.postprocessing()
    schedules = [space.draw(seed) for seed in range(1, TRAINED_ON + 1)]
    model = XGBModel(config=XGBConfig(nthread=threads), num_warmup_samples=0)
    made_up = np.random.default_rng(0).random(TRAINED_ON) + 0.5
    strategy = ms.search_strategy.EvolutionarySearch(
        population_size=POPULATION, genetic_num_iters=GENERATIONS, genetic_mutate_prob=0.85, genetic_max_fail_count=10
    )
    generator = ms.space_generator.PostOrderApply(
        sch_rules=[], postprocs=list(postprocs), mutator_probs=ms.mutator.Mutator.create(space.target.kind)
    )
    context = _ffi_api.TuneContext(
        space.workload.module, target, generator, strategy, "main", threads, 1, _discard_message
    )
    _ffi_api.TuneContextInitialize(context)
    candidates = [ms.MeasureCandidate(schedule, []) for schedule in schedules]
    model.update(context, candidates, [ms.runner.RunnerResult([float(seconds)], None) for seconds in made_up])
    predicted = 0

    @derived_object
    class Counting(ms.cost_model.PyCostModel):  # type: ignore[misc]
        def predict(self, context: Any, candidates: Any) -> Any:
            nonlocal predicted
            predicted += len(candidates)
            return model.predict(context, candidates)

    row: dict[str, Any] = {"space": name, "features": "per-store", "route": f"metaschedule, {threads} thread(s)"}
    with record_times(row):
        population = [space.draw(seed) for seed in range(1, POPULATION + 1)]
        strategy.pre_tuning(64, 64, population[:1], ms.database.MemoryDatabase(), Counting())
        _ffi_api.SearchStrategyEvolutionarySearchEvolveWithCostModel(strategy, population, 64)
    return row | {"programs": predicted}


def _discard_message(*_: object) -> None:
    """Discard TVM's log messages."""


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    of_programs = [name for name, kind in FEATURES.items() if kind.builds_programs]
    parser.add_argument("--features", nargs="+", choices=of_programs, default=of_programs, metavar="F")
    parser.add_argument("--configs", type=int, default=512, metavar="N")
    parser.add_argument("--workers", type=int, default=available_cores(), metavar="N")
    parser.add_argument("--json", type=Path, metavar="FILE", help="file to which the rows are also written")
    options = parser.parse_args(argv)
    target = resolve_target("native")
    rows: list[dict[str, Any]] = []

    def show(row: dict[str, Any]) -> None:
        rows.append(row)
        rate = row["programs"] / row["wall"]
        print(
            f"{row['space']:14} {row['features']:9} {row['route']:26} {row['programs']:8} {row['wall']:8.2f} "
            f"{row['cpu']:8.2f} {rate:10.0f} {1e3 * row['cpu'] / row['programs']:12.2f} {ROUND / rate:11.1f}",
            flush=True,
        )

    print(
        f"{'space':14} {'features':9} {'route':26} {'programs':>8} {'wall s':>8} {'CPU s':>8} {'a second':>10} "
        f"{'CPU ms each':>12} {ROUND:>7} in s"
    )
    pool = BuildPool(options.workers, build_timeout=60.0, memory_limit_mb=0)
    try:
        for name in SPACE_NAMES:
            space = SPACES.make(Plugin(name), parse_workload(WORKLOAD), target)
            for features in options.features:
                for row in measure(space, name, features, options.configs, pool):
                    show(row)
            if isinstance(space, TracedSpace):
                for threads in sorted({1, options.workers}):
                    show(metaschedule(space, name, threads))
    finally:
        pool.close()
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
