"""Optuna's tree-structured Parzen estimator, asked one knob at a time.

Source: Bergstra et al., "Algorithms for Hyper-Parameter Optimization" (NeurIPS 2011); Watanabe, "Tree-Structured
Parzen Estimator: Understanding Its Algorithm Components" (2023); ``optuna.samplers.TPESampler``. A batch is kept
apart by Optuna's constant liar: trials that run still count as bad ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.trial import TrialState, create_trial

from searchlab.records import Trial
from searchlab.space import Config, Knob, Space, Value

from ._never_twice import NeverTwice
from ._options import whole

Suggest = Callable[[str, BaseDistribution, Sequence[Value], int | None], int]
"""(parameter, its distribution, its values, which factor of a tile it is) -> index of the value."""
MODE = "factor"

class Tpe(NeverTwice):
    """Models each choice given how good trials chose it and how the others did.

    startup: trials to draw at random before Optuna is asked.
    ei_candidates: how many values are drawn from the model of the good trials, of which the most promising is taken.
    """

    def __init__(self, space: Space, *, seed: int, startup: int = 16, ei_candidates: int = 24, **kw) -> None:
        super().__init__(space, seed=seed)
        self.startup = whole("startup", startup, 1)
        self.ei_candidates = whole("ei_candidates", ei_candidates, 1)
        self.kw = kw
        with _quiet():
            self._study = optuna.create_study(storage=optuna.storages.InMemoryStorage(), study_name="searchlab")
        self._running: dict[Config, int] = {}

    def propose(self, n, rng):
        if len(self.trials) < self.startup:
            return
        self._study.sampler = optuna.samplers.TPESampler(
            n_startup_trials=1, n_ei_candidates=self.ei_candidates, seed=int(rng.integers(2**31)), constant_liar=True, **self.kw
        )
        for _ in range(n):
            config = self._suggested()
            for _ in range(20):
                if config not in self.seen:
                    break
                config = self.space.mutate(config, rng)
            if config not in self.seen:
                self._start(config)
            yield config
        
    def ask(self, n):
        batch = super().ask(n)
        for c in batch:
            if c not in self._running: self._start(c)
        return batch

    def _start(self, config):
        params, dists = self._parameters(config)
        self._study.add_trial(create_trial(state=TrialState.RUNNING, params=params, distributions=dists))
        self._running[config] = len(self._study.get_trials(deepcopy=False)) - 1

    def tell(self, trials):
        super().tell(trials)
        for t in trials:
            number = self._running.pop(t.config, None)
            if number is None:
                params, dists = self._parameters(t.config)
                self._study.add_trial(create_trial(value=t.cost, params=params, distributions=dists))
            else:
                self._study.tell(number, t.cost)

    def _suggested(self):
        trial = self._study.ask()
        def suggest(name, distribution, values, factor):
            return trial._suggest(name, distribution)
        config = self.space.decide(lambda knob: _choose(knob, suggest))
        self._study.tell(trial, state=TrialState.FAIL)
        return config

    def _parameters(self, config):
        params, dists = {}, {}
        def choose(knob):
            def suggest(name, distribution, values, factor):
                wanted = config[knob.name] if factor is None else config[knob.name][factor]
                dists[name] = distribution
                params[name] = values.index(wanted)
                return params[name]
            return _choose(knob, suggest)
        self.space.decide(choose)
        return params, dists


def _choose(knob: Knob, suggest: Suggest) -> Value:
    cs = knob.choices
    n = len(cs)
    if n == 1: return cs[0]
    if isinstance(cs[0], (bool, str)):
        return cs[suggest(f"{knob.name} of {list(cs)}", CategoricalDistribution(range(n)), cs, None)]
    if isinstance(cs[0], tuple) and MODE != "index":
        if MODE == "cat":
            return cs[suggest(f"{knob.name} of {list(cs)}", CategoricalDistribution(range(n)), cs, None)]
        left = list(cs)
        order = range(len(cs[0]))
        for i in (order if "outer" in MODE else reversed(order)):
            fs = sorted({t[i] for t in left})
            if MODE.startswith("snap"):
                fs0 = sorted({t[i] for t in cs})
                if i == (len(cs[0])-1 if "outer" in MODE else 0): break
                j = suggest(f"{knob.name}[{i}]", IntDistribution(0, len(fs0)-1), fs0, i)
                f = min(fs, key=lambda f: abs(fs0.index(f)-j))
                left = [t for t in left if t[i] == f]
            elif len(fs) > 1:
                f = fs[suggest(f"{knob.name}[{i}]", IntDistribution(0, len(fs)-1), fs, i)]
                left = [t for t in left if t[i] == f]
        return left[0]
    return cs[suggest(knob.name, IntDistribution(0, n-1), cs, None)]


@contextmanager
def _quiet():
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(level)
