"""Recorded runs of AutoTVM's own tuners, and the same random numbers for the tuners written anew."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Container
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from searchlab import load_log
from searchlab.policy import Policy
from searchlab.records import Measurement, Trial
from searchlab.space import Config
from searchlab_spaces.templates.space import KnobTemplate

FIDELITY = Path(__file__).parents[2] / "studies" / "fidelity"


@cache
def table() -> tuple[KnobTemplate, dict[Config, Measurement]]:
    """The space that was searched, and the measurement of each of its configs, with the mean of its repeats as cost."""
    result = load_log(FIDELITY / "gemm-knob-template.jsonl.gz")
    assert isinstance(result.space, KnobTemplate)
    return result.space, {trial.config: _mean(trial.measurement) for trial in result.trials}


def _mean(measurement: Measurement) -> Measurement:
    seconds = (float(np.mean(measurement.seconds)),) if measurement.seconds else ()
    return Measurement(seconds=seconds, failure=measurement.failure)


def recorded(name: str) -> dict[int, list[int]]:
    """The indices that AutoTVM's tuner measured, by seed; repeats are left out, as they tell it nothing new here."""
    runs = json.loads((FIDELITY / "recorded" / f"{name}.json").read_text())
    return {int(seed): list(dict.fromkeys(indices)) for seed, indices in runs.items()}


def searched(policy: Policy, batch: int, trials: int, known: dict[Config, Measurement] | None = None) -> list[int]:
    """The indices of the first ``trials`` configs that ``policy`` proposes, each answered from the table."""
    space, answers = table()
    found: list[int] = []
    while len(found) < trials and (asked := policy.ask(batch)):
        asked = asked[: trials - len(found)]
        policy.tell([Trial(len(found) + i, config, (known or answers)[config]) for i, config in enumerate(asked)])
        found += [space.index_of(config) for config in asked]
    return found


class Numpys:
    """numpy's global random numbers, behind the methods of a Generator that the tuners use."""

    def integers(self, n: int) -> int:
        return int(np.random.randint(n))

    def random(self, n: int | None = None) -> Any:
        return np.random.random() if n is None else np.random.random(n)

    def choice(self, n: int, **how: Any) -> Any:
        return np.random.choice(np.arange(n), **how)


def seeded(seed: int, patch: pytest.MonkeyPatch, *modules: Any) -> None:
    """Seed the global streams as the recording did; ``private_rng`` of ``modules`` then draws from them."""
    random.seed(seed)
    np.random.seed(seed)
    for module in modules:
        patch.setattr(module, "private_rng", lambda *_: Numpys())


def sample_ints(n: int) -> list[int]:
    """``n`` indices as AutoTVM draws them, in its order: that of a set."""
    drawn: set[int] = set()
    while len(drawn) < n:
        drawn.add(random.randrange(table()[0].size()))
    return list(np.fromiter(drawn, int, len(drawn)))


def as_autotvm_draws() -> Callable[..., list[Config]]:
    """``Space.sample_new`` with AutoTVM's draws: a plan's start by ``sample_ints``, else ``get_rand_index``."""
    space, _ = table()

    def sample_new(_space: Any, _rng: Any, n: int, seen: Container[Config]) -> list[Config]:
        if seen == ():
            return [space.config_at(int(index)) for index in sample_ints(n)]
        new: list[Config] = []
        while len(new) < n:
            config = space.config_at(random.randrange(space.size()))
            if config not in seen and config not in new:
                new.append(config)
        return new

    return sample_new
