"""Formatting numbers, names and sentences for reports."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cache
from itertools import groupby
from typing import Any

from jinja2 import Environment, StrictUndefined, Template


def format_number(value: float | None, digits: int | None = None) -> str:
    """Format a number with ``digits`` decimal places, or with three significant digits. None becomes a dash."""
    if value is None:
        return "-"
    if digits is not None:
        return f"{value:z,.{digits}f}"  # z: no minus sign before zero
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    if abs(value) >= 1e-3:
        return f"{value:.3g}"
    return "< 0.001" if value > 0 else "> -0.001"


def format_p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.2g}"


def format_p_equation(value: float) -> str:
    """Format a p-value for use in a sentence: "p < 0.001" or "p = 0.02"."""
    return f"p {'' if value < 0.001 else '= '}{format_p(value)}"


def name_area(by: str) -> str:
    """Return the name of the area under the curve over ``by``, which is "trials" or "seconds"."""
    return "area under the curve" if by == "trials" else f"area under the curve over {by}"


def counted(number: int, noun: str) -> str:
    """Return a count with its noun, such as "1 run", "2 runs" or "2 strategies"."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def listed(names: Collection[str], most: int | None = 3) -> str:
    """Join names, as in "a, b, c and 3 more"; ``most`` limits their number."""
    shown = list(names)[:most]
    if len(names) > len(shown):
        shown.append(f"{len(names) - len(shown)} more")
    return " and ".join(filter(None, [", ".join(shown[:-1]), *shown[-1:]]))


def format_ranges(numbers: Iterable[int]) -> str:
    """Format numbers in ascending order, with consecutive ones as ranges: "0 to 4, 7, 42"."""
    ordered = sorted(set(numbers))
    ranges = [
        [number for _, number in group] for _, group in groupby(enumerate(ordered), lambda pair: pair[1] - pair[0])
    ]
    texts = [f"{bounds[0]} to {bounds[-1]}" if len(bounds) > 2 else ", ".join(map(str, bounds)) for bounds in ranges]
    return ", ".join(texts)


def format_percent(fraction: float) -> str:
    return f"{100 * fraction:.0f} %"


@cache
def _compile(template: str) -> Template:
    environment = Environment(undefined=StrictUndefined)
    environment.filters |= {
        "counted": counted,
        "listed": listed,
        "number": format_number,
        "p_equals": format_p_equation,
        "percent": format_percent,
    }
    return environment.from_string(" ".join(template.split()))


def fill_template(template: str, **values: Any) -> str:
    """Fill ``values`` into a Jinja template, in which line breaks count as spaces."""
    return _compile(template).render(values).strip()
