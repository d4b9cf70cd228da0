"""A TVM schedule without the checks of TVM's Python of what each of its steps is given, for searches."""

from __future__ import annotations

from tvm.s_tir import Schedule

# These checks take longer than most steps do. Without them a step that is given something of a wrong type fails later.
Unchecked: type = type(
    "Unchecked",
    (Schedule,),
    {"__slots__": ()}
    | {name: step.__wrapped__ for name, step in vars(Schedule).items() if hasattr(step, "__wrapped__")},
)
"""``copy()`` of one gives a plain schedule."""
