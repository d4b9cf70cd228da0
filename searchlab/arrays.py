"""Type aliases for NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

Floats = np.ndarray[Any, np.dtype[np.float64]]
Ints = np.ndarray[Any, np.dtype[np.int64]]

Array = np.ndarray[Any, np.dtype[Any]]
"""An array of any dtype, such as an operand of a program."""
