"""Numbers that users specify: each kind has one range, in files and in Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchlab import SearchlabError, Study
from searchlab.cli.parameters import parse_measure, parse_name_and_value
from searchlab.costmodel import make_cost_model
from searchlab.measure.settings import LocalSettings
from searchlab.options import Seconds, Seed, Trials, check_option
from searchlab.plugins import Plugin

STUDY: dict[str, Any] = {"policies": ["random"], "workloads": ["gemm:8x8x8"], "spaces": ["knob-template"]}


def seeds_of(value: Any) -> list[int]:
    return Study.from_dict({**STUDY, "seeds": value}).spec.seed_list


@pytest.mark.parametrize("seeds", [3, np.int64(3), range(3), np.arange(3), (0, 1, 2), [np.int32(0), 1, 2]], ids=repr)
def test_numpy_integers_and_ranges_are_seeds(seeds: Any) -> None:
    assert seeds_of(seeds) == [0, 1, 2]
    assert all(type(seed) is int for seed in seeds_of(seeds))


@pytest.mark.parametrize(
    "seeds", [True, 3.0, np.float64(3), 0, 10**9, range(10**9), [], [1, 1], [2**63], [-1], [True], [2.0], "3"], ids=repr
)
def test_other_values_are_not_seeds(seeds: Any) -> None:
    with pytest.raises(SearchlabError, match="seeds"):
        seeds_of(seeds)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("memory_limit_mb", 10**18),
        ("memory_limit_mb", -1),
        ("repeat", 10**9),
        ("repeat", True),
        ("number", 1.0),
        ("workers", 10**6),
        ("min_repeat_ms", 10**12),
        ("run_timeout", float("inf")),
        ("build_timeout", float("nan")),
        ("run_timeout", 0),
        ("prune_factor", float("inf")),
        ("finalists", 10**9),
        ("sentinel", -1),
    ],
)
def test_settings_have_ranges_in_files_and_in_python(name: str, value: Any) -> None:
    with pytest.raises(SearchlabError, match=f"{name} cannot be"):
        Study.from_dict({**STUDY, "measure": {"kind": "local", name: value}})
    with pytest.raises(ValueError, match=name):
        LocalSettings(**{name: value})


@pytest.mark.parametrize("key", ["trials", "batch", "stop_after", "seconds"])
@pytest.mark.parametrize("value", [0, -1, 10**15, True, "7x", float("nan"), float("inf")], ids=repr)
def test_budgets_have_ranges(key: str, value: Any) -> None:
    with pytest.raises(SearchlabError, match=key):
        Study.from_dict({**STUDY, key: value})


def test_a_checked_numpy_number_becomes_plain() -> None:
    assert type(check_option("trials", np.int16(3), Trials)) is int
    assert type(check_option("seconds", np.float32(3), Seconds)) is float
    for value in (np.bool_(True), np.float64(3), np.array([3]), True, 3.0):
        with pytest.raises(SearchlabError, match="seed"):
            check_option("seed", value, Seed)


def test_data_that_contains_itself_is_refused() -> None:
    data: dict[str, Any] = dict(STUDY)
    data["measure"] = data
    with pytest.raises(SearchlabError, match="nested"):
        Study.from_dict(data)
    deep = "[" * 100_000
    with pytest.raises(SearchlabError, match="JSON"):
        parse_measure('{"kind": ' + deep)
    assert parse_name_and_value(f"x={deep}") == ("x", deep)


@pytest.mark.parametrize("name", ["random", "ridge", "random-forest", "xgboost", "lightgbm"])
@pytest.mark.parametrize("seed", [2**32, 2**63 - 1])
def test_large_seeds_work_in_every_library(name: str, seed: int) -> None:
    model = make_cost_model(Plugin(name), seed)
    features = np.arange(24.0).reshape(8, 3)
    model.fit(features, np.linspace(0, 1, 8), np.zeros(8, dtype=np.int64))
    assert np.isfinite(model.predict(features)).all()
    assert make_cost_model(Plugin(name), 2**32 - 1).seed == 2**32 - 1


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from([2**63, 10**400]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from(sorted(Study.from_dict(STUDY).spec.__struct_fields__)), VALUES)
@settings(max_examples=300, deadline=None)
def test_any_value_of_a_study_key_gives_a_study_or_a_sentence(key: str, value: Any) -> None:
    try:
        Study.from_dict({**STUDY, key: value})
    except SearchlabError as error:
        assert str(error)
