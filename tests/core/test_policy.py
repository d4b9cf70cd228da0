"""The base classes of policies: checks of proposals, private random streams, and traits."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from itertools import product

import cloudpickle
import numpy as np
import pytest

from searchlab.conformance import toys
from searchlab.errors import SearchlabError
from searchlab.policy import NeverTwice, OwnModel, Traits, private_rng
from searchlab.space import Config

LISTED = list(toys.Small().enumerate())


class Endless(NeverTwice):
    """Proposes one config after the other, without end, and counts them."""

    count = 0

    def propose(self, n: int, rng: np.random.Generator) -> Iterator[Config]:
        while True:
            self.count += 1
            yield LISTED[self.count % len(LISTED)]


class Dictionaries(NeverTwice):
    """Proposes what is not a config."""

    def propose(self, n: int, rng: np.random.Generator) -> Iterator[Config]:
        yield {"unroll": 0}  # type: ignore[misc]


def test_what_is_proposed_must_be_a_config() -> None:
    with pytest.raises(SearchlabError, match=r"Dictionaries\.propose yields {'unroll': 0}, which is not a config; use"):
        Dictionaries(toys.Small(), seed=0).ask(1)


def test_proposals_beyond_a_full_batch_are_not_drawn() -> None:
    policy = Endless(toys.Small(), seed=0)
    assert policy.ask(8) == LISTED[1:9]
    assert policy.count == 8
    policy.tell(toys.simulate_trials([LISTED[9]], toys.simulate_smooth))
    assert policy.ask(2) == LISTED[10:12]
    assert policy.count == 11, "one of them was known"


def test_a_config_is_renewed_until_it_is_neither_seen_nor_barred() -> None:
    policy = Endless(toys.Small(), seed=0)
    rng = np.random.default_rng(0)
    assert policy.mutate_until_new(LISTED[0], rng) == LISTED[0]
    policy.ask(1)
    for barred in ([], LISTED[:1], LISTED[2:9]):
        config = policy.mutate_until_new(LISTED[1], rng, besides=barred)
        assert config in policy.space and config != LISTED[1] and config not in barred
    policy.tell(toys.simulate_trials(LISTED, toys.simulate_smooth))
    assert policy.mutate_until_new(LISTED[1], rng) in LISTED, "there is nothing new, and an end to looking"


@pytest.mark.parametrize("seed", [0, 1, 7, 2**31, 2**40])
def test_a_private_stream_is_that_of_no_ask_and_of_no_other(seed: int) -> None:
    streams = [np.random.default_rng([seed, count]) for count in range(300)]
    streams += [private_rng(seed, tag, *counters) for tag in ("a", "b") for counters in product(range(3), repeat=2)]
    streams += [private_rng(seed, tag, *counters) for tag in ("a", "b") for counters in [(), (0,), (1,), (0, 0, 0)]]
    firsts = [tuple(rng.integers(2**63, size=2).tolist()) for rng in streams]
    assert len(set(firsts)) == len(firsts)
    assert private_rng(seed, "a", 1).random() == private_rng(seed, "a", 1).random()


class Short(Endless, stops=True, uses_seed=False):
    pass


class Shorter(Short, own_model=OwnModel("ridge", "program"), uses_seed=True):
    pass


def test_a_class_inherits_the_traits_of_its_base() -> None:
    assert Endless.traits == Traits()
    assert Short.traits == Traits(stops=True, uses_seed=False)
    own_model = OwnModel("ridge", "program")
    assert Shorter.traits == Traits(stops=True, takes_cost_model=True, own_model=own_model)
    assert Shorter.traits.model() == ("ridge", "program") and Shorter.traits.model("mlp") == ("mlp", "program")
    assert Short.traits.model() == ("xgboost", "knob")


def test_an_unknown_trait_is_refused_where_the_class_is_made() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'stop'"):
        type("Misspelled", (Endless,), {}, stop=True)


def test_traits_of_a_class_without_module_are_pickled() -> None:
    class Local(Endless, stops=True):
        pass

    assert pickle.loads(cloudpickle.dumps(Local)).traits.stops


def test_a_warm_start_is_told_unless_a_policy_does_otherwise() -> None:
    policy = Endless(toys.Small(), seed=0)
    policy.warm_start(toys.simulate_trials(LISTED[1:3], toys.simulate_smooth))
    assert policy.ask(1) == LISTED[3:4] and len(policy.trials) == 2
