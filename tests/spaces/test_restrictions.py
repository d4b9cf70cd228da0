"""Spaces of parameters with restrictions."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import cloudpickle
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from searchlab.errors import SearchlabError
from searchlab.plugins import names_from
from searchlab.space import SPACES, Config, ProductSpace, Space
from searchlab.target import resolve_target
from searchlab.workload import parse_workload
from searchlab_spaces import parameters as module
from searchlab_spaces.parameters import Parameters

KERNEL = parse_workload("kernel:convolution@A4000")
THREE = {"x": [1, 2, 3, 4], "y": [1, 2, 3], "z": [0, 1, 5]}


def space_of(parameters: Any, *restrictions: Any) -> Parameters:
    return Parameters(KERNEL, resolve_target("recorded"), parameters=parameters, restrictions=restrictions)


RESTRICTIONS = {
    "x * y <= 6": lambda x, y, z: x * y <= 6,
    "x % y == 0": lambda x, y, z: x % y == 0,
    "y < x or z == 5": lambda x, y, z: y < x or z == 5,
    "not (x == y == 2) and x != 3": lambda x, y, z: not (x == y == 2) and x != 3,
    "z in (0, 1)": lambda x, y, z: z in (0, 1),
    "max(x, y) - min(x, y) <= abs(-2)": lambda x, y, z: max(x, y) - min(x, y) <= 2,
    "x ** 2 + y // 2 - z / 2 > 1.5": lambda x, y, z: x**2 + y // 2 - z / 2 > 1.5,
    "1 < x <= z": lambda x, y, z: 1 < x <= z,
    "z not in [1]": lambda x, y, z: z not in [1],
    "1 < 2": lambda x, y, z: True,
}


@given(st.sets(st.sampled_from(sorted(RESTRICTIONS)), max_size=4), st.booleans())
def test_a_space_has_the_configs_that_satisfy_all_restrictions(texts: set[str], as_functions: bool) -> None:
    expected = {
        Config({"x": x, "y": y, "z": z})
        for x, y, z in itertools.product(*THREE.values())
        if all(RESTRICTIONS[text](x, y, z) for text in texts)
    }
    restrictions = [RESTRICTIONS[text] if as_functions else text for text in sorted(texts)]
    if not expected:
        with pytest.raises(SearchlabError, match="no config satisfies the restrictions: .* excludes all configs"):
            space_of(THREE, *restrictions)
        return
    space, rng = space_of(THREE, *restrictions), np.random.default_rng(0)
    for configs in (space.enumerate(), space.enumerate(rng), Space.enumerate(space, rng)):
        assert sorted(configs, key=str) == sorted(expected, key=str)
    assert space.size() == len(expected)
    for values in itertools.product(*THREE.values()):
        config = Config(dict(zip(THREE, values, strict=True)))
        assert (config in space) == (config in expected)
        own_rng, other_rng = (np.random.default_rng(1) for _ in range(2))
        assert space.repair(config, own_rng) == Space.repair(space, config, other_rng)
        if config in expected:
            assert space.config_at(space.index_of(config)) == config
            assert space.knobs(config) == Space.knobs(space, config)
            assert {space.mutate(config, rng), *space.neighbours(config, rng)} <= expected
    for index in range(space.range_length):
        if ProductSpace.config_at(space, index) not in expected:
            with pytest.raises(IndexError):
                space.config_at(index)
    assert {space.sample(rng) for _ in range(5)} <= expected
    copy = cloudpickle.loads(cloudpickle.dumps(space))
    assert copy.fingerprint == space.fingerprint and list(copy.enumerate()) == list(space.enumerate())


def test_all_configs_are_equally_likely() -> None:
    space = space_of({"x": [1, 2], "y": list(range(9))}, "x == 2 or y == 0")
    rng = np.random.default_rng(0)
    counts = Counter(space.sample(rng) for _ in range(5000))
    assert len(counts) == 10 and min(counts.values()) > 400


def test_functions_of_the_config_and_tiles_are_restricted() -> None:
    tiles = {"tile": [(1, 8), (2, 4), (8, 1)], "mode": ["a", "b"]}
    assert space_of(tiles, lambda config: config["tile"][0] > 1 and config["mode"] == "a").size() == 2
    assert space_of(tiles, "tile[0] <= 2", "mode == 'b'").size() == 2


@pytest.mark.parametrize(
    ("restrictions", "size"),
    [
        ([], 10**12),
        (["x0 * x1 <= 100", "x2 % x3 == 0"], 100 * 27 * 10**8),
        ([lambda x0, x11: x0 < x11], 45 * 10**10),
    ],
)
def test_a_huge_space_is_not_enumerated(restrictions: list[Any], size: int) -> None:
    parameters = {f"x{i}": list(range(1, 11)) for i in range(12)}
    space, rng = space_of(parameters, *restrictions), np.random.default_rng(0)
    configs = space.samples(rng, 100)
    assert len(set(configs)) == 100 and all(config in space for config in configs)
    assert len(list(itertools.islice(space.enumerate(rng), 10))) == 10
    assert space.config_at(space.index_of(configs[0])) == configs[0]
    assert space.size() == size


def test_a_space_with_too_many_configs_to_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_EVALUATED_VALUES", 2000)
    space = space_of({f"x{i}": list(range(10)) for i in range(6)}, lambda config: sum(config.values()) % 7 == 0)
    config = space.sample(np.random.default_rng(0))
    assert space.size() == 10**6 and sum(map(int, config.values())) % 7 == 0
    with pytest.raises(SearchlabError, match="2,000 values have been tried"):
        space_of({f"x{i}": list(range(10)) for i in range(6)}, lambda config: sum(config.values()) > 54)


@pytest.mark.parametrize(
    ("restriction", "message"),
    [
        ("X <= 3", "'X' is not a knob"),
        ("x <=", "is not an expression such as 'x * y <= 1024': invalid syntax"),
        ("", "is not an expression"),
        ("x = 3", "is not an expression"),
        ("__import__('os').system('x')", "it contains \"__import__('os').system('x')\""),
        ("x.__class__ == 3", "it contains 'x.__class__'"),
        ("[x for x in (1,)]", "it contains"),
        ("(lambda: 1)()", "it contains"),
        ("max(x, key=y)", "it contains 'max(x, key=y)'"),
        ("x is y", "it contains 'x is y'"),
        ("9 ** 9 ** 9 > x", "is too large"),
        ("'a' * 1000000000 == x", "'a' is not a number"),
        ("x / 0 > y", "fails for {'x': 1, 'y': 1}: ZeroDivisionError"),
        ("x < 'a'", "fails for {'x': 1}: TypeError"),
        ("-" * 3999 + "x", "is not an expression"),
        ("x" * 5000, "it is longer than 4000 characters"),
        ("nowhere:f", "No module named 'nowhere'"),
        (3, "must be an expression such as 'x * y <= 1024', or a function, not 3"),
        (lambda p, q: True, "has the parameters p, q; they must be names of knobs (x, y, z), or a single one"),
        (lambda x: x["a"], "fails for {'x': 1}: TypeError"),
    ],
)
def test_an_invalid_restriction_is_explained(restriction: Any, message: str) -> None:
    with pytest.raises(SearchlabError) as caught:
        space_of(THREE, restriction)
    assert message in str(caught.value)


def test_a_function_that_a_log_names_is_not_imported() -> None:
    plugin = SPACES.resolve({"name": "parameters", "options": {"parameters": THREE, "restrictions": ["this:s"]}})[0]
    with names_from("a.jsonl"), pytest.raises(SearchlabError, match="no installed package registers"):
        SPACES.make(plugin, KERNEL, resolve_target("recorded"))
