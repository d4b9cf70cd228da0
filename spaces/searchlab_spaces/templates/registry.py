"""Templates by name: registered by the decorator :func:`template` or by an entry point, imported only when named."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any

from searchlab.errors import SearchlabError, UnsupportedWorkload, did_you_mean
from searchlab.plugins import entry_points_of
from searchlab.target import Target
from searchlab.workload import Workload

from .knobs import TemplateConfig

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

GROUP = "searchlab.templates"
"""The entry-point group of templates: ``name = "module:function"``."""

Function = Callable[[TemplateConfig, "Schedule", Target], None]
"""A template: ``template(config, schedule, target)`` returns nothing.

It defines its knobs on the config, as ``tile = config.define_split("tile_i", i, num_outputs=2)``, and applies their
values to the schedule of the workload's ``main``, a ``tvm.s_tir.Schedule``. The target says what the program is for.
"""


@dataclass(frozen=True)
class Template:
    """A registered function, with the op and the kind of TVM target that it is for; any where empty."""

    name: str
    function: Function
    op: str = ""
    target: str = ""

    def check(self, workload: Workload, target: Target) -> None:
        """Raise UnsupportedWorkload where this is not for ``workload`` on ``target``."""
        if (self.op or workload.op, self.target or target.kind) != (workload.op, target.kind):
            raise UnsupportedWorkload(
                f"template {self.name!r} is for {self.op or 'any op'} on {self.target or 'any target'}, "
                f"not {workload} on {target.kind}"
            )


_decorated: dict[str, Template] = {}
# What a script or notebook registers has nowhere else to go; it is only ever looked up by name.


def template(name: str, *, op: str = "", target: str = "") -> Callable[[Function], Function]:
    """Register the function that follows as the template ``name``, for ``op`` on targets of kind ``target``.

    The function is called as ``function(config, schedule, target)``: see :data:`Function`.

    The option ``template`` of ``knob-template`` then takes this name. Decorating a function of the same name
    again replaces it, as a notebook does; raises SearchlabError where the name is another function's.
    """

    def register(function: Function) -> Function:
        known = _decorated.get(name)
        if known is not None and _reference(known.function) != _reference(function):
            raise SearchlabError(
                f"{_reference(function)} cannot be the template {name!r}: {_reference(known.function)} is; rename one"
            )
        _decorated[name] = Template(name, function, op, target)
        return function

    return register


def installed_templates() -> dict[str, EntryPoint]:
    """The templates of installed packages, by name; nothing is imported."""
    return {point.name: point for point in entry_points_of(GROUP)}


def find_template(name: str | Function) -> Template:
    """The template registered as ``name``, the function that ``"module:function"`` names, or the function ``name``.

    Raises SearchlabError where there is none, where two packages or scripts give it this name, or where it does not
    take the arguments of a template.
    """
    if not isinstance(name, str):
        return _template_of(_reference(name) if callable(name) else repr(name), name)
    points = installed_templates()
    if name in points:
        installed = _load(name, points[name].value)
        if name in _decorated and _decorated[name].function is not installed.function:
            raise SearchlabError(
                f"two templates are called {name!r}: {points[name].value} is installed, and "
                f"{_reference(_decorated[name].function)} is decorated; rename yours"
            )
        return installed
    if name in _decorated:
        return _decorated[name]
    if ":" not in name:
        raise SearchlabError(
            f"unknown template {name!r}{did_you_mean(name, {*points, *_decorated})}. One from another package must be "
            f'registered under {GROUP!r}, or named as "module:function"; one that a script registers is known in it '
            f"alone"
        )
    return _load(name, name)


def _load(name: str, reference: str) -> Template:
    module, _, attribute = reference.partition(":")
    try:
        function = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise SearchlabError(f"template {name!r} cannot be loaded: {error}") from None
    return _template_of(name, function)


def _template_of(name: str, function: Any) -> Template:
    if not callable(function):
        raise SearchlabError(f"template {name!r} is {function!r:.200}, not a function")
    try:
        inspect.signature(function).bind("config", "schedule", "target")
    except (TypeError, ValueError):
        raise SearchlabError(
            f"template {name!r} cannot be called as template(config, schedule, target), but has the signature "
            f"{inspect.signature(function)}; see the docstring of searchlab_spaces.template"
        ) from None
    decorated = (known for known in _decorated.values() if known.function is function)
    return next(decorated, Template(name, function))


def _reference(function: Function) -> str:
    return f"{function.__module__}:{function.__qualname__}"
