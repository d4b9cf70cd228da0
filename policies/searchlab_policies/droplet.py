"""AutoTVM's DropletTuner: coordinate descent along subsets of the knobs.

Source: Canesche et al., "The Droplet Search Algorithm for Kernel Scheduling" (ACM TACO 21(2), 2024);
``python/tvm/autotvm/tuner/droplet_tuner.py`` of TVM 0.17.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar, Literal

import numpy as np
from scipy.stats import ttest_ind

from searchlab.errors import SearchlabError
from searchlab.options import Between, UnitInterval, check_option
from searchlab.policy import NeverTwice, Origin, private_rng
from searchlab.records import Trial
from searchlab.space import Config, Knob, Space, Value


class Droplet(NeverTwice, stops=True, needs_asks=True, uses_seed=False):  # only start = "random" uses it
    """AutoTVM's DropletTuner: coordinate descent that ends at a local optimum.

    The search moves to any config in a batch that is faster, judged by the mean and Student's t-test, and then tries
    that config's neighbours. A neighbour differs in some subset of the knobs, each moved by one choice, either all up
    or all down. Moving up wraps around to the first choice; moving down stops there. If there are not enough new
    neighbours to fill a batch, the steps become longer. The search ends when nothing new is left to try, possibly
    before the budget is spent. It never moves to a failed trial. With a warm start, it begins at the fastest trial.

    Args:
        start: The config to begin with: ``"first"`` (the first choice of every knob), ``"random"``, or a list of the
            positions of the knobs' choices, counted from 0.
        pvalue: The p-value of the t-test up to which two configs count as different. If either trial has only one
            repeat, no test is performed.
    """

    origin: ClassVar[Origin | None] = Origin(
        name="AutoTVM's DropletTuner",
        version="TVM 0.17",
        source="python/tvm/autotvm/tuner/droplet_tuner.py",
        kind="reproduction",
        deviations=("if knobs depend on each other, a step is repaired to the nearest legal config",),
    )

    def __init__(
        self,
        space: Space,
        *,
        seed: int,
        start: Literal["first", "random"] | Sequence[int] = "first",
        pvalue: UnitInterval = 0.05,
    ) -> None:
        super().__init__(space, seed=seed)
        self.pvalue = pvalue
        first_config = self._make_first_config(start)
        self._best_config = space.decide(lambda knob: knob.choices[0])  # until the first success, as in AutoTVM
        self._best_seconds: Sequence[float] = (np.inf,)
        self._next_configs = [first_config]
        self._visited = {first_config}
        self._batch_size = 1
        self._step_length = 1
        self._max_step_length = max((len(knob.choices) for knob in space.knobs(first_config)), default=1)

    def _make_first_config(self, start: str | Sequence[int]) -> Config:
        if isinstance(start, str):
            if start == "random":
                return self.space.sample(private_rng(self.seed, "droplet: start"))
            return self.space.decide(lambda knob: knob.choices[0])
        positions = list(start)

        def choose(knob: Knob) -> Value:
            if not positions:
                raise SearchlabError(f"option 'start' is {start}; it must include a position for knob {knob.name!r}")
            position: int = check_option("start", positions.pop(0), Annotated[int, Between(0, len(knob.choices) - 1)])
            return knob.choices[position]

        config = self.space.decide(choose)
        if positions:
            raise SearchlabError(f"option 'start' is {start}; it must have {len(config)} positions, one for each knob")
        return config

    def propose(self, n: int, rng: np.random.Generator) -> Iterator[Config]:
        self._batch_size = n
        yield from self._next_configs[:n]

    def warm_start(self, trials: Sequence[Trial]) -> None:
        super().tell(trials)
        if self._move(sorted(trials, key=compute_mean_seconds)):
            self._next_configs = self._find_configs_at(1)
            self._step_length = 1
        self._fill_batch()

    def tell(self, trials: Sequence[Trial]) -> None:
        if not self.seen:  # in a bandit, this policy may be told other arms' trials before its first ask
            self.warm_start(trials)
            return
        super().tell(trials)
        has_moved = self._move(trials)
        # AutoTVM drops the last config here, measured or not.
        self._next_configs = self._next_configs[self._batch_size : -1]
        if has_moved:
            self._next_configs += self._find_configs_at(1)
            self._step_length = 1
        self._fill_batch()

    def _move(self, trials: Sequence[Trial]) -> bool:
        """Move to each faster trial in ``trials``, in order, and return whether there was one."""
        self._visited.update(self.seen)
        has_moved = False
        for trial in trials:
            if trial.config in self.seen and self._is_faster(trial):
                self._best_config, self._best_seconds, has_moved = trial.config, trial.measurement.seconds, True
        return has_moved

    def _fill_batch(self) -> None:
        """Increase the step length until enough configs for a batch have been found."""
        while len(self._next_configs) < self._batch_size and self._step_length < self._max_step_length:
            self._step_length += 1
            self._next_configs += self._find_configs_at(self._step_length)

    def _is_faster(self, trial: Trial) -> bool:
        seconds = trial.measurement.seconds
        if not compute_mean_seconds(trial) < np.mean(self._best_seconds):
            return False
        if min(len(seconds), len(self._best_seconds)) < 2:
            return True
        with warnings.catch_warnings(), np.errstate(all="ignore"):  # equal repeats yield no p-value
            warnings.simplefilter("ignore", RuntimeWarning)
            return bool(ttest_ind(self._best_seconds, seconds).pvalue <= self.pvalue)

    def _find_configs_at(self, step_length: int) -> list[Config]:
        """Return new configs that are ``step_length`` choices away, larger subsets first: at most a batch plus one."""
        knobs = self.space.knobs(self._best_config)
        positions = [knob.choices.index(self._best_config[knob.name]) for knob in knobs]
        neighbours: list[Config] = []
        for subset in range(2 ** len(knobs) - 1, 0, -1):
            for step in (step_length, -step_length):
                if len(neighbours) > self._batch_size:
                    return neighbours
                values = {}
                for bit, (knob, position) in enumerate(zip(reversed(knobs), reversed(positions), strict=True)):
                    index = max(0, position + step) % len(knob.choices) if subset >> bit & 1 else position
                    values[knob.name] = knob.choices[index]
                config = self.space.repair(values, private_rng(self.seed, "droplet: repair"))
                if config not in self._visited:
                    self._visited.add(config)
                    neighbours.append(config)
        return neighbours


def compute_mean_seconds(trial: Trial) -> float:
    """Return the mean of the repeats in seconds, or infinity for a failed trial."""
    return float(np.mean(trial.measurement.seconds)) if np.isfinite(trial.cost) else np.inf
