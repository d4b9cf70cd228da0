"""The options of a policy as a search space: ranges that the user gives, or that follow from the defaults."""

from __future__ import annotations

import inspect
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.inspect import FloatType
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from ..errors import SearchlabError
from ..options import number_of
from ..policy import POLICIES

FACTOR = 4
"""A derived range goes from the default divided by this to the default times this."""

DIGITS = 3

Ranges = dict[str, BaseDistribution]
"""The values to search, by the name of the option."""


def parse_options(texts: Sequence[str], name: str, cls: type[Any]) -> Ranges:
    """The ranges that ``texts`` give for options of the policy ``cls``, called ``name``.

    ``option=low..high`` is a range, of whole numbers if both ends are whole and the option is no float.
    ``option=low..high:log`` is a range on a logarithmic scale. ``option=a,b,c`` are choices: each is read as JSON, or
    else is the text itself. Raises SearchlabError for any other text, for an option that the policy does not take, and
    for an option that is given twice.
    """
    ranges: Ranges = {}
    for text in texts:
        option, equals, given = text.partition("=")
        if not option or not equals or not given:
            raise SearchlabError(
                f"--option {text!r} gives no values to search; write it as name=low..high, "
                f"name=low..high:log or name=a,b,c"
            )
        POLICIES.check_names(name, cls, [option])
        if option in ranges:
            raise SearchlabError(f"--option {option} is given twice; give it once, with all values to search")
        ends = re.fullmatch(r"(.+?)\.\.(.+?)(:log)?", given)
        if ends:
            parameter = POLICIES.options_of(cls).get(option)
            is_real = parameter is not None and _is_real(parameter)
            ranges[option] = _range(text, ends[1], ends[2], bool(ends[3]), is_real)
        else:
            ranges[option] = _choices(text, given)
    return ranges


def _is_real(parameter: inspect.Parameter) -> bool:
    return isinstance(number_of(parameter.annotation), FloatType) or isinstance(parameter.default, float)


def _range(text: str, first: str, last: str, log: bool, real: bool) -> BaseDistribution:
    try:
        low, high = (int(end) if re.fullmatch(r"[+-]?\d+", end) else float(end) for end in (first, last))
    except ValueError:
        raise SearchlabError(f"--option {text!r}: the ends of a range are numbers, as in name=0.1..0.5") from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise SearchlabError(f"--option {text!r}: a range goes from a number to a greater one")
    if log and low <= 0:
        raise SearchlabError(f"--option {text!r}: a range on a logarithmic scale begins above 0")
    return FloatDistribution(low, high, log=log) if real else _numbers(low, high, log)


def _numbers(low: float, high: float, log: bool) -> BaseDistribution:
    if isinstance(low, int) and isinstance(high, int):
        return IntDistribution(low, high, log=log)
    return FloatDistribution(low, high, log=log)


def _choices(text: str, given: str) -> BaseDistribution:
    choices = [_value(choice) for choice in given.split(",")]
    if any(isinstance(choice, list | dict) for choice in choices):
        raise SearchlabError(f"--option {text!r}: a choice is a number, a word, true, false or null")
    if len({(type(choice), choice) for choice in choices}) < len(choices):
        raise SearchlabError(f"--option {text!r} names a choice twice; name each once")
    return CategoricalDistribution(choices)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def defaults_of(cls: type[Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The value of each option without a search: the one in ``given``, else the default of the constructor."""
    defaults: dict[str, Any] = {}
    for name, parameter in POLICIES.options_of(cls).items():
        value = given.get(name, parameter.default)
        if _is_real(parameter) and type(value) is int:
            value = float(value)  # or it would be searched in whole numbers
        if value is not inspect.Parameter.empty:
            defaults[name] = value
    return dict(given) | defaults


def derive_ranges(defaults: Mapping[str, Any], cls: type[Any]) -> tuple[Ranges, dict[str, Any]]:
    """Ranges around ``defaults``, and the defaults from which no range follows.

    A number above 0 is searched from a quarter of it to four times it, on a logarithmic scale, within the bounds that
    the policy ``cls`` declares. A switch is searched in both positions. Words, lists, 0 and None suggest no other
    values.
    """
    ranges: Ranges = {}
    others: dict[str, Any] = {}
    options = POLICIES.options_of(cls)
    for name, default in defaults.items():
        if isinstance(default, bool):
            ranges[name] = CategoricalDistribution([False, True])
            continue
        if isinstance(default, int | float) and math.isfinite(default) and default > 0:
            declared = number_of(options[name].annotation) if name in options else None
            low, high = _around(default)
            if declared is not None:
                low = low if declared.ge is None else type(default)(max(low, declared.ge))
                high = high if declared.le is None else type(default)(min(high, declared.le))
            if low < high:
                ranges[name] = _numbers(low, high, log=True)
                continue
        others[name] = default
    return ranges, others


def _around(default: float) -> tuple[float, float]:
    if isinstance(default, int):
        return max(1, round(default / FACTOR)), default * FACTOR
    return rounded(default / FACTOR), rounded(default * FACTOR)


def rounded(value: float) -> float:
    """``value`` with as many digits as are worth typing."""
    return float(f"{value:.{DIGITS}g}")


def spelled(distribution: BaseDistribution) -> str:
    """The range as ``--option`` takes it."""
    if isinstance(distribution, IntDistribution | FloatDistribution):
        return f"{distribution.low}..{distribution.high}" + (":log" if distribution.log else "")
    assert isinstance(distribution, CategoricalDistribution)
    return ",".join(choice if isinstance(choice, str) else json.dumps(choice) for choice in distribution.choices)


def holds(distribution: BaseDistribution, value: Any) -> bool:
    """Whether ``value`` is in the range."""
    if isinstance(distribution, IntDistribution | FloatDistribution):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        whole = isinstance(distribution, FloatDistribution) or isinstance(value, int)
        return number and whole and distribution.low <= value <= distribution.high
    assert isinstance(distribution, CategoricalDistribution)
    return any(type(choice) is type(value) and choice == value for choice in distribution.choices)
