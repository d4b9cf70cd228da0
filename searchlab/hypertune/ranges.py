"""The options of a policy as a search space: as they are given in words, or as its defaults suggest them."""

from __future__ import annotations

import inspect
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from ..errors import SearchlabError
from ..registry import check_options, options_of

FACTOR = 4
"""A derived range goes from the default divided by this to the default times this."""

HALVINGS = 10
DIGITS = 3

Ranges = dict[str, BaseDistribution]
"""What is searched, by the name of the option."""


def parse_options(texts: Sequence[str], name: str, cls: type[Any]) -> Ranges:
    """What each of ``texts`` says of an option of the policy ``cls``, called ``name``.

    ``option=low..high`` is a range, of whole numbers where both ends are and the option is no float;
    ``option=low..high:log`` one on a logarithmic scale; ``option=a,b,c`` are choices, each as JSON where it is that,
    else the text itself. Raises SearchlabError for anything else, for an option that the policy does not take, and for
    one that is given twice.
    """
    found: Ranges = {}
    for text in texts:
        option, equals, given = text.partition("=")
        if not option or not equals or not given:
            raise SearchlabError(
                f"--option {text!r} says nothing to search; write it as name=low..high, "
                f"name=low..high:log or name=a,b,c"
            )
        check_options("policy", name, cls, 1, {option: None})
        if option in found:
            raise SearchlabError(f"--option {option} is given twice; give it once, with all that is to be searched")
        ends = re.fullmatch(r"(.+?)\.\.(.+?)(:log)?", given)
        if ends:
            parameter = options_of(cls, 1).get(option)
            found[option] = _range(text, ends[1], ends[2], bool(ends[3]), parameter is not None and _is_real(parameter))
        else:
            found[option] = _choices(text, given)
    return found


def _is_real(parameter: inspect.Parameter) -> bool:
    return parameter.annotation in (float, "float") or isinstance(parameter.default, float)


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
    """What each option of a policy is where nothing is said: as ``given``, else the default of its constructor."""
    found: dict[str, Any] = {}
    for name, parameter in options_of(cls, 1).items():
        value = given.get(name, parameter.default)
        if _is_real(parameter) and type(value) is int:
            value = float(value)  # or it would be searched in whole numbers
        if value is not inspect.Parameter.empty:
            found[name] = value
    return dict(given) | found


def derive_ranges(defaults: Mapping[str, Any], takes: Callable[[str, Any], bool]) -> tuple[Ranges, dict[str, Any]]:
    """Ranges around ``defaults``, and the defaults from which no range follows.

    A number above 0 is searched between a quarter of it and four times it, on a logarithmic scale; where the policy
    does not take so much or so little, as far as it does. Of a switch both sides are searched. Of words, lists, 0 and
    None it is not known what else they may be.

    takes: whether the policy is made with this option at this value, and the others as they are.
    """
    ranges: Ranges = {}
    others: dict[str, Any] = {}
    for name, default in defaults.items():
        if isinstance(default, bool):
            ranges[name] = CategoricalDistribution([False, True])
            continue
        if isinstance(default, int | float) and math.isfinite(default) and default > 0:
            low, high = (_furthest(name, default, end, takes) for end in (default / FACTOR, default * FACTOR))
            if low < high:
                ranges[name] = _numbers(low, high, log=True)
                continue
        others[name] = default
    return ranges, others


def rounded(value: float) -> float:
    """To as many digits as are worth typing."""
    return float(f"{value:.{DIGITS}g}")


def _furthest(name: str, default: float, limit: float, takes: Callable[[str, Any], bool]) -> float:
    """The value from ``default`` towards ``limit`` that is furthest and still taken, by halving what is between."""

    def fit(value: float) -> float:
        return max(1, round(value)) if isinstance(default, int) else rounded(value)

    good, bad = default, fit(limit)
    if takes(name, bad):
        return bad
    for _ in range(HALVINGS):
        middle = fit((good + bad) / 2)
        if middle in (good, bad):
            break
        if takes(name, middle):
            good = middle
        else:
            bad = middle
    return good


def spelled(distribution: BaseDistribution) -> str:
    """As ``--option`` takes it."""
    if isinstance(distribution, IntDistribution | FloatDistribution):
        return f"{distribution.low}..{distribution.high}" + (":log" if distribution.log else "")
    assert isinstance(distribution, CategoricalDistribution)
    return ",".join(choice if isinstance(choice, str) else json.dumps(choice) for choice in distribution.choices)


def holds(distribution: BaseDistribution, value: Any) -> bool:
    """Whether ``value`` is one of those that are searched."""
    if isinstance(distribution, IntDistribution | FloatDistribution):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        whole = isinstance(distribution, FloatDistribution) or isinstance(value, int)
        return number and whole and distribution.low <= value <= distribution.high
    assert isinstance(distribution, CategoricalDistribution)
    return any(type(choice) is type(value) and choice == value for choice in distribution.choices)
