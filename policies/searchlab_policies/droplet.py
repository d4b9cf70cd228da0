"""Coordinate descent along the knobs, which moves only where a test says that it is faster.

Source: Canesche et al., "The Droplet Search Algorithm for Kernel Scheduling" (ACM TACO 21(2), 2024); DropletTuner of
AutoTVM (``tvm.autotvm.tuner.droplet_tuner``, TVM up to 0.22). As there the search begins at the first choice of every
knob, moves to a config whose repeats are faster on average and by Student's t-test, and fills a batch by speculating:
the same steps taken farther. Four things differ. A step changes one knob, as in the paper, or, on the line of the last
move, the knobs that it changed; AutoTVM steps along every subset of the knobs at once. Choices do not wrap around.
A knob without an order, as a word or a switch, is a step away from each of its other choices. Later knobs that depend
on the knob that changes keep their values while these are legal. And where no step is faster, the search begins again
at a random config: there is a budget to be used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

import numpy as np
from scipy.stats import ttest_ind

from searchlab.options import one_of, real
from searchlab.policy import NeverTwice, private_rng
from searchlab.records import Trial
from searchlab.space import Config, Knob, Space, Value


class Droplet(NeverTwice):
    """Descends from config to config along the knobs, and begins elsewhere at each local optimum.

    A trial that failed is never moved to. With trials of another log the descent begins at the fastest of them.

    start: where to begin: ``first`` (at the first choice of every knob) or ``random``.
    pvalue: the highest probability that the test may give to such a difference between configs that are equally fast.
        No test is made where a trial has a single repeat.

    centre: the trial that the search is at; None while it waits for that of a new start.
    """

    def __init__(self, space: Space, *, seed: int, start: str = "first", pvalue: float = 0.05) -> None:
        super().__init__(space, seed=seed)
        self.pvalue = real("pvalue", pvalue, 0, 1)
        self.centre: Trial | None = None
        self._line: dict[str, int] = {}  # the last move: by how many choices each knob went
        self._around: list[Config] = []  # all that is a step away from the centre
        self._known: dict[Config, Trial] = {}
        self._restarts = 0
        first = one_of("start", start, ("first", "random")) == "first"
        self._start = space.decide(lambda knob: knob.choices[0]) if first else self._random()

    def propose(self, n: int, rng: np.random.Generator) -> Iterator[Config]:
        origin = self._start if self.centre is None else self.centre.config
        yield from islice((config for config in self.drops(origin) if config not in self.seen), n)

    def drops(self, origin: Config) -> Iterator[Config]:
        """Where to look from ``origin``: there, on along the line, a step along each knob, then ever longer steps."""
        yield origin
        longest = max((len(knob.choices) for knob in self.space.knobs(origin)), default=0)
        for length in range(1, longest):
            yield from self._step(origin, {name: length * by for name, by in self._line.items()})
            yield from self._steps(origin, length)

    def tell(self, trials: Sequence[Trial]) -> None:
        super().tell(trials)
        for trial in trials:
            if trial.config in self.space:
                self._known[trial.config] = trial
                if self.centre is None:
                    self._begin(trial)
                elif faster(trial, self.centre, self.pvalue):
                    self._move(trial)
                self._settle()

    def _begin(self, trial: Trial) -> None:
        # After a restart only there: trials of before it must not lead back to where the search has been.
        if np.isfinite(trial.cost) and (trial.config == self._start or not self._restarts):
            self._line = {}
            self._move(trial)
        elif trial.config == self._start:
            self._restart()

    def _move(self, trial: Trial) -> None:
        if self.centre is not None:
            self._line = difference(self.space, self.centre.config, trial.config)
        self.centre = trial
        self._around = list(self._steps(trial.config, 1))

    def _settle(self) -> None:
        """Walk on over known trials; begin again where every config a step away is known and none is faster."""
        while self.centre is not None:
            known = [self._known[config] for config in self._around if config in self._known]
            better = [trial for trial in known if faster(trial, self.centre, self.pvalue)]
            if better:
                self._move(min(better, key=mean))
            elif len(known) == len(self._around):
                self._restart()
            else:
                return

    def _restart(self) -> None:
        self._restarts += 1
        self.centre, self._line = None, {}
        self._start = self._random()

    def _random(self) -> Config:
        rng = private_rng(self.seed, "droplet: restart", self._restarts)
        drawn = [self.space.sample(rng) for _ in range(20)]
        return next((config for config in drawn if config not in self._known), drawn[0])

    def _steps(self, origin: Config, length: int) -> Iterator[Config]:
        for knob in self.space.knobs(origin):
            if ordered(knob):
                yield from self._step(origin, {knob.name: length})
                yield from self._step(origin, {knob.name: -length})
            elif length == 1:
                for value in knob.choices:
                    if value != origin[knob.name]:
                        yield self._repaired({**origin, knob.name: value})

    def _step(self, origin: Config, by: dict[str, int]) -> Iterator[Config]:
        """The config that is so many choices away in these knobs, where they have as many."""
        wanted = dict(origin)
        for knob in self.space.knobs(origin):
            if knob.name in by:
                index = knob.choices.index(origin[knob.name]) + by[knob.name]
                if not 0 <= index < len(knob.choices):
                    return
                wanted[knob.name] = knob.choices[index]
        if by:
            yield self._repaired(wanted)

    def _repaired(self, wanted: Mapping[str, Value]) -> Config:
        # The same repair whenever the same step is looked at.
        return self.space.repaired(wanted, private_rng(self.seed, "droplet: repair"))


def ordered(knob: Knob) -> bool:
    """Whether a step along the knob's choices means something: they are numbers or tiles."""
    return knob.kind in ("number", "tile")


def difference(space: Space, old: Config, new: Config) -> dict[str, int]:
    """By how many choices each knob that has an order went from ``old`` to ``new``, of those that did."""
    moved = {}
    for knob in space.knobs(new):
        if ordered(knob) and old.get(knob.name) in knob.choices and old[knob.name] != new[knob.name]:
            moved[knob.name] = knob.choices.index(new[knob.name]) - knob.choices.index(old[knob.name])
    return moved


def mean(trial: Trial) -> float:
    """Seconds of a run on average; infinite where it failed."""
    return float(np.mean(trial.measurement.seconds)) if np.isfinite(trial.cost) else np.inf


def faster(trial: Trial, than: Trial, pvalue: float) -> bool:
    """Whether the trial's repeats are faster on average and, by Student's t-test, not by chance."""
    if not mean(trial) < mean(than):
        return False
    ours, theirs = trial.measurement.seconds, than.measurement.seconds
    if min(len(ours), len(theirs)) < 2 or np.ptp(ours) == np.ptp(theirs) == 0:
        return True
    return bool(ttest_ind(ours, theirs).pvalue <= pvalue)
