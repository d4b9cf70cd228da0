"""Modules that have moved, since study files and logs name functions in them: ``function = "module:function"``."""

from __future__ import annotations

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
