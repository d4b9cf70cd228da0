"""TVM's own evolutionary search as a policy, for comparison on equal terms.

Source: Shao et al., "Tensor Program Optimization with Probabilistic Programs" (NeurIPS 2022), section 4;
``evolutionary_search.cc`` and ``xgb_model.py`` in ``tvm.s_tir.meta_schedule``, with the same defaults.

TVM's code samples, mutates, postprocesses and evolves the programs. It also provides the cost model, with its features
and its ``XGBConfig`` (depth 10, gamma 0.001, min_child_weight 0, eta 0.2). This module only selects the best measured
programs and the batch. TVM's search remembers its proposals. Here, each batch starts a new search from the trials told,
and requests as many extra programs as are already known. The result is the same, but runs can be resumed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from searchlab.errors import InvalidConfig, UnsupportedSpace
from searchlab.metaschedule import TracedSpace, tune_context
from searchlab.options import Count, Natural, UnitInterval
from searchlab.policy import NeverTwice, Origin
from searchlab.records import Trial
from searchlab.space import Config, Space

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

MIN_UNMEASURED = 50
"""The minimum number of random programs in a population (``init_min_unmeasured``)."""

MAX_FRUITLESS = 5
"""The number of rounds without a new random program after which sampling stops (``max_fail_count``)."""

SEED_RANGE = 1, 2**31 - 1
"""The half-open range of valid random states in TVM."""


class MetaSchedule(NeverTwice):
    """MetaSchedule's own evolutionary search and cost model, called through TVM.

    This policy requires a space whose knobs are TVM's sampling decisions (``sketch`` or ``trace``) and raises
    UnsupportedSpace for any other. If TVM changes more of a program's trace than its sampling decisions, the program
    belongs to no space and is omitted. In ``trace``, the program that the config produces is measured, even if TVM's
    mutated trace yields a different one. MetaSchedule measures 64 programs per round, so use ``batch = 64``.

    Args:
        population: The number of programs in a generation.
        generations: The number of generations to breed for each batch.
        measured_ratio: The maximum fraction of the first generation to fill with the best measured programs; the rest
            is random.
        mutation_prob: The probability of mutating each program of the next generation.
        retries: The maximum number of times to retry a mutation that yields no valid program.
        epsilon: The fraction of the batch that is drawn from the first generation, rounded down.
        n_startup: The number of programs to measure before the cost model is used; until then, scores are random.
    """

    origin = Origin(
        "MetaSchedule's EvolutionarySearch and XGBModel",
        "TVM 0.27",
        "tvm.s_tir.meta_schedule: search_strategy/evolutionary_search, cost_model/xgb_model, mutator",
        "original",
        (
            "the cost model is trained before every batch (adaptive_training=False); TVM waits for 20 % more trials",
            "one thread; random scores are drawn with the policy's seed",
            "two programs are the same if their configs are; TVM compares modules",
            "programs that are in no searchlab space are omitted",
        ),
    )

    def __init__(
        self,
        space: Space,
        *,
        seed: int,
        population: Count = 512,
        generations: Natural = 4,
        measured_ratio: UnitInterval = 0.2,
        mutation_prob: UnitInterval = 0.85,
        retries: Natural = 10,
        epsilon: UnitInterval = 0.05,
        n_startup: Count = 100,
    ) -> None:
        super().__init__(space, seed=seed)
        if not isinstance(space, TracedSpace):
            raise UnsupportedSpace(
                f"policy 'metaschedule' cannot search {type(space).__name__}: TVM mutates sampling decisions, but "
                "the knobs of this space are of another kind; use the sketch or trace space, or the policy "
                "evolutionary-model"
            )
        from tvm.s_tir.meta_schedule.cost_model import XGBModel
        from tvm.s_tir.meta_schedule.cost_model.xgb_model import XGBConfig

        self.traced_space = space
        self.population = population
        self.generations = generations
        self.measured_ratio = measured_ratio
        self.mutation_prob = mutation_prob
        self.retries = retries
        self.epsilon = epsilon
        self.n_startup = n_startup
        self._measured_programs: list[tuple[Trial, Schedule]] = []
        # As read back from the programs; the configs that were told may differ.
        self._measured_configs: dict[Config, None] = {}
        self._trained_count = 0
        # XGBModel must not warm up: it would draw scores from numpy's global random stream.
        self._model = XGBModel(config=XGBConfig(nthread=1), num_warmup_samples=0, adaptive_training=False)

    def tell(self, trials: Sequence[Trial]) -> None:
        super().tell(trials)
        for trial in trials:
            try:
                schedule = self.space.schedule(trial.config)
                self._measured_configs[self.traced_space.config_of(schedule)] = None
            except InvalidConfig:
                continue
            self._measured_programs.append((trial, schedule))

    def propose(self, n: int, rng: np.random.Generator) -> Iterator[Config]:
        if len(self._measured_programs) >= max(self.n_startup, self._trained_count + 1):
            self._train(self._measured_programs[self._trained_count :])
            self._trained_count = len(self._measured_programs)
        fastest = self._select_fastest(int(self.population * self.measured_ratio))
        sample_count = self.population - len(fastest)
        samples = self._draw_programs(sample_count, rng)
        if len(samples) < min(sample_count, MIN_UNMEASURED):
            return
        evolved = self._evolve([*fastest, *samples], n + len(self.seen), rng)
        random_count = int(n * self.epsilon)
        yield from islice(self._generate_new_configs(evolved), n - random_count)
        yield from islice(self._generate_new_configs(samples[i] for i in rng.permutation(len(samples))), random_count)

    def _select_fastest(self, n: int) -> list[Schedule]:
        """Return up to ``n`` of the fastest measured programs, best first."""
        ranked = sorted(self._measured_programs, key=lambda program: program[0].cost)
        return [schedule for trial, schedule in ranked[:n] if np.isfinite(trial.cost)]

    def _draw_programs(self, n: int, rng: np.random.Generator) -> list[Schedule]:
        """Return up to ``n`` random programs (``SampleInitPopulation``)."""
        schedules: list[Schedule] = []
        fruitless_rounds = 0
        while len(schedules) < min(n, MIN_UNMEASURED) and fruitless_rounds < MAX_FRUITLESS:
            previous_count = len(schedules)
            for seed in rng.integers(*SEED_RANGE, size=n).tolist():
                try:
                    schedules.append(self.traced_space.draw(seed))
                except InvalidConfig:
                    continue
            fruitless_rounds += len(schedules) == previous_count
        return schedules[:n]  # TVM's evolution accepts at most one population

    def _evolve(self, population: Sequence[Schedule], n: int, rng: np.random.Generator) -> Sequence[Schedule]:
        """Evolve ``population`` and return the ``n`` programs with the highest scores (``EvolveWithCostModel``)."""
        from tvm.s_tir.meta_schedule import _ffi_api
        from tvm.s_tir.meta_schedule.database import MemoryDatabase
        from tvm.s_tir.meta_schedule.mutator import Mutator
        from tvm.s_tir.meta_schedule.search_strategy import EvolutionarySearch
        from tvm.s_tir.meta_schedule.space_generator import PostOrderApply

        target, postprocs = self.traced_space.postprocessing()
        strategy = EvolutionarySearch(
            population_size=self.population,
            genetic_num_iters=self.generations,
            genetic_mutate_prob=self.mutation_prob,
            genetic_max_fail_count=self.retries,
        )
        generator = PostOrderApply(  # passes postprocs and mutators to the strategy, and generates nothing itself
            sch_rules=[],
            postprocs=[postproc.clone() for postproc in postprocs],
            mutator_probs=Mutator.create(self.space.target.kind),
        )
        seed = int(rng.integers(*SEED_RANGE))
        context = tune_context(self.space.workload.module, target, generator, seed, strategy, _discard_message)
        model = self._model if self._trained_count else _make_random_model(rng)
        strategy.pre_tuning(n, n, population[:1], MemoryDatabase(), model)
        evolved = _ffi_api.SearchStrategyEvolutionarySearchEvolveWithCostModel(strategy, population, n)
        del context  # kept alive until here, because the strategy does not own a reference to it
        return list(evolved)

    def _generate_new_configs(self, schedules: Iterable[Schedule]) -> Iterator[Config]:
        """Yield the configs of those programs that are in the space and have been neither proposed nor measured."""
        for schedule in schedules:
            try:
                config = self.traced_space.config_of(schedule)
            except InvalidConfig:
                continue
            if config not in self.seen and config not in self._measured_configs:
                yield config

    def _train(self, programs: Sequence[tuple[Trial, Schedule]]) -> None:
        """Update the cost model with ``programs``."""
        from tvm.s_tir import meta_schedule as ms

        context = tune_context(self.space.workload.module, self.traced_space.postprocessing()[0])
        candidates = [ms.MeasureCandidate(schedule, []) for _, schedule in programs]
        results = [
            ms.runner.RunnerResult(list(trial.measurement.seconds), None)
            if np.isfinite(trial.cost)
            else ms.runner.RunnerResult(None, trial.measurement.message)
            for trial, _ in programs
        ]
        self._model.update(context, candidates, results)


def _make_random_model(rng: np.random.Generator) -> Any:
    """Return a TVM cost model with random scores."""
    from tvm.ir.utils import derived_object
    from tvm.s_tir.meta_schedule.cost_model import PyCostModel

    @derived_object
    class RandomScores(PyCostModel):  # type: ignore[misc]
        def predict(self, context: Any, candidates: Any) -> Any:
            return rng.random(len(candidates))

    return RandomScores()


def _discard_message(*_: object) -> None:
    """Discard TVM's log messages, which would otherwise go to standard error."""
