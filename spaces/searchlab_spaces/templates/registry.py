"""Templates, registered by the decorator :func:`template` or an entry point, and imported only when requested."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any

from searchlab.errors import SearchlabError, UnsupportedWorkload, did_you_mean
from searchlab.plugins import list_entry_points, load_attribute, make_reference
from searchlab.target import Target
from searchlab.workload import Workload

from .knobs import TemplateConfig

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

ENTRY_POINT_GROUP = "searchlab.templates"
"""The entry-point group of templates: ``name = "module:function"``."""

TemplateFunction = Callable[[TemplateConfig, "Schedule", Target], None]
"""A template: a function ``template(config, schedule, target)`` that returns nothing.

It defines its knobs on the config, as in ``config.define_split("tile_i", i, num_outputs=2)``. It applies their values
to ``schedule``, the ``tvm.s_tir.Schedule`` of the workload's ``main``, to obtain a program that runs on the target.
"""


@dataclass(frozen=True)
class Template:
    """A registered template.

    Attributes:
        op: The operator; empty for any.
        target: The target kind; empty for any.
    """

    name: str
    function: TemplateFunction
    op: str = ""
    target: str = ""

    def check(self, workload: Workload, target: Target) -> None:
        """Raise UnsupportedWorkload if the template does not support ``workload`` on ``target``."""
        if (self.op or workload.op, self.target or target.kind) != (workload.op, target.kind):
            raise UnsupportedWorkload(
                f"template {self.name!r} supports only {self.op or 'any op'} on {self.target or 'any target'}, not "
                f"{workload} on {target.kind}"
            )


_decorated_templates: dict[str, Template] = {}
# Templates registered by scripts and notebooks.


def template(name: str, *, op: str = "", target: str = "") -> Callable[[TemplateFunction], TemplateFunction]:
    """Return a decorator that registers a function as a template.

    The function is called as ``function(config, schedule, target)``; see :data:`TemplateFunction`. Its name can then
    be passed as ``knob-template``'s option ``template``. Registering a redefinition of the same function, as in a
    notebook, replaces it.

    Args:
        name: The name of the template.
        op: The op that the template supports; by default, any.
        target: The target kind that the template supports; by default, any.

    Raises:
        SearchlabError: If a different function is already registered under this name.
    """

    def register(function: TemplateFunction) -> TemplateFunction:
        existing = _decorated_templates.get(name)
        if existing is not None and make_reference(existing.function) != make_reference(function):
            raise SearchlabError(
                f"{make_reference(function)} cannot be registered as template {name!r}: "
                f"{make_reference(existing.function)} is already registered under this name; rename one of them"
            )
        _decorated_templates[name] = Template(name, function, op, target)
        return function

    return register


def installed_templates() -> dict[str, EntryPoint]:
    """Return the installed packages' templates by name, without importing anything."""
    return {point.name: point for point in list_entry_points(ENTRY_POINT_GROUP)}


def find_template(name: str | TemplateFunction) -> Template:
    """Return the template called ``name``.

    Args:
        name: A registered template's name, ``"module:function"``, or a function.

    Raises:
        SearchlabError: If the template does not exist, if two templates have this name, or if the function does not
            accept a template's arguments.
    """
    if not isinstance(name, str):
        return _make_template(make_reference(name) if callable(name) else repr(name), name)
    points = installed_templates()
    if name in points:
        installed = _load_template(name, points[name].value)
        if name in _decorated_templates and _decorated_templates[name].function is not installed.function:
            raise SearchlabError(
                f"two templates are called {name!r}: the installed {points[name].value}, and "
                f"{make_reference(_decorated_templates[name].function)}; rename yours"
            )
        return installed
    if name in _decorated_templates:
        return _decorated_templates[name]
    if ":" not in name:
        raise SearchlabError(
            f"unknown template {name!r}{did_you_mean(name, {*points, *_decorated_templates})}; templates from other "
            f'packages must be registered in the group {ENTRY_POINT_GROUP!r} or passed as "module:function"; a '
            f"template registered by a script is known only in that script"
        )
    return _load_template(name, name)


def _load_template(name: str, reference: str) -> Template:
    return _make_template(name, load_attribute(reference, f"template {name!r}"))


def _make_template(name: str, function: Any) -> Template:
    if not callable(function):
        raise SearchlabError(f"template {name!r} must be a function, not {function!r:.200}")
    try:
        inspect.signature(function).bind("config", "schedule", "target")
    except (TypeError, ValueError):
        raise SearchlabError(
            f"template {name!r} cannot be called as template(config, schedule, target): its signature is "
            f"{inspect.signature(function)}; see the docstring of searchlab_spaces.templates.template"
        ) from None
    decorated = (template for template in _decorated_templates.values() if template.function is function)
    return next(decorated, Template(name, function))
