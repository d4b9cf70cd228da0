"""The space of listed configs."""

from __future__ import annotations

import base64
import itertools
import zlib
from collections import Counter
from http import HTTPStatus
from typing import Any

import cloudpickle
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from searchlab.conformance import run_checks, space_checks
from searchlab.costmodel.features import make_features
from searchlab.errors import InvalidConfig, SearchlabError, UnsupportedSpace, UnsupportedWorkload
from searchlab.space import Config, Space
from searchlab.target import resolve_target
from searchlab.workload import parse_workload
from searchlab_spaces.parameters import Parameters

KERNEL = parse_workload("kernel:convolution@A4000")


def space_of(parameters: Any, configs: Any) -> Parameters:
    return Parameters(KERNEL, resolve_target("recorded"), **Parameters.options_for(parameters, configs))


values = st.lists(st.integers(-5, 5) | st.text("ab", max_size=2), min_size=1, max_size=4, unique=True)
products = st.dictionaries(st.text("xyz", min_size=1, max_size=3), values, min_size=1, max_size=4)


@st.composite
def listings(draw: st.DrawFn) -> tuple[dict[str, list[Any]], list[dict[str, Any]]]:
    parameters = draw(products)
    configs = [dict(zip(parameters, values, strict=True)) for values in itertools.product(*parameters.values())]
    return parameters, draw(st.lists(st.sampled_from(configs), min_size=1, unique_by=lambda c: tuple(c.items())))


@given(listings())
def test_the_list_is_the_space(listing: tuple[dict[str, list[Any]], list[dict[str, Any]]]) -> None:
    parameters, configs = listing
    space, rng = space_of(parameters, configs), np.random.default_rng(0)
    listed = {Config(config) for config in configs}
    for configs_listed in (
        space.enumerate(),
        space.enumerate(rng),
        Space.enumerate(space),
        Space.enumerate(space, rng),
    ):
        configs_found = list(configs_listed)
        assert len(configs_found) == len(listed) == space.size() and set(configs_found) == listed
    for values in itertools.product(*parameters.values()):
        config = Config(dict(zip(parameters, values, strict=True)))
        assert (config in space) == (config in listed)
        if config in listed:
            assert space.config_at(space.index_of(config)) == config
            assert {space.mutate(config, rng), *space.neighbours(config, rng)} <= listed
    assert {space.sample(rng) for _ in range(5)} <= listed
    for values in itertools.product(*parameters.values()):
        expected = dict(zip(parameters, values, strict=True))
        own_rng, other_rng = (np.random.default_rng(1) for _ in range(2))
        assert space.repair(expected, own_rng) == Space.repair(space, expected, other_rng)
        assert own_rng.random() == other_rng.random()
        if Config(expected) in listed:
            assert space.knobs(expected) == Space.knobs(space, expected)
    copy = cloudpickle.loads(cloudpickle.dumps(space))
    assert copy.fingerprint == space.fingerprint and list(copy.enumerate()) == list(space.enumerate())


def test_all_configs_are_equally_likely() -> None:
    space = space_of({"x": [0, 1], "y": list(range(9))}, [{"x": 0, "y": 0}, *({"x": 1, "y": y} for y in range(9))])
    rng = np.random.default_rng(0)
    counts = Counter(space.sample(rng) for _ in range(5000))
    assert len(counts) == 10 and min(counts.values()) > 400


def test_another_list_is_another_space() -> None:
    parameters = {"x": [0, 1, 2]}
    spaces = [space_of(parameters, [{"x": x} for x in values]) for values in ((0,), (0, 1), (0, 1, 2))]
    assert len({space.fingerprint for space in spaces}) == 3
    with pytest.raises(InvalidConfig, match="knob 'x' cannot be 2"):
        spaces[1].knobs({"x": 2})
    with pytest.raises(IndexError):
        spaces[1].config_at(2)


def test_a_product_too_large_for_64_bits() -> None:
    parameters = {f"x{i}": list(range(100)) for i in range(20)}
    configs = [{name: (i * k) % 100 for k, name in enumerate(parameters)} for i in range(1, 40)]
    space = space_of(parameters, configs)
    assert set(space.enumerate()) == {Config(config) for config in configs} and space.range_length == 10**40


def test_a_space_of_parameters_has_no_programs() -> None:
    space = space_of({"x": [0, 1]}, [{"x": 1}])
    with pytest.raises(InvalidConfig, match="no program"):
        space.schedule({"x": 1})
    with pytest.raises(InvalidConfig, match="cannot be 0"):
        space.schedule({"x": 0})
    with pytest.raises(UnsupportedSpace, match="use 'knob'"):
        make_features("program", space)
    with pytest.raises(UnsupportedWorkload, match="specify its parameters"):
        Parameters(KERNEL, resolve_target("recorded"))


PACKED = base64.b64encode(zlib.compress(b"\x00\x7f")).decode()


@pytest.mark.parametrize(
    ("parameters", "listed", "why"),
    [
        ({"x": []}, "", "must be a list of at least one value"),
        ({"x": [1, True]}, "", "contains True twice"),
        ({"x": "abc"}, "", "must be a list of at least one value"),
        ({"x": [None]}, "", "contains None"),
        ({"x": [float("nan")]}, "", "contains nan"),
        ({"x": [1, 2**63]}, "", "contains 9223372036854775808; .* at most 64 bits"),
        ({"x": [(1, -(2**70))]}, "", "at most 64 bits"),
        ({"x": [HTTPStatus.OK]}, "", "contains <HTTPStatus.OK: 200>"),
        ({"x": range(10**12)}, "", "has 1,000,000,000,000 values; choose at most 1,000,000"),
        ({"x": [1, 2]}, "no base64", "damaged"),
        ({"x": [1, 2]}, PACKED, "do not fit a product of 2"),
        ({"x": [1, 2]}, PACKED[:8], "damaged"),
        ({"x": [1, 2]}, base64.b64encode(zlib.compress(b"\xff" * 400)).decode(), "unterminated"),
        ({"x": [1, 2]}, base64.b64encode(zlib.compress(bytes(1 << 25))).decode(), "truncated or too long"),
        ({"x": [1, 2]}, 3, "option 'listed' is 3; it must be a string"),
    ],
)
def test_damaged_parameters_are_one_sentence(parameters: Any, listed: Any, why: str) -> None:
    with pytest.raises(SearchlabError, match=why):
        Parameters(KERNEL, resolve_target("recorded"), parameters=parameters, listed=listed)


def test_the_kit_checks_all_but_its_programs() -> None:
    options = Parameters.options_for({"x": [1, 2, 4], "y": ["a", "b"]}, [{"x": 1, "y": "a"}, {"x": 4, "y": "b"}])
    spec = {"name": "searchlab_spaces.parameters:Parameters", "options": options}
    outcomes = {
        result.name: result for result in run_checks(space_checks(spec, workload=str(KERNEL), target="recorded"))
    }
    assert [result.text for result in outcomes.values() if result.status == "FAIL"] == []
    assert {name for name, result in outcomes.items() if result.status == "pass"} >= {
        "signature",
        "starts",
        "decides",
        "members",
        "stays-inside",
        "enumerates",
        "fingerprint",
    }
    assert outcomes["schedules"].status == "n/a"
