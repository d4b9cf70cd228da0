"""The workload ``python``: a Python function that returns the cost of a config, such as the time of a program."""

from __future__ import annotations

import functools
import pickle
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Never, Self

import cloudpickle

from ..errors import SearchlabError, UnsupportedWorkload
from ..plugins import load_attribute, reference_of
from .kernel import Kernel


@dataclass(frozen=True)
class Function(Kernel):
    """A Python function ``f(config)`` that measures a config and returns its cost in seconds.

    Users specify it as ``python:MODULE:NAME`` or, in Python, by the function itself. Logs contain only its name, and
    reading them never imports it.

    Attributes:
        name: ``MODULE:NAME``.
        function: The function, or None if it has not been imported yet.
    """

    function: Callable[[dict[str, Any]], Any] | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[\w.]+:[\w.<>]+", self.name):
            raise SearchlabError(
                f"workload 'python:{self.name}' must be python:MODULE:NAME, for example python:my_module:my_function"
            )

    @classmethod
    def parse(cls, text: str) -> Self:
        return cls(text)

    @classmethod
    def from_function(cls, function: Callable[..., Any]) -> Self:
        """Return the workload that measures configs with ``function``."""
        definition: Any = function
        while isinstance(definition, functools.partial):
            definition = definition.func
        return cls(
            reference_of(definition if hasattr(definition, "__qualname__") else type(definition)), None, function
        )

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
        # Functions of a script, lambdas and closures cannot be pickled by their names.
        return {**super().__getstate__(), "function": cloudpickle.dumps(self.function)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({**state, "function": pickle.loads(state["function"])})

    def _refuse(self) -> Never:
        raise UnsupportedWorkload(
            f"{self} is a Python function and has no program; search it in the space 'parameters', for example with "
            f'space={{"x": [1, 2, 4]}}'
        )
