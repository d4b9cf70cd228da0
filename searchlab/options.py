"""Plug-in options, which are declared by a constructor's annotations and checked against them.

    def __init__(self, space, *, seed, restart: Annotated[float, Between(0, 1)] = 0.2, kind: Literal["a", "b"] = "a")

A value is checked if the annotation is ``bool``, ``int``, ``float``, ``str``, ``None``, ``Literal``, a sequence of
these or a union. Other annotations accept any value, and so do those that use names imported only for type checkers.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import math
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from types import UnionType as PlainUnion
from typing import Annotated, Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

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

# The range of each kind of number that a user can specify, for the command line, study files, Python and settings. The
# upper limits are far beyond any sensible value, but small enough that neither memory nor time runs out.

Seed = Annotated[int, Between(0, (1 << 63) - 1)]
"""A seed. TOML and most JSON parsers cannot represent larger integers."""

Trials = Annotated[int, Between(1, 10**9)]
"""A number of trials."""

SeedCount = Annotated[int, Between(1, 10_000)]
"""A number of seeds. A study plans a run for each of them."""

Batch = Annotated[int, Between(1, 10_000)]
"""A number of configs to propose at a time."""

Jobs = Annotated[int, Between(1, 1024)]
"""A number of processes or threads."""

Repeats = Annotated[int, Between(1, 1_000_000)]
"""A number of executions, or of readings."""

Milliseconds = Annotated[int, Between(0, 3_600_000)]
"""A duration of at most an hour, in milliseconds."""

Megabytes = Annotated[int, Between(0, 1 << 30)]
"""An amount of memory in MB, at most one petabyte; 0 for no limit."""

Seconds = Annotated[float, msgspec.Meta(gt=0, lt=1e15)]
"""A time budget, in seconds."""

TimeLimit = Annotated[float, msgspec.Meta(gt=0, le=1e6)]
"""A time limit of at most 12 days, in seconds. Operating systems reject much longer ones."""

Share = Annotated[float, msgspec.Meta(gt=0, lt=1)]
"""A probability or a share, excluding 0 and 1."""


def to_library_seed(seed: int) -> int:
    """Return the seed for a library whose seeds have 32 bits. Seeds below 2^32 are unchanged."""
    return seed % (1 << 32)


def plain(value: Any) -> Any:
    """Return ``value`` with NumPy scalars, arrays and ranges, at any depth, replaced with plain numbers and lists.

    Raises SearchlabError if ``value`` is nested too deeply.
    """
    try:
        return _make_plain(value)
    except RecursionError:
        raise SearchlabError("a value is nested too deeply, or contains itself") from None


def _make_plain(value: Any) -> Any:
    if is_numpy(value):
        return value.tolist()
    if isinstance(value, range):
        return list(value) if len(value) <= MAX_RANGE_LENGTH else value
    if isinstance(value, list | tuple):
        return [_make_plain(item) for item in value]
    if isinstance(value, dict):
        return {_make_plain(name): _make_plain(item) for name, item in value.items()}
    return value


def is_numpy(value: Any) -> bool:
    """Return whether ``value`` is a NumPy scalar or array, without importing NumPy, which takes a tenth of a second."""
    return type(value).__module__ == "numpy" and hasattr(value, "tolist")


MAX_RANGE_LENGTH = 1_000_000
"""The maximum length of a ``range`` that :func:`plain` converts to a list."""


class ChecksOptions:
    """A base class that wraps its subclasses' constructors to check the options passed by keyword.

    An invalid option therefore causes the same error in a script as in a study file.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            cls.__init__ = _check_options(cls.__init__)  # type: ignore[method-assign]


def _check_options(constructor: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(constructor)
    def checking_constructor(self: Any, *args: Any, **kwargs: Any) -> None:
        annotation = declared_options(constructor)
        options = {name: check_option(name, kwargs[name], annotation[name]) for name in kwargs if name in annotation}
        constructor(self, *args, **(kwargs | options))

    return checking_constructor


@functools.cache
def declared_options(constructor: Callable[..., Any]) -> dict[str, Any]:
    """Return a mapping from each option that can be checked to its evaluated annotation."""
    constructor = inspect.unwrap(constructor)
    option_names = [name for name in getattr(constructor, "__annotations__", {}) if name not in (*SUPPLIED, "return")]
    annotations = {name: _evaluate_annotation(constructor, name) for name in option_names}
    return {
        name: annotation
        for name, annotation in annotations.items()
        if annotation is not None and _alternatives(annotation)
    }


def check_option(name: str, value: Any, annotation: Any) -> Any:
    """Check an option's value and return it, converted to a float if the option is declared as a float.

    Args:
        name: The option's name, for the error message.
        value: The value to check.
        annotation: The option's annotation. If it cannot be checked, any value is accepted.

    Raises:
        SearchlabError: If ``annotation`` does not allow ``value``.
    """
    alternatives = _alternatives(annotation)
    if not alternatives:
        return value
    if is_numpy(value):
        value = value.tolist()
    with suppress(msgspec.ValidationError):
        return _convert(value, annotation)
    allowed_words = list(map(str, list_literals(annotation)))
    if allowed_words and (isinstance(value, str) or all(isinstance(kind, LiteralType) for kind in alternatives)):
        raise SearchlabError(f"option {name!r} cannot be {value!r}{did_you_mean(str(value), allowed_words)}")
    raise SearchlabError(f"option {name!r} is {value!r}; it must be {describe_values(annotation)}")


def accepts(value: Any, annotation: Any) -> bool:
    """Return whether an option accepts ``value``, or False if its declaration cannot be checked."""
    if not _alternatives(annotation):
        return False
    try:
        _convert(value, annotation)
    except msgspec.ValidationError:
        return False
    return True


def _convert(value: Any, annotation: Any) -> Any:
    """Return ``value``, as a float if ``annotation`` is one. Raises ValidationError if it does not allow ``value``."""
    plain_value = value
    if isinstance(value, range):
        plain_value = [*value[:1], *value[-1:]]  # a range may be of any length
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        plain_value = list(value)
    elif isinstance(value, set | frozenset):
        raise msgspec.ValidationError("a set has no order")
    try:
        converted = msgspec.convert(plain_value, annotation)
    except UnicodeEncodeError:
        raise msgspec.ValidationError("it is not valid Unicode") from None
    if not all(map(_is_finite, converted if isinstance(converted, list) else [converted])):
        raise msgspec.ValidationError("it is not finite")
    return converted if isinstance(converted, float) else value


def _is_finite(value: Any) -> bool:
    try:
        return not isinstance(value, int | float) or math.isfinite(value)
    except OverflowError:  # a whole number that exceeds every float
        return False


def describe_values(annotation: Any) -> str:
    """Describe the values that an option accepts, as in ``a whole number of at least 1``; empty if all are accepted."""
    return ", or ".join(_describe_type(kind) for kind in _alternatives(annotation))


def find_numeric_type(annotation: Any) -> IntType | FloatType | None:
    """Return the numeric type that an option accepts, with bounds ``ge`` and ``le``, or None if it accepts none."""
    return next((kind for kind in _alternatives(annotation) if isinstance(kind, IntType | FloatType)), None)


def _alternatives(annotation: Any) -> Sequence[Type]:
    """Return the types that ``annotation`` allows, or an empty sequence if any part of it cannot be checked."""
    try:
        return _inspect_types(annotation)
    except TypeError:  # it contains metadata that cannot be hashed
        return _inspect_types.__wrapped__(annotation)


@functools.cache
def _inspect_types(annotation: Any) -> Sequence[Type]:
    try:
        annotated_type = msgspec.inspect.type_info(annotation)
    except Exception:  # a type that msgspec does not know
        return ()
    types = annotated_type.types if isinstance(annotated_type, UnionType) else (annotated_type,)
    if not all(map(_can_check, types)):
        return ()
    return [LiteralType(list_literals(annotation)) if isinstance(item, LiteralType) else item for item in types]


def list_literals(annotation: Any) -> tuple[Any, ...]:
    """Return the ``Literal`` values that an option accepts, in their original order."""
    arguments = get_args(annotation)
    if get_origin(annotation) is Literal:
        return arguments
    return tuple(word for argument in arguments for word in list_literals(argument))


def _can_check(option_type: Type) -> bool:
    if isinstance(option_type, ListType):
        return _can_check(option_type.item_type)
    return isinstance(option_type, NoneType | BoolType | IntType | FloatType | StrType | LiteralType)


def _describe_type(option_type: Type) -> str:
    if isinstance(option_type, LiteralType):
        return f"one of {', '.join(map(repr, option_type.values))}"
    if isinstance(option_type, ListType):
        return f"a list in which each item is {_describe_type(option_type.item_type)}"
    if isinstance(option_type, IntType | FloatType):
        noun = "a whole number" if isinstance(option_type, IntType) else "a number"
        if option_type.ge is not None and option_type.le is not None:
            return f"{noun} from {_format_limit(option_type.ge)} to {_format_limit(option_type.le)}"
        bounds = (
            ("of at least", option_type.ge),
            ("greater than", option_type.gt),
            ("of at most", option_type.le),
            ("less than", option_type.lt),
        )
        limits = [f"{phrase} {_format_limit(limit)}" for phrase, limit in bounds if limit is not None]
        return " ".join([noun, " and ".join(limits)]).rstrip()
    return {NoneType: "null", BoolType: "true or false"}.get(type(option_type), "a string")


def _format_limit(limit: float) -> str:
    return str(limit) if isinstance(limit, int) else f"{limit:g}"


_VARIADIC_KINDS = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")


def checks_arguments(function: Callable[Parameters, Returned]) -> Callable[Parameters, Returned]:
    """Check the arguments of a public function against its annotations, as options or at least by their types.

    An argument that is not allowed causes a SearchlabError that names the parameter, instead of an error deep inside.
    NumPy's numbers become plain. Annotations that use names imported only for type checkers accept any value.
    """
    signature = inspect.signature(function)

    @functools.wraps(function)
    def checking_function(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Returned:
        try:
            arguments = signature.bind(*args, **kwargs)
        except TypeError as error:
            text = str(error)
            if unknown := next((name for name in kwargs if name not in signature.parameters), None):
                name = unknown.removeprefix("n_")  # as in scikit-learn and Optuna
                text = f"there is no argument {unknown!r}{did_you_mean(name, signature.parameters)}"
            raise TypeError(f"{function.__qualname__}(): {text}") from None
        for name, value in arguments.arguments.items():
            is_variadic = signature.parameters[name].kind in _VARIADIC_KINDS
            if not is_variadic and (annotation := _evaluate_annotation(function, name)) is not None:
                arguments.arguments[name] = _check_argument(function.__qualname__, name, value, annotation)
        return function(*arguments.args, **arguments.kwargs)

    return checking_function


@functools.cache
def _evaluate_annotation(function: Callable[..., Any], name: str) -> Any:
    """Return the evaluated annotation of a parameter, or None if it cannot be evaluated.

    Each one is evaluated alone, because it may use a name that is imported only for type checkers.
    """
    annotation = function.__annotations__.get(name, Any)
    namespace = dict(function.__globals__)
    if str(annotation).startswith("tvm."):  # imported only for type checkers, but the function imports it when called
        namespace["tvm"] = importlib.import_module("tvm")
    try:
        hints = get_type_hints(SimpleNamespace(__annotations__={name: annotation}), namespace, include_extras=True)
    except Exception:  # evaluating an annotation may raise anything
        return None
    return hints[name]


def _check_argument(function: str, name: str, value: Any, annotation: Any) -> Any:
    """Return ``value``, with NumPy's numbers as plain ones. Raises SearchlabError unless ``annotation`` allows it."""
    if _alternatives(annotation):
        return check_option(name, value, annotation)
    value = plain(value) if is_numpy(value) else value
    if not _allows(annotation, value):
        raise SearchlabError(
            f"{function}() does not accept {name} = {value!r:.200} ({type(value).__name__}); it must be "
            f"{_name_annotation(annotation)}"
        )
    return value


def _allows(annotation: Any, value: Any) -> bool:
    if annotation is Any:
        return True
    if _alternatives(annotation):
        return accepts(value, annotation)
    origin = get_origin(annotation)
    if origin in (Union, PlainUnion):
        return any(_allows(alternative, value) for alternative in get_args(annotation))
    expected_type = type if origin is type else origin or annotation
    if expected_type is Path:
        return isinstance(value, os.PathLike)
    try:
        return not isinstance(expected_type, type) or isinstance(value, expected_type)
    except TypeError:  # a protocol that cannot be checked
        return True


def _name_annotation(annotation: Any) -> str:
    if get_origin(annotation) in (Union, PlainUnion):
        return " or ".join(dict.fromkeys(map(_name_annotation, get_args(annotation))))
    if annotation is None or annotation is type(None):
        return "None"
    annotated_type = get_origin(annotation) or annotation
    if annotated_type is Annotated:
        return _name_annotation(get_args(annotation)[0])
    return getattr(annotated_type, "__name__", str(annotated_type))
