"""Values of configs at the border: NumPy's numbers become plain, and other types than the choice's are refused."""

from __future__ import annotations

import doctest
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import searchlab
from searchlab import Config, InvalidConfig, Knob, ProductSpace, SearchlabError
from searchlab.conformance import policy_checks, run_checks, toys
from searchlab.policy import Policy
from searchlab.space import Space
from tests.support.logs import write_table

KNOBS = [Knob("unroll", [0, 16, 64]), Knob("fuse", [False, True]), Knob("tile", [(1, 8), (8, 1)])]


class Product(ProductSpace):
    def __init__(self) -> None:
        super().__init__(toys.WORKLOAD, toys.TARGET, KNOBS)

    def schedule(self, config: Config) -> Any:
        raise NotImplementedError


class Decided(Space):
    def __init__(self) -> None:
        super().__init__(toys.WORKLOAD, toys.TARGET)

    def decide(self, choose: Any) -> Config:
        return Config({knob.name: choose(knob) for knob in KNOBS})

    def schedule(self, config: Config) -> Any:
        raise NotImplementedError


PLAIN = {"unroll": 64, "fuse": True, "tile": (8, 1)}


@pytest.mark.parametrize("space", [Product(), Decided()], ids=["product", "decided"])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("unroll", 64.0),
        ("unroll", False),
        ("unroll", "64"),
        ("fuse", 1),
        ("fuse", 1.0),
        ("tile", (8.0, 1)),
        ("tile", (8, True)),
        ("tile", {8, 1}),
        ("tile", (8, (1,))),
        ("unroll", None),
        ("unroll", float("nan")),
    ],
    ids=repr,
)
def test_a_value_of_another_type_is_not_a_choice(space: Space, name: str, value: Any) -> None:
    assert Config(PLAIN) in space  # remembered, and equal to some of the configs below
    with pytest.raises(InvalidConfig, match=name):
        space.knobs(Config({**PLAIN, name: value}))
    assert {**PLAIN, name: value} not in space


@pytest.mark.parametrize("space", [Product(), Decided()], ids=["product", "decided"])
def test_numpy_values_become_plain(space: Space) -> None:
    config = Config({"unroll": np.int64(64), "fuse": np.bool_(True), "tile": (np.int8(8), np.int8(1))})
    assert config in space and config == Config(PLAIN)
    assert [type(value) for value in (config["unroll"], config["fuse"])] == [int, bool]
    assert Config({"tile": np.array([8, 1])})["tile"] == (8, 1)
    repaired = space.repair(Config({**PLAIN, "unroll": 64.0}), np.random.default_rng(0))
    assert searchlab.Knob("unroll", np.arange(3)).choices == [0, 1, 2]
    assert repaired["unroll"] == 64


def test_a_space_repairs_with_its_own_values() -> None:
    repaired = Decided().repair({**PLAIN, "unroll": 64.0}, np.random.default_rng(0))
    assert type(repaired["unroll"]) is int and repaired in Decided()


class Proposes(Policy):
    """Proposes the first configs of the space, with another value for its first knob."""

    make: Any = float

    def ask(self, n: int) -> Sequence[Config]:
        first = next(iter(self.space.knobs(next(self.space.enumerate()))))
        configs = [config for _, config in zip(range(n), self.space.enumerate(), strict=False)]
        return [Config.wrap({**config, first.name: type(self).make(config[first.name])}) for config in configs]

    def tell(self, trials: Sequence[Any]) -> None: ...


class Unhashable(Proposes):
    @staticmethod
    def make(value: Any) -> Any:
        return [value]


@pytest.mark.parametrize("policy", [Proposes, Unhashable])
def test_a_policy_is_named_before_anything_is_measured(policy: type[Policy], tmp_path: Path) -> None:
    write_table(tmp_path / "table.jsonl", toys.Small(), toys.simulate_flaky)
    with pytest.raises(SearchlabError, match=policy.__name__):
        searchlab.tune(
            toys.WORKLOAD,
            space=toys.Small(),
            policy=policy,
            log=tmp_path / "run.jsonl",
            trials=4,
            measure={"kind": "table", "path": str(tmp_path / "table.jsonl")},
        )
    log = tmp_path / "run.jsonl"
    assert not log.exists() or '"kind":"trial"' not in log.read_text()


def test_the_example_of_the_contract_passes_the_kit() -> None:
    names: dict[str, Any] = {"__name__": __name__}
    source = [example.source for example in doctest.DocTestParser().get_examples(Policy.__doc__ or "")]
    exec("".join(line for line in source[: next(i for i, s in enumerate(source) if s.startswith("class")) + 1]), names)
    checks = [check for check in policy_checks(names["InOrder"]) if check.name != "every-process"]
    assert [outcome.name for outcome in run_checks(checks) if outcome.status == "FAIL"] == []
