"""Plug-ins by name, from entry points: listed from metadata, imported only when named, given options they declare."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from .errors import SearchlabError, did_you_mean

GROUPS = {"space": "searchlab.spaces", "policy": "searchlab.policies", "cost model": "searchlab.costmodels"}


def installed(kind: str) -> dict[str, EntryPoint]:
    """The plug-ins of a kind (a key of :data:`GROUPS`) by name; nothing is imported."""
    return {point.name: point for point in sorted(entry_points(group=GROUPS[kind]))}


def load(kind: str, name: str) -> type[Any]:
    """The class registered as ``name``, or named as ``module:Class``. Raises SearchlabError where there is none."""
    points = installed(kind)
    if name in points:
        module, _, attribute = points[name].value.partition(":")
    else:
        module, _, attribute = name.partition(":")
        if not attribute:
            raise SearchlabError(
                f"unknown {kind} {name!r}{did_you_mean(name, points)}. "
                f"One from another package must be installed and registered under {GROUPS[kind]!r}"
            )
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise SearchlabError(
            f"{kind} {name!r} cannot be loaded: {error}; is the package that has it installed?"
        ) from None
    if not isinstance(found, type):
        raise SearchlabError(f"{kind} {name!r} is {found!r}, not a class")
    return found


def options_of(cls: type[Any], fixed: int) -> dict[str, inspect.Parameter]:
    """The options of a plug-in: the parameters of its constructor after ``self`` and the ``fixed`` first ones."""
    parameters = list(inspect.signature(cls).parameters.values())[fixed:]
    return {p.name: p for p in parameters if p.name not in ("seed", "cost_model")}


def check_options(kind: str, name: str, cls: type[Any], fixed: int, options: Mapping[str, Any]) -> None:
    """Raise SearchlabError where ``options`` holds a name that the constructor of ``cls`` does not take."""
    known = options_of(cls, fixed)
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in known.values()):
        return
    for option in options:
        if option not in known:
            raise SearchlabError(f"{kind} {name!r} has no option {option!r}{did_you_mean(option, known)}")
