"""The inputs with which programs are checked and timed, and the results that are right for them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ..arrays import Array
from ..workload import Workload
from ..workload.base import compute_results

SEED_OFFSET = 1 << 20
"""The difference between the seeds of the two cases, if no inputs with exact results exist."""


class Case(NamedTuple):
    """The inputs for a workload's programs, by name, and the expected results with their tolerance.

    Attributes:
        expected_results: The results that are right; empty if results are not checked.
    """

    inputs: dict[str, Array]
    expected_results: tuple[Array, ...] = ()
    rtol: float = 0.0
    atol: float = 0.0

    def describe_error(self, results: Iterable[Array]) -> str | None:
        """Return a description of what is wrong with a program's results, or None if they are right or unchecked."""
        for number, (expected, result) in enumerate(zip(self.expected_results, results, strict=False)):
            if error := _describe_largest_error(result, expected, self.rtol, self.atol):
                return f"in result {number}, {error}" if len(self.expected_results) > 1 else error
        return None


class Cases(NamedTuple):
    """The case on which a program is checked before it is timed, and the case on which it is timed.

    Attributes:
        checked_case: The first case, or None if results are not checked.
    """

    checked_case: Case | None
    timed_case: Case


def make_cases(workload: Workload, check: bool, seed: int = 0, error_factor: float = 1.0) -> Cases:
    """Return the cases for a workload's programs.

    Where possible, the results of the first case are exact, so that a single missing summand shows; see
    :meth:`Workload.exact_inputs`.

    Args:
        workload: The workload.
        check: Whether results are checked.
        seed: The seed for drawing the inputs.
        error_factor: The factor by which the workload's tolerance is multiplied.
    """
    inputs = workload.inputs(seed)
    if not check:
        return Cases(None, Case(inputs))
    rtol, atol = (error_factor * tolerance for tolerance in workload.tolerance())
    timed_case = Case(inputs, compute_results(workload, inputs), rtol, atol)
    exact_inputs = workload.exact_inputs(seed)
    if exact_inputs is None:
        inputs = workload.inputs(seed + SEED_OFFSET)
    elif error_factor == 1:
        inputs, rtol, atol = exact_inputs, 0.0, 0.5  # every wrong result is off by at least 1
    else:
        inputs, atol = exact_inputs, max(0.5, atol)
    return Cases(Case(inputs, compute_results(workload, inputs), rtol, atol), timed_case)


def make_wrong_values(expected: Array) -> Array:
    """Return an array of wrong values, all different from ``expected``, that look like results of the workload."""
    shifted_values = np.roll(expected.reshape(-1), 1).reshape(expected.shape)
    if expected.dtype == np.bool_:
        return np.logical_not(expected)
    if np.issubdtype(expected.dtype, np.integer):
        return np.where(shifted_values == expected, np.invert(expected), shifted_values)
    size = np.nan_to_num(np.abs(expected.astype(np.float64)), nan=1.0, posinf=1.0)
    is_close = ~(np.abs(shifted_values.astype(np.float64) - expected.astype(np.float64)) > 0.1 * size)
    distant_values = np.where(np.signbit(expected), 1 + size, -1 - size).astype(expected.dtype)
    return np.where(is_close, distant_values, shifted_values).astype(expected.dtype)


def _describe_largest_error(result: Array, expected: Array, rtol: float, atol: float) -> str | None:
    """Return a description of the largest error in ``result``, or None if the result is right."""
    excess = np.abs(result.astype(np.float64) - expected) - (atol + rtol * np.abs(expected))
    if (excess <= 0).all():
        return None
    excess[np.isnan(excess)] = np.inf
    excess[np.isnan(expected) & np.isnan(result.astype(np.float64)) | (result == expected)] = -np.inf
    worst = np.unravel_index(np.argmax(excess), excess.shape)
    if excess[worst] <= 0:
        return None
    indices = ", ".join(str(int(index)) for index in worst)
    count = int((excess > 0).sum())
    return (
        f"{count} of {excess.size} elements are off; at [{indices}], the result is {result[worst]} instead of "
        f"{expected[worst]}"
    )
