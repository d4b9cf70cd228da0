"""Options that constructors of plug-ins declare: one declaration determines checks, listings and the schema."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import pytest
from msgspec.inspect import IntType

from searchlab import NeverTwice, SearchlabError
from searchlab.conformance import toys
from searchlab.costmodel import COST_MODELS
from searchlab.executors.contract import EXECUTORS
from searchlab.measure.settings import Settings
from searchlab.options import (
    Between,
    Count,
    NonNegative,
    Trials,
    UnitInterval,
    check_option,
    describe_values,
    find_numeric_type,
)
from searchlab.plugins import Plugin, PluginKind
from searchlab.policy import POLICIES
from searchlab.schema import convert
from searchlab.space import SPACES
from tests.support.cli import searchlab

if TYPE_CHECKING:
    from nowhere import Missing

KINDS: dict[str, tuple[PluginKind[Any], str]] = {
    "policy": (POLICIES, "PolicyEntry"),
    "space": (SPACES, "PluginEntry"),
    "costmodel": (COST_MODELS, "CostModelEntry"),
    "executor": (EXECUTORS, "Plugin"),
}
PLUG_INS = [(title, name) for title, (kind, _) in KINDS.items() for name in kind.entry_points_by_name()]

OTHER_VALUES = {
    ("policy", "bandit", "arms"),
    ("policy", "chain", "arms"),
    ("policy", "llm-seeded", "then"),
    ("policy", "chain", "trials"),
    ("space", "knob-template", "template"),
    ("space", "parameters", "parameters"),
    ("space", "parameters", "restrictions"),
    ("space", "parameters", "schedule"),
    ("space", "trace", "function"),
    ("executor", "slurm", "parameters"),
}
"""Options whose values are functions, plug-ins or mappings: their constructors check them."""

each_plug_in = pytest.mark.parametrize(("title", "name"), PLUG_INS, ids=["-".join(pair) for pair in PLUG_INS])


def options_of(title: str, name: str) -> tuple[type[Any], dict[str, inspect.Parameter]]:
    kind, _ = KINDS[title]
    cls = kind.load(name)
    return cls, kind.options_of(cls)


@cache
def schema() -> dict[str, Any]:
    full_schema: dict[str, Any] = json.loads(searchlab("schema").stdout)
    return full_schema


def values_at_bounds(declared: Any) -> tuple[list[Any], list[Any]]:
    """Return the values at the bounds of ``declared``, and values beyond these."""
    number = find_numeric_type(declared)
    if number is None:
        return [], [object(), math.nan]
    inside = [bound for bound in (number.ge, number.le) if bound is not None]
    is_integer = isinstance(number, IntType)
    beyond = [
        bound + sign if is_integer else math.nextafter(bound, sign * math.inf)
        for bound, sign in ((number.ge, -1), (number.le, 1))
        if bound is not None
    ]
    return inside, [*beyond, math.nan, math.inf, True, "7"]


@each_plug_in
def test_every_option_is_declared_and_its_bounds_hold(title: str, name: str) -> None:
    kind, _ = KINDS[title]
    cls, options = options_of(title, name)
    for option, parameter in options.items():
        declared = parameter.annotation
        if (title, name, option) in OTHER_VALUES:
            continue
        assert describe_values(declared), f"option {option!r} has no declaration that can be checked"
        inside, beyond = values_at_bounds(declared)
        for value in [parameter.default, *inside]:
            kind.check_options(Plugin(name, {option: value}), cls)
        for value in beyond:
            with pytest.raises(SearchlabError, match=f"option '{option}' (is|cannot be) "):
                kind.check_options(Plugin(name, {option: value}), cls)
            if title != "executor":  # derived from the standard library's class, which checks nothing
                with pytest.raises(SearchlabError, match=f"option '{option}' (is|cannot be) "):
                    cls(*[None] * kind.positional, **{option: value})


@pytest.mark.parametrize("name", COST_MODELS.entry_points_by_name())
def test_a_cost_model_starts_at_the_edge_of_what_it_declares(name: str) -> None:
    cls, options = options_of("costmodel", name)
    for option, parameter in options.items():
        for value in values_at_bounds(parameter.annotation)[0]:
            cls(seed=0, **{option: value})


@each_plug_in
def test_show_and_the_schema_have_what_is_declared(title: str, name: str) -> None:
    _, options = options_of(title, name)
    text = "" if title == "executor" else " ".join(searchlab("show", title, name).stdout.split())
    entries = schema()["$defs"][KINDS[title][1]]["allOf"]
    schema_options = next(
        e["then"]["properties"]["options"] for e in entries if e["if"]["properties"]["name"]["const"] == name
    )
    for option, parameter in options.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            assert schema_options["additionalProperties"]
            continue
        assert describe_values(parameter.annotation) in text or title == "executor"
        number, values = find_numeric_type(parameter.annotation), schema_options["properties"][option]
        if number is not None:
            alternatives = values.get("anyOf", [values])
            assert any((v.get("minimum"), v.get("maximum")) == (number.ge, number.le) for v in alternatives)


class Declares(NeverTwice):
    """A policy with every form of a declaration."""

    started = 0

    def __init__(
        self,
        space: Any,
        *,
        seed: int,
        legs: Count | None = 2,
        weight: NonNegative = 1.0,
        share: UnitInterval = 0.5,
        gait: Literal["walk", "run"] | Sequence[int] = "walk",
        odd: Missing = None,
        plain: Any = None,
        bare=0,
    ) -> None:
        self.received = {"weight": weight, "odd": odd, "plain": plain, "bare": bare}
        Declares.started += 1

    def propose(self, n: int, rng: Any) -> list[Any]:
        return []


def test_no_plug_in_is_started_to_show_its_options() -> None:
    started = Declares.started
    result = searchlab("show", "policy", "tests.core.test_options:Declares")
    assert Declares.started == started
    lines = {line.split()[0]: " ".join(line.split()[2:]) for line in result.stdout.splitlines() if line.split()}
    assert lines["legs"] == "a whole number of at least 1, or null"
    assert lines["share"] == "a number from 0 to 1"
    assert lines["gait"] == "one of 'walk', 'run', or a list in which each item is a whole number"
    assert lines["odd"] == "Missing"  # only type checkers can tell what that is


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"legs": 0}, "option 'legs' is 0; it must be a whole number of at least 1, or null"),
        ({"legs": 2.0}, "option 'legs' is 2.0; it must be a whole number"),
        ({"weight": -0.5}, "option 'weight' is -0.5; it must be a number of at least 0"),
        ({"share": 1.5}, "option 'share' is 1.5; it must be a number from 0 to 1"),
        ({"gait": "ran"}, "option 'gait' cannot be 'ran'; did you mean 'run'"),
        ({"legs": 10**400}, "option 'legs' is 10+; it must be a whole number"),
        ({"weight": 10**400}, "option 'weight' is 10+; it must be a number"),
        ({"weight": float("inf")}, "option 'weight' is inf; it must be a number"),
        ({"gait": "\ud800"}, r"option 'gait' cannot be '\\ud800'"),
        ({"gait": {1, 2}}, "option 'gait' is {1, 2}; it must be one of 'walk', 'run', or a list"),
        ({"gait": [1, "2"]}, r"option 'gait' is \[1, '2'\]; it must be one of 'walk', 'run', or a list"),
    ],
)
def test_a_class_that_a_script_calls_checks_its_options_too(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(SearchlabError, match=message):
        Declares(toys.Small(), seed=0, **kwargs)


def test_undeclared_options_are_free_and_ints_become_floats() -> None:
    anything = object()
    policy = Declares(toys.Small(), seed=0, legs=None, weight=2, odd=anything, plain=anything, bare=anything)
    assert type(policy.received.pop("weight")) is float
    assert set(policy.received.values()) == {anything}
    assert list(inspect.signature(Declares).parameters)[:3] == ["space", "seed", "legs"]


def test_bounds_may_be_open_and_words_keep_their_order() -> None:
    assert describe_values(Annotated[float, Between(1e-3)]) == "a number of at least 0.001"
    assert describe_values(Literal["late", "early"]) == "one of 'late', 'early'"
    assert describe_values(int | Sequence[dict[str, int]]) == describe_values("int") == describe_values(Any) == ""
    assert describe_values(Trials) == "a whole number from 1 to 1000000000"
    assert check_option("n", 10**30, Count) == 10**30
    assert get_origin(Count) is Annotated and get_args(Count)[0] is int


@pytest.mark.parametrize("data", [{"kind": "\ud800"}, {"kind": "local", "statistic": "\ud800"}])
def test_text_that_is_no_unicode_is_one_sentence(data: dict[str, str]) -> None:
    with pytest.raises(SearchlabError, match=r"measure: '\\ud800' is not valid Unicode"):
        convert(data, Settings, "measure")
