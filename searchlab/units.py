"""Units of throughput, which is the inverse of a cost, and the costs of values that need not be positive.

Policies, cost models and reports compare costs by their ratios, so costs must be positive. A value x that is to be
minimised has the cost x + sqrt(x^2 + 1), whose logarithm is asinh(x). It is close to 1 + x near zero, to 2x for large
values, and to 1 / (2 |x|) for large negative ones. Source: Burbidge, Magee and Robb, "Alternative transformations to
handle extreme values of the dependent variable" (JASA 83, 1988). A value that is to be maximised is negated first.
"""

from __future__ import annotations

import math
from typing import Any

RUNS = "runs/s"
"""The unit of throughput if the number of operations is unknown."""

VALUES = VALUE, NEGATED = "value", "-value"
"""The units if the costs are those of values that are maximised, or minimised."""


def cost_of_value(value: float, unit: str) -> float:
    """Return the cost of a value that a function has returned; without one of these units, it is a cost itself."""
    if unit not in VALUES:
        return float(value)
    size = math.hypot(value, 1.0) + abs(value)
    return size if (value > 0) == (unit == NEGATED) else 1 / size


def value_of_cost(cost: float, unit: str) -> float:
    """Invert :func:`cost_of_value`, except for differences after 15 digits."""
    if unit not in VALUES:
        return cost
    value = _invert(cost)
    return float(f"{value if unit == NEGATED else -value:.15g}") + 0.0  # no minus sign before zero


def convert_throughput(throughput: Any, unit: str) -> Any:
    """Return throughputs as charts and tables show them: values, with a minus sign if they are minimised.

    Where a throughput is 0, the value is NaN.
    """
    if unit not in VALUES:
        return throughput
    import numpy as np  # imported here because texts need no arrays

    return _invert(np.where(np.asarray(throughput) > 0, throughput, np.nan))


def _invert(ratio: Any) -> Any:
    """Return the x for which x + sqrt(x^2 + 1) is ``ratio``."""
    return (ratio - 1 / ratio) / 2
