"""A TVM schedule without the type checks in its Python methods, which are too slow for a search."""

from __future__ import annotations

from tvm.s_tir import Schedule

# The checks take longer than most primitives. Without them, an argument of the wrong type causes an error later.
Unchecked: type = type(
    "Unchecked",
    (Schedule,),
    {"__slots__": ()}
    | {name: step.__wrapped__ for name, step in vars(Schedule).items() if hasattr(step, "__wrapped__")},
)
"""A schedule without type checks; ``copy()`` returns a plain schedule."""
