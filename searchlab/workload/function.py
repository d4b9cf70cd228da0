"""The workload ``python``: a Python function that returns the cost of a config, such as the time of a program."""

from __future__ import annotations

import functools
import inspect
import io
import pickle
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Never, Self, cast

import cloudpickle

from ..errors import SearchlabError, UnsupportedWorkload
from ..options import checks_arguments
from ..plugins import load_attribute, make_reference
from ..units import NEGATED, RUNS, VALUE
from .base import Workload
from .kernel import Kernel

Direction = Literal["", "maximize", "minimize"]
UNITS_BY_DIRECTION: dict[str, str] = {"": RUNS, "maximize": VALUE, "minimize": NEGATED}


@dataclass(frozen=True)
class Function(Kernel):
    """A Python function that measures a config and returns its cost in seconds, or any finite number.

    It receives the config or, if its parameters are names of knobs, the values of these knobs; see
    :func:`list_parameter_knobs`.

    Users specify it as ``python:MODULE:NAME``, followed by ``:maximize`` or ``:minimize`` if it returns any number, or,
    in Python, by the function itself, :func:`maximize` or :func:`minimize`. Logs contain only its name, and reading
    them never imports it.

    Attributes:
        name: ``MODULE:NAME``.
        function: The function, or None if it has not been imported yet.
        direction: Whether the values are maximised or minimised, or "" if they are positive costs.
    """

    function: Callable[[dict[str, Any]], Any] | None = field(default=None, compare=False, repr=False)
    direction: Direction = ""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[\w.]+:[\w.<>]+", self.name):
            raise SearchlabError(
                f"workload 'python:{self.name}' must be python:MODULE:NAME, for example python:my_module:my_function, "
                "which ':maximize' or ':minimize' may follow"
            )

    @classmethod
    def parse(cls, text: str) -> Self:
        name, _, direction = text.rpartition(":")
        if ":" in name and direction and direction in UNITS_BY_DIRECTION:
            return cls(name, direction=cast(Direction, direction))
        return cls(text)

    @classmethod
    def from_function(cls, function: Callable[..., Any], direction: Direction = "") -> Self:
        """Return the workload that measures configs with ``function``."""
        definition: Any = function
        while isinstance(definition, functools.partial):
            definition = definition.func
        name = make_reference(definition if hasattr(definition, "__qualname__") else type(definition))
        return cls(name, function=function, direction=direction)

    @property
    def spelling(self) -> str:
        return f"{self.name}:{self.direction}" if self.direction else self.name

    @property
    def unit(self) -> str:
        return UNITS_BY_DIRECTION[self.direction]

    def load(self) -> Callable[[dict[str, Any]], Any]:
        """Return the function, which is imported if only its name is known. Raises SearchlabError if this fails."""
        if self.function is None:
            function = load_attribute(self.name, f"workload '{self}'")
            if not callable(function):
                raise SearchlabError(f"workload '{self}' must be a function, not {function!r:.200}")
            object.__setattr__(self, "function", function)
        assert self.function is not None
        return self.function

    def __getstate__(self) -> dict[str, object]:
        return {**super().__getstate__(), "function": pickle_with_code(self.function)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({**state, "function": pickle.loads(state["function"])})

    def _refuse(self) -> Never:
        raise UnsupportedWorkload(
            f"{self} is a Python function and has no program; search it in the space 'parameters', for example with "
            f'space={{"x": [1, 2, 4]}}'
        )


def pickle_with_code(value: object) -> bytes:
    """Pickle ``value`` with its functions of a script, lambdas and closures, which cannot be pickled by their names."""
    buffer = io.BytesIO()
    _Pickler(buffer).dump(value)
    return buffer.getvalue()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """A cloudpickle that also pickles the code of functions with a cache, but not what is cached."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, _CACHE_TYPE) and (value.__module__ == "__main__" or "<locals>" in value.__qualname__):
            return _add_cache, (value.__wrapped__, value.cache_parameters())
        return super().reducer_override(value)


_CACHE_TYPE: Any = type(functools.cache(len))


def _add_cache(function: Callable[..., Any], parameters: Mapping[str, Any]) -> Any:
    return functools.lru_cache(**parameters)(function)


def call_with(function: Callable[..., Any], config: Mapping[str, Any]) -> Any:
    """Call a function with the knobs that its parameters name or, if they name none, with the config."""
    knobs = list_parameter_knobs(function, config)
    return function(**{name: config[name] for name in knobs}) if knobs else function(dict(config))


def list_parameter_knobs(function: Callable[..., Any], knob_names: Collection[str]) -> list[str]:
    """Return the knobs that a function's parameters name, or an empty list if it receives the config.

    Raises SearchlabError if it requires anything else.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some functions that are written in C have no signature
        return []
    variadic_kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    required_names = [
        parameter.name
        for parameter in parameters
        if parameter.default is parameter.empty and parameter.kind not in variadic_kinds
    ]
    if set(required_names) <= set(knob_names):
        return [parameter.name for parameter in parameters if parameter.name in knob_names]
    if len(required_names) > 1:
        raise SearchlabError(
            f"the function {getattr(function, '__qualname__', repr(function))!r} has the parameters "
            f"{', '.join(required_names)}; they must be names of knobs ({', '.join(knob_names)}), or a single one that "
            "receives the config"
        )
    return []


@checks_arguments
def maximize(function: Callable[..., Any]) -> Workload:
    """Return the workload of finding the config for which a function returns the largest number.

    Args:
        function: A function of knobs, or of the config, that returns any finite number, a list of numbers or
            ``{"value": ...}``. In study files, it is ``python:MODULE:NAME:maximize``.

    Example:
        >>> import searchlab
        >>> result = searchlab.tune(searchlab.maximize(lambda x: 1 - x**2), {"x": range(-3, 4)}, policy="grid")
        >>> result.best.value, result.best.config
        (1.0, Config({'x': 0}))
    """
    return Function.from_function(function, "maximize")


@checks_arguments
def minimize(function: Callable[..., Any]) -> Workload:
    """Return the workload of finding the config for which a function returns the smallest number.

    A number that is always positive, such as a time, needs no :func:`minimize`, and is better compared without it:
    small numbers are then compared by their ratio.

    Args:
        function: A function of knobs, or of the config, that returns any finite number, a list of numbers or
            ``{"value": ...}``. In study files, it is ``python:MODULE:NAME:minimize``.

    Example:
        >>> import searchlab
        >>> str(searchlab.minimize(searchlab.resolve_target))
        'python:searchlab.target:resolve_target:minimize'
    """
    return Function.from_function(function, "minimize")
