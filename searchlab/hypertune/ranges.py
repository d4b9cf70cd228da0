"""The options of a policy as a search space: ranges that the user sets, or that follow from the defaults."""

from __future__ import annotations

import inspect
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.inspect import FloatType
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from ..errors import SearchlabError
from ..options import number_of
from ..policy import POLICIES

FACTOR = 4
"""A derived range goes from the default divided by this to the default times this."""

Range = IntDistribution | FloatDistribution | CategoricalDistribution
Ranges = dict[str, Range]
"""The values to search, by the name of the option."""


def parse_options(texts: Sequence[str], name: str, cls: type[Any]) -> Ranges:
    """Read the ranges in ``texts`` for options of the policy ``cls``, called ``name``.

    ``option=low..high`` is a range, of integers if both ends are integers and the option is no float;
    ``option=low..high:log`` is a range on a logarithmic scale. ``option=a,b,c`` are choices: each is read as JSON if it
    is JSON, else as text.

    Raises:
        SearchlabError: A text has another form, or names an option that the policy does not take, or names one twice.
    """
    ranges: Ranges = {}
    for text in texts:
        option, _, given = text.partition("=")
        if not option or not given:
            raise SearchlabError(
                f"--option {text!r} has no values to search; write name=low..high, name=low..high:log or name=a,b,c"
            )
        POLICIES.check_names(name, cls, [option])
        if option in ranges:
            raise SearchlabError(f"--option {option} is given twice; give it once, with all values to search")
        if ends := re.fullmatch(r"(.+?)\.\.(.+?)(:log)?", given):
            parameter = POLICIES.options_of(cls).get(option)
            ranges[option] = _range(text, ends, parameter is not None and _is_float(parameter))
        else:
            ranges[option] = _choices(text, given)
    return ranges


def _is_float(parameter: inspect.Parameter) -> bool:
    return isinstance(number_of(parameter.annotation), FloatType) or isinstance(parameter.default, float)


def _range(text: str, ends: re.Match[str], is_float: bool) -> Range:
    try:
        low, high = (int(end) if re.fullmatch(r"[+-]?\d+", end) else float(end) for end in ends.group(1, 2))
    except ValueError:
        raise SearchlabError(f"--option {text!r}: the ends of a range are numbers, as in name=0.1..0.5") from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise SearchlabError(f"--option {text!r}: a range goes from a number to a greater one")
    if ends[3] and low <= 0:
        raise SearchlabError(f"--option {text!r}: a range on a logarithmic scale begins above 0")
    return FloatDistribution(low, high, log=bool(ends[3])) if is_float else _numbers(low, high, bool(ends[3]))


def _numbers(low: float, high: float, log: bool) -> Range:
    if isinstance(low, int) and isinstance(high, int):
        return IntDistribution(low, high, log=log)
    return FloatDistribution(low, high, log=log)


def _choices(text: str, given: str) -> Range:
    choices = []
    for choice in given.split(","):
        try:
            choices.append(json.loads(choice))
        except json.JSONDecodeError:
            choices.append(choice)
    if any(isinstance(choice, list | dict) for choice in choices):
        raise SearchlabError(f"--option {text!r}: a choice is a number, a word, true, false or null")
    if len({(type(choice), choice) for choice in choices}) < len(choices):
        raise SearchlabError(f"--option {text!r} names a choice twice; name each once")
    return CategoricalDistribution(choices)


def defaults_of(cls: type[Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value of each option without a search: the one in ``given``, else the default of the constructor."""
    defaults = dict(given)
    for name, parameter in POLICIES.options_of(cls).items():
        value = given.get(name, parameter.default)
        if _is_float(parameter) and type(value) is int:
            value = float(value)  # otherwise only integers would be searched
        if value is not inspect.Parameter.empty:
            defaults[name] = value
    return defaults


def derive_ranges(defaults: Mapping[str, Any], cls: type[Any]) -> tuple[Ranges, dict[str, Any]]:
    """Return ranges around ``defaults``, and the defaults that suggest no range: words, lists, 0 and None.

    A number above 0 is searched from a quarter of it to four times it, on a logarithmic scale, within the bounds that
    the policy ``cls`` declares. A switch is searched in both positions.
    """
    ranges: Ranges = {}
    options = POLICIES.options_of(cls)
    for name, default in defaults.items():
        if isinstance(default, bool):
            ranges[name] = CategoricalDistribution([False, True])
        elif isinstance(default, int | float) and math.isfinite(default) and default > 0:
            low: float
            high: float
            if isinstance(default, int):
                low, high = max(1, round(default / FACTOR)), default * FACTOR
            else:
                low, high = rounded(default / FACTOR), rounded(default * FACTOR)
            declared = number_of(options[name].annotation) if name in options else None
            if declared is not None:
                low = low if declared.ge is None else type(default)(max(low, declared.ge))
                high = high if declared.le is None else type(default)(min(high, declared.le))
            if low < high:
                ranges[name] = _numbers(low, high, log=True)
    return ranges, {name: default for name, default in defaults.items() if name not in ranges}


def rounded(value: float) -> float:
    """Round to three digits, so that the value can be typed into a study file."""
    return float(f"{value:.3g}")


def spelled(values: Range) -> str:
    """Return the range as ``--option`` takes it."""
    if isinstance(values, CategoricalDistribution):
        return ",".join(choice if isinstance(choice, str) else json.dumps(choice) for choice in values.choices)
    return f"{values.low}..{values.high}" + (":log" if values.log else "")


def holds(values: Range, value: Any) -> bool:
    """Return whether ``value`` is in the range."""
    if isinstance(values, CategoricalDistribution):
        return any(type(choice) is type(value) and choice == value for choice in values.choices)
    numbers = (int,) if isinstance(values, IntDistribution) else (int, float)
    return type(value) in numbers and values.low <= value <= values.high
