"""Restrictions of a space's configs: expressions such as ``"x * y <= 1024"``, which are parsed but never executed as
code, and functions.

An expression may contain the names of knobs, numbers, strings, tuples, arithmetic, comparisons, ``and``, ``or``,
``not``, ``in``, indices such as ``tile[0]``, and calls of ``abs``, ``max`` and ``min``.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from searchlab.errors import SearchlabError, did_you_mean
from searchlab.foreign_code import find_error_location
from searchlab.plugins import load_attribute
from searchlab.space import Value
from searchlab.workload import list_parameter_knobs

Values = Mapping[str, Value]

Restrict = str | Callable[..., Any]
"""An expression, a function of some knobs or of the config, or the name of such a function, ``"module:name"``."""

MAX_EXPRESSION_LENGTH = 4000
"""The maximum length of an expression in characters."""

MAX_BITS = 1024
"""The maximum number of bits of a power of whole numbers."""


class Restriction(NamedTuple):
    """A condition that all configs of a space satisfy.

    Attributes:
        text: The expression, or the function's name, for messages.
        knobs: The knobs on which it depends.
        evaluate: A function that returns a true value if the given values of these knobs satisfy the condition.
    """

    text: str
    knobs: frozenset[str]
    evaluate: Callable[[Values], Any]

    def is_satisfied(self, values: Values) -> bool:
        """Return whether ``values`` satisfy the condition. Raises SearchlabError if it cannot be evaluated."""
        try:
            return bool(self.evaluate(values))
        except Exception as error:  # a function may raise anything
            config = {name: values[name] for name in values if name in self.knobs}
            location = find_error_location(error, object)
            raise SearchlabError(
                f"the restriction {self.text!r} fails for {config}: {type(error).__name__}: {error}"
                + (f" ({location})" if location else "")
            ) from None


def parse_restriction(restriction: Restrict, knob_names: Sequence[str]) -> Restriction:
    """Return the restriction of knobs with the given names. Raises SearchlabError if it is invalid."""
    if isinstance(restriction, str):
        if not re.fullmatch(r"[A-Za-z_][\w.]*:[\w.<>]+", restriction):
            return _parse_expression(restriction, knob_names)
        restriction = load_attribute(restriction, f"restriction {restriction!r}")
    if not callable(restriction):
        raise SearchlabError(
            f"a restriction must be an expression such as 'x * y <= 1024', or a function, not {restriction!r:.200}"
        )
    return _from_function(restriction, knob_names)


def _from_function(function: Callable[..., Any], knob_names: Sequence[str]) -> Restriction:
    title = getattr(function, "__qualname__", repr(function))
    if knobs := list_parameter_knobs(function, knob_names):
        return Restriction(title, frozenset(knobs), lambda values: function(**{name: values[name] for name in knobs}))
    return Restriction(title, frozenset(knob_names), lambda values: function(dict(values)))


def _parse_expression(text: str, knob_names: Sequence[str]) -> Restriction:
    knobs: set[str] = set()
    try:
        if len(text) > MAX_EXPRESSION_LENGTH:
            raise SearchlabError(f"it is longer than {MAX_EXPRESSION_LENGTH} characters")
        evaluate = _compile_expression(ast.parse(text.strip(), mode="eval").body, knob_names, knobs)
    except SearchlabError as error:
        raise SearchlabError(f"the restriction {text!r:.200} is invalid: {error}") from None
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        problem = error.msg if isinstance(error, SyntaxError) else str(error)
        raise SearchlabError(
            f"the restriction {text!r:.200} is not an expression such as 'x * y <= 1024': {problem}"
        ) from None
    return Restriction(text, frozenset(knobs), evaluate)


Evaluate = Callable[[Values], Any]


def _raise_to_power(base: Any, exponent: Any) -> Any:
    if isinstance(base, int) and isinstance(exponent, int) and base.bit_length() * exponent > MAX_BITS:
        raise ValueError(f"{base} ** {exponent} is too large")
    return base**exponent


_BINARY_OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _raise_to_power,
}
_UNARY_OPERATORS: dict[type, Callable[[Any], Any]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
    ast.Not: operator.not_,
}
_COMPARISONS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda item, items: item in items,
    ast.NotIn: lambda item, items: item not in items,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {"abs": abs, "max": max, "min": min}


def _compile_expression(node: ast.expr, knob_names: Sequence[str], knobs: set[str]) -> Evaluate:
    """Return a function that evaluates ``node``, and add the names of its knobs to ``knobs``."""

    def compile_node(child: ast.expr) -> Evaluate:
        return _compile_expression(child, knob_names, knobs)

    match node:
        case ast.Constant(value=bool() | int() | float() | str() as value):
            return lambda values: value
        case ast.Name(id=name):
            if name not in knob_names:
                raise SearchlabError(f"{name!r} is not a knob{did_you_mean(name, knob_names)}")
            knobs.add(name)
            return lambda values: values[name]
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            evaluate_items = [compile_node(element) for element in elements]
            return lambda values: tuple(item(values) for item in evaluate_items)
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY_OPERATORS:
            unary, argument = _UNARY_OPERATORS[type(op)], compile_node(operand)
            return lambda values: unary(argument(values))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY_OPERATORS:
            binary, first, second = _BINARY_OPERATORS[type(op)], compile_node(left), compile_node(right)
            return lambda values: binary(_check_number(first(values)), _check_number(second(values)))
        case ast.BoolOp(op=op, values=operands):
            evaluate_parts = [compile_node(operand) for operand in operands]
            combine = all if isinstance(op, ast.And) else any
            return lambda values: combine(evaluate_part(values) for evaluate_part in evaluate_parts)
        case ast.Compare(left=left, ops=ops, comparators=comparators) if all(type(op) in _COMPARISONS for op in ops):
            terms = [compile_node(term) for term in (left, *comparators)]
            comparisons = [_COMPARISONS[type(op)] for op in ops]
            return lambda values: _is_true_chain([term(values) for term in terms], comparisons)
        case ast.Subscript(value=container, slice=index):
            items_of, index_of = compile_node(container), compile_node(index)
            return lambda values: items_of(values)[index_of(values)]
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
            function, evaluate_parts = _FUNCTIONS[name], [compile_node(argument) for argument in arguments]
            return lambda values: function(*(evaluate_part(values) for evaluate_part in evaluate_parts))
    raise SearchlabError(
        f"it contains {ast.unparse(node)!r:.100}, but only knobs, numbers, strings, arithmetic, comparisons, and, or, "
        f"not, in, indices, abs, max and min are allowed; pass a function instead"
    )


def _check_number(value: Any) -> Any:
    """Return ``value``, which must be a number: multiplying a string could exhaust memory."""
    if not isinstance(value, int | float):
        raise TypeError(f"{value!r:.100} is not a number")
    return value


def _is_true_chain(operands: Sequence[Any], comparisons: Sequence[Callable[[Any, Any], Any]]) -> bool:
    comparison_triples = zip(operands, comparisons, operands[1:], strict=False)
    return all(compare(left, right) for left, compare, right in comparison_triples)
