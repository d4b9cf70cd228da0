"""Modules that have moved, since study files and logs name functions in them: ``function = "module:function"``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MOVED = {
    "searchlab_spaces.stochastic": "searchlab_spaces.trace.cpu",
    "searchlab_spaces.stochastic_cuda": "searchlab_spaces.trace.cuda",
    "searchlab_spaces.templates_cpu": "searchlab_spaces.templates.cpu",
    "searchlab_spaces.templates_cuda": "searchlab_spaces.templates.cuda",
}
"""The name of a module in earlier versions -> its name today."""


def today(module: str) -> str:
    """The name that ``module`` has today."""
    return MOVED.get(module, module)


def updated(options: Mapping[str, Any], name: str) -> dict[str, Any]:
    """``options`` as an earlier log holds them, where the option ``name`` may be a function of a module that moved."""
    module, mark, function = str(options.get(name, "")).partition(":")
    return {**options, **({name: f"{today(module)}:{function}"} if mark else {})}
