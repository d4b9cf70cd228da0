"""Plug-in options, which are declared by a constructor's annotations and checked against them.

    def __init__(self, space, *, seed, restart: Annotated[float, Between(0, 1)] = 0.2, kind: Literal["a", "b"] = "a")

A value is checked if the annotation is ``bool``, ``int``, ``float``, ``str``, ``None``, ``Literal``, a sequence of
these or a union. Other annotations accept any value, and so do those that use names imported only for type checkers.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec.inspect import BoolType, FloatType, IntType, ListType, LiteralType, NoneType, StrType, Type, UnionType

from .errors import SearchlabError, did_you_mean

SUPPLIED = ("seed", "cost_model")
"""The keyword parameters of constructors that searchlab supplies, and that are therefore not options."""


def Between(low: float, high: float | None = None) -> msgspec.Meta:
    """Restrict a number to an inclusive range, as in ``Annotated[int, Between(2, 1024)]``. ``high`` is optional."""
    return msgspec.Meta(ge=low, le=high)


Natural = Annotated[int, Between(0)]
Count = Annotated[int, Between(1)]
NonNegative = Annotated[float, Between(0)]
UnitInterval = Annotated[float, Between(0, 1)]


class ChecksOptions:
    """A base class that wraps its subclasses' constructors to check the options passed by keyword.

    An invalid option therefore causes the same error in a script as in a study file.
    """

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        if "__init__" in vars(cls):
            cls.__init__ = _checking(cls.__init__)  # type: ignore[method-assign]


def _checking(constructor: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(constructor)
    def checking(self: Any, *args: Any, **given: Any) -> None:
        declared = declared_options(constructor)
        options = {name: checked(name, given[name], declared[name]) for name in given if name in declared}
        constructor(self, *args, **(given | options))

    return checking


@functools.cache
def declared_options(constructor: Callable[..., Any]) -> dict[str, Any]:
    """Return a mapping from each option that can be checked to its evaluated annotation."""
    constructor = inspect.unwrap(constructor)
    names = getattr(constructor, "__globals__", {})
    declared = {}
    for name, annotation in getattr(constructor, "__annotations__", {}).items():
        try:  # one at a time, because an annotation may use a name that is imported only for type checkers
            hints = get_type_hints(SimpleNamespace(__annotations__={name: annotation}), names, include_extras=True)
        except Exception:  # evaluating an annotation may raise anything
            continue
        if name not in (*SUPPLIED, "return") and _alternatives(hints[name]):
            declared[name] = hints[name]
    return declared


def checked(name: str, value: Any, declared: Any) -> Any:
    """Check an option's value and return it, converted to a float if the option is declared as a float.

    Args:
        name: The option's name, for the error message.
        value: The value to check.
        declared: The option's annotation. If it cannot be checked, any value is accepted.

    Raises:
        SearchlabError: If ``declared`` does not allow ``value``.
    """
    alternatives = _alternatives(declared)
    if not alternatives:
        return value
    for kind in alternatives:
        if _fits(value, kind):
            return float(value) if isinstance(kind, FloatType) else value
    words = list(map(str, _words(declared)))
    if words and (isinstance(value, str) or all(isinstance(kind, LiteralType) for kind in alternatives)):
        raise SearchlabError(f"option {name!r} cannot be {value!r}{did_you_mean(str(value), words)}")
    raise SearchlabError(f"option {name!r} is {value!r}; it must be {in_words(declared)}")


def in_words(declared: Any) -> str:
    """Describe the values that an option accepts, as in ``a whole number of at least 1``; empty if all are accepted."""
    return ", or ".join(_phrase(kind) for kind in _alternatives(declared))


def number_of(declared: Any) -> IntType | FloatType | None:
    """Return the numeric type that an option accepts, with bounds ``ge`` and ``le``, or None if it accepts none."""
    return next((kind for kind in _alternatives(declared) if isinstance(kind, IntType | FloatType)), None)


def _alternatives(declared: Any) -> Sequence[Type]:
    """Return the types that ``declared`` allows, or an empty sequence if any part of it cannot be checked."""
    try:
        kind = msgspec.inspect.type_info(declared)
    except Exception:  # a type that msgspec does not know
        return ()
    kinds = kind.types if isinstance(kind, UnionType) else (kind,)
    if not all(map(_is_checked, kinds)):
        return ()
    return [LiteralType(_words(declared)) if isinstance(kind, LiteralType) else kind for kind in kinds]


def _words(declared: Any) -> tuple[Any, ...]:
    """Return the ``Literal`` values in ``declared`` in their original order, since msgspec sorts them."""
    parts = get_args(declared)
    return parts if get_origin(declared) is Literal else tuple(word for part in parts for word in _words(part))


def _is_checked(kind: Type) -> bool:
    if isinstance(kind, ListType):
        return _is_checked(kind.item_type)
    return isinstance(kind, NoneType | BoolType | IntType | FloatType | StrType | LiteralType)


def _fits(value: Any, kind: Type) -> bool:
    if isinstance(kind, NoneType):
        return value is None
    if isinstance(kind, LiteralType):
        return any(type(value) is type(known) and value == known for known in kind.values)
    if isinstance(kind, ListType):
        return (
            isinstance(value, Sequence) and not isinstance(value, str) and all(_fits(v, kind.item_type) for v in value)
        )
    if isinstance(kind, IntType | FloatType):
        number = isinstance(value, int if isinstance(kind, IntType) else int | float) and not isinstance(value, bool)
        low, high = _bounds(kind)
        return number and low <= value <= high and abs(value) < float("inf")
    return isinstance(value, bool if isinstance(kind, BoolType) else str)


def _bounds(kind: IntType | FloatType) -> tuple[float, float]:
    low = float("-inf") if kind.ge is None else kind.ge
    return low, float("inf") if kind.le is None else kind.le


def _phrase(kind: Type) -> str:
    if isinstance(kind, LiteralType):
        return f"one of {', '.join(map(repr, kind.values))}"
    if isinstance(kind, ListType):
        return f"a list in which each item is {_phrase(kind.item_type)}"
    if isinstance(kind, IntType | FloatType):
        noun = "a whole number" if isinstance(kind, IntType) else "a number"
        low, high = _bounds(kind)
        if kind.le is None:
            return noun if kind.ge is None else f"{noun} of at least {low:g}"
        return f"{noun} from {low:g} to {high:g}"
    return {NoneType: "null", BoolType: "true or false"}.get(type(kind), "a string")
