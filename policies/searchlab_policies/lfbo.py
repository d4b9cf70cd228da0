"""Likelihood-free Bayesian optimisation with pattern search, from Helion's autotuner.

Sources: Song et al., "A General Recipe for Likelihood-free Bayesian Optimization" (ICML 2022), whose weighted
classification with utility ``max(tau - y, 0)`` approximates the expected improvement; ``LFBOPatternSearch`` in
``helion/autotuner/surrogate_pattern_search.py`` of pytorch/helion, at commit ef091f41 (August 2026). Helion's default
is now its successor, ``LFBOTreeSearch``, the policy ``lfbo-tree``. Its authors found four faults in a study of 468 runs
and corrected them in pull request 3518; pull request 3524 added a final descent.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations, zip_longest
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np

from searchlab.arrays import Floats
from searchlab.options import Between, Count, Natural, NonNegative, to_library_seed
from searchlab.policy import NeverTwice, Origin
from searchlab.records import Trial
from searchlab.space import Config, Knob, Space

from .model_guided import MAX_SLOW_PREDICTIONS, rank_successes
from .neighbours import draw_near, generate_step_neighbours

if TYPE_CHECKING:
    from sklearn.ensemble import RandomForestClassifier

MIN_IMPROVEMENT = 0.001
"""The relative change in a copy's cost below which a generation counts as without improvement."""

MIN_WEIGHT = 1e-5
"""The minimum distance to the quantile, in milliseconds, that is used as a weight."""


@dataclass
class Copy:
    """One of the local searches that run in parallel.

    Attributes:
        selected: The configs selected in this generation, without the current one.
        keeps_current: Whether the current config was selected, too.
    """

    current: Trial
    patience: int
    selected: list[Config] = field(default_factory=list)
    keeps_current: bool = True


class Lfbo(NeverTwice, stops=True, needs_asks=True):
    """Helion's LFBO pattern search: a classifier selects which neighbours of the best configs to measure.

    A random forest learns which configs are among the fastest 10 %; the weight of such a config is proportional to its
    distance from this quantile. A copy of a local search starts from each of the best configs in a random sample. In
    each generation, every copy draws neighbours and measures a tenth of them, selected one at a time by the predicted
    probability minus the similarity to those already selected. It then moves to the best of them. The forest is trained
    after each generation, which spans as many batches as it needs, so the batch size does not matter. A copy ends after
    ``patience + 1`` generations without improvement. The search ends with the last copy or, if ``variant`` is "fixed",
    after a descent from the best config that measures all neighbours at a distance of one step.

    Args:
        n_startup: The number of random trials before the first generation (in Helion 100, or 30 at low effort). If none
            of them succeeds, random trials continue until one does.
        copies: The number of best configs from which a copy of the search starts.
        neighbours: The number of neighbours that a copy draws in a generation. If a neighbour requires scheduling the
            program, at most 256 are drawn for all copies together.
        radius: The maximum number of knobs in which a neighbour differs, and the maximum number of steps in each.
        selected: The fraction of the neighbours to measure.
        quantile: The fraction of the trials that count as good when the forest is trained.
        similarity: The penalty for a config's mean similarity to those already selected. The similarity of two configs
            is the fraction of trees in which both reach the same leaf.
        patience: The number of generations without improvement that a copy survives.
        polish: The maximum number of steps of the final descent; 0 to omit it.
        variant: "fixed" is the algorithm as corrected by its authors; "original" is the algorithm with four faults:
            neighbours that were drawn but not measured are never proposed again; a copy ends once fewer than ten
            neighbours are new; a copy moves away from its config, even to a slower one, unless the forest selects it
            again; the forest learns from a trial's first repeat only. There is no final descent either.
    """

    origin: ClassVar[Origin | None] = Origin(
        "Helion's LFBOPatternSearch",
        "pull requests 3518 and 3524 (September 2026)",
        "helion/autotuner/surrogate_pattern_search.py in pytorch/helion",
        "relative",
        (
            "checked against the source, not against recorded runs, which would require a GPU",
            "30 random trials first instead of 100",
            "a neighbour differs in one or two knobs; Helion also changes a block size and the number of warps in each",
            "a step moves a prime factor of a tile; illegal configs are repaired",
            "no trial is measured again, so the fourth fault is emulated: the forest learns from the first repeat",
            "there is no limit on generations, and a generation's trials are measured best first",
        ),
    )

    def __init__(
        self,
        space: Space,
        *,
        seed: int,
        n_startup: Count = 30,
        copies: Count = 5,
        neighbours: Count = 300,
        radius: Count = 2,
        selected: Annotated[float, Between(1e-6, 1)] = 0.1,
        quantile: Annotated[float, Between(1e-6, 1)] = 0.1,
        similarity: NonNegative = 1.0,
        patience: Natural = 1,
        polish: Natural = 10,
        variant: Literal["fixed", "original"] = "fixed",
    ) -> None:
        super().__init__(space, seed=seed)
        self.n_startup = n_startup
        self.copies = copies
        self.neighbours = neighbours
        if space.builds_programs and neighbours * copies > MAX_SLOW_PREDICTIONS:
            self.neighbours = max(1, MAX_SLOW_PREDICTIONS // copies)
            self.effective = {"neighbours": self.neighbours}
        self.radius = radius
        self.selected = selected
        self.quantile = quantile
        self.similarity = similarity
        self.patience = patience
        self.is_fixed = variant == "fixed"
        self._remaining_descents = polish if self.is_fixed else 0
        self._descent_cost = math.inf
        self.generation = 0  # the number of generations that have been measured
        self._copies: list[Copy] | None = None  # None until the random trials have been measured
        self._visited: dict[Config, None] = {}
        self._queue: list[Config] = []
        self._trials_by_config: dict[Config, Trial] = {}

    def propose(self, n: int, rng: np.random.Generator) -> Sequence[Config]:
        if not self._queue:
            self._queue = self._propose_generation(n, rng)
        batch, self._queue = self._queue[:n], self._queue[n:]
        return batch

    def tell(self, trials: Sequence[Trial]) -> None:
        previous_count = len(self.trials)
        super().tell(trials)
        self._trials_by_config.update((trial.config, trial) for trial in self.trials[previous_count:])

    def _propose_generation(self, n: int, rng: np.random.Generator) -> list[Config]:
        """Return the configs to measure next: at least one, unless the search has ended."""
        if self._copies is None:
            ranked = rank_successes(self.trials)
            count = max(self.n_startup - len(self.trials), 0) or (0 if ranked else n)
            if random_configs := self.space.sample_new(rng, count, self.seen):
                return random_configs
            self._copies = [Copy(trial, self.patience) for trial in ranked[: self.copies]]
        else:
            self._copies = [copy for copy in self._copies if self._move_copy(copy)]
            self.generation += 1
        self._visited.update(self.seen)
        forest = self._train_forest()
        self._copies = [copy for copy in self._copies if self._select_neighbours(copy, forest, rng)]
        # The copies' best configs come first, since a run may end within a generation.
        ranks = zip_longest(*(copy.selected for copy in self._copies))
        configs = list(dict.fromkeys(config for rank in ranks for config in rank if config is not None))
        return configs or self._propose_descent(rng)

    def _move_copy(self, copy: Copy) -> bool:
        """Move ``copy`` to the best config of its generation, and return whether it continues."""
        trials = [self._trials_by_config[config] for config in copy.selected if config in self._trials_by_config]
        best = min(
            [*([copy.current] if copy.keeps_current else []), *trials], key=lambda t: t.cost, default=copy.current
        )
        change = best.cost / copy.current.cost - 1 if math.isfinite(copy.current.cost) else math.inf
        if best is copy.current or abs(change) < MIN_IMPROVEMENT:
            copy.patience -= 1
        copy.current = best
        return copy.patience >= 0

    def _select_neighbours(self, copy: Copy, forest: RandomForestClassifier | None, rng: np.random.Generator) -> bool:
        """Select the neighbours of ``copy`` to measure in this generation, and return whether there are any."""
        neighbours = self._draw_neighbours(copy.current.config, forest, rng)
        candidates = [config for config in dict.fromkeys(neighbours) if config not in self._visited]
        if self.is_fixed:
            count = max(1, int((len(candidates) + 1) * self.selected) - 1)
            copy.selected = self._select_best(candidates, count, forest, rng)
            self._visited.update(dict.fromkeys(copy.selected))
        else:
            self._visited.update(dict.fromkeys(candidates))
            candidates = [copy.current.config, *candidates]
            best = self._select_best(candidates, int(len(candidates) * self.selected), forest, rng)
            copy.keeps_current = copy.current.config in best
            copy.selected = [config for config in best if config != copy.current.config] if len(best) > 1 else []
        return bool(copy.selected)

    def _draw_neighbours(
        self, config: Config, forest: RandomForestClassifier | None, rng: np.random.Generator
    ) -> list[Config]:
        """Draw the neighbours of ``config`` from which to select. They may include ``config``, or repeat others."""
        return [draw_near(self.space, config, self.radius, rng) for _ in range(self.neighbours)]

    def _select_best(
        self, configs: Sequence[Config], n: int, forest: RandomForestClassifier | None, rng: np.random.Generator
    ) -> list[Config]:
        """Select ``n`` configs one at a time, each with the highest probability minus similarity to those before."""
        if forest is None or not configs:
            return [configs[i] for i in rng.permutation(len(configs))[:n].tolist()]
        rows = np.array([self.space.features(config) for config in configs], dtype=np.float32)
        probabilities = forest.predict_proba(rows)[:, 1]
        leaves = forest.apply(rows)  # (configs, trees)
        similarity_sums = np.zeros(len(configs))  # the sum of similarities to the configs selected so far
        is_free = np.ones(len(configs), dtype=bool)
        indices: list[int] = []
        while is_free.any() and len(indices) < n:
            scores = probabilities - self.similarity * similarity_sums / max(1, len(indices))
            best = int(np.argmax(np.where(is_free, scores, -np.inf)))
            is_free[best] = False
            indices.append(best)
            similarity_sums += (leaves == leaves[best]).mean(axis=1)
        return [configs[i] for i in indices]

    def _train_forest(self) -> RandomForestClassifier | None:
        """Return a forest trained on all trials, or None if all or none of them are good."""
        costs = np.array([self._choose_label(trial) for trial in self.trials])
        is_working = np.isfinite(costs)
        if not is_working.any():
            return None
        threshold = np.quantile(costs[is_working], self.quantile)
        is_good = costs <= threshold
        if is_good.all():
            return None
        from sklearn.ensemble import RandomForestClassifier

        weights = np.ones(len(costs))
        distances: Floats = np.maximum(MIN_WEIGHT, 1e3 * (threshold - costs[is_good]))
        weights[is_good] = distances / distances.mean()
        forest = RandomForestClassifier(criterion="log_loss", random_state=to_library_seed(self.seed), n_jobs=1)
        rows = np.array([self.space.features(trial.config) for trial in self.trials], dtype=np.float32)
        return forest.fit(rows, is_good, sample_weight=weights)

    def _choose_label(self, trial: Trial) -> float:
        if self.is_fixed or not math.isfinite(trial.cost):
            return trial.cost
        return float(trial.measurement.seconds[0])

    def _propose_descent(self, rng: np.random.Generator) -> list[Config]:
        """Return all new configs one step from the best one; none if the descent's last step did not improve it."""
        best = min(self.trials, key=lambda trial: trial.cost, default=None)
        while best is not None and self._remaining_descents and best.cost < self._descent_cost:
            self._remaining_descents -= 1
            self._descent_cost = best.cost
            if new_configs := list(
                dict.fromkeys(c for c in self._generate_step_neighbours(best.config, rng) if c not in self.seen)
            ):
                return new_configs
        return []

    def _generate_step_neighbours(self, config: Config, rng: np.random.Generator) -> Iterator[Config]:
        """Yield the configs that are one step away in one knob, or in each of two tiles."""
        yield from generate_step_neighbours(self.space, config, rng)
        knobs = self.space.knobs(config)
        steps = {knob.name: knob.adjacent(config[knob.name]) for knob in knobs}
        for a, b in combinations([knob for knob in knobs if is_tile(knob)], 2):
            for first in steps[a.name]:
                for second in steps[b.name]:
                    yield self.space.repair({**config, a.name: first, b.name: second}, rng)


def is_tile(knob: Knob) -> bool:
    """Return whether a knob is a tile, the counterpart of Helion's block sizes."""
    return knob.role == "tile" or knob.kind == "tile"
