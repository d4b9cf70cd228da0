"""The ranges of values over which options are searched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from ..errors import SearchlabError
from ..options import check_option, find_numeric_type, list_literals

RANGE_FACTOR = 4
"""A derived range extends from the default divided by this factor to the default multiplied by it."""

Range = IntDistribution | FloatDistribution | CategoricalDistribution

Ranges = dict[str, Range]
"""The values to search, by option name."""


def make_range(name: str, values: Sequence[Any], annotation: Any) -> Range:
    """Return the range between two numbers, on a logarithmic scale if both are positive, or any other list of choices.

    Raises SearchlabError if ``annotation`` does not allow a value, or ``values`` are no list.
    """
    if not isinstance(values, list | tuple):
        raise SearchlabError(
            f"option {name!r} cannot be searched over {values!r}; specify the two ends of a range, as in "
            f"{name}=[2,64], or a list of choices"
        )
    values = [check_option(name, value, annotation) for value in values]
    try:
        if len(values) != 2 or not all(type(value) in (int, float) for value in values):
            return CategoricalDistribution(values)
        low, high = values
        kind = FloatDistribution if float in map(type, values) else IntDistribution
        return kind(low, high, log=low > 0)
    except ValueError as error:
        raise SearchlabError(f"option {name!r} cannot be searched over {values}: {error}") from None


def derive_ranges(defaults: Mapping[str, Any], annotations: Mapping[str, Any]) -> Ranges:
    """Return the ranges that follow from options' defaults and annotations, which may suggest none.

    Of a switch and of an option that is one of several words, all values are searched. A positive number is searched
    from a quarter to four times its value, within the declared bounds.
    """
    ranges: Ranges = {}
    for name, default in defaults.items():
        annotation = annotations.get(name, Any)
        if isinstance(default, bool):
            ranges[name] = make_range(name, [False, True], annotation)
        elif words := list_literals(annotation):
            ranges[name] = make_range(name, list(dict.fromkeys([*words, default])), annotation)
        elif isinstance(default, int | float) and default > 0:
            low, high = round_number(default / RANGE_FACTOR), round_number(default * RANGE_FACTOR)
            if isinstance(default, int):
                low, high = max(1, round(default / RANGE_FACTOR)), default * RANGE_FACTOR
            if (bounds := find_numeric_type(annotation)) is not None:
                low = low if bounds.ge is None else max(low, bounds.ge)
                high = high if bounds.le is None else min(high, bounds.le)
            if low < high:
                ranges[name] = make_range(name, [low, high], annotation)
    return ranges


def list_range_values(option_range: Range) -> list[Any]:
    """Return the two ends of a range, or the choices, as :func:`make_range` accepts them."""
    if isinstance(option_range, CategoricalDistribution):
        return list(option_range.choices)
    return [option_range.low, option_range.high]


def is_in_range(option_range: Range, value: Any) -> bool:
    if isinstance(option_range, CategoricalDistribution):
        return value in option_range.choices
    return isinstance(value, int | float) and option_range.low <= value <= option_range.high


def round_number(value: float) -> float:
    """Round to three significant digits, so that the value is easy to type into a study file."""
    return float(f"{value:.3g}")


def round_within(option_range: Range, value: Any) -> Any:
    """Round a number that Optuna has drawn from a range of floats, and return any other value as it is."""
    if not isinstance(option_range, FloatDistribution):
        return value
    return min(max(round_number(value), option_range.low), option_range.high)
