"""Types of NumPy arrays, and arrays of objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Floats = np.ndarray[Any, np.dtype[np.float64]]
Ints = np.ndarray[Any, np.dtype[np.int64]]

Array = np.ndarray[Any, np.dtype[Any]]
"""An array of any dtype, such as an operand of a program."""


def make_object_array(values: Sequence[Any]) -> Array:
    """Return ``values`` as an array of objects, shape (values,)."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array
