"""A cache of the knobs that a space asks for after each sequence of choices, for spaces in which asking is slow."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from searchlab.errors import SearchlabError
from searchlab.space import Choose, Config, Knob, Value

MAX_CONFIGS = 10_000
"""The maximum number of cached configs; when it is reached, the cache is cleared."""


class ChoiceNode:
    """A node in the tree of choices."""

    __slots__ = ("children", "knob")

    def __init__(self, knob: Knob | None) -> None:
        self.knob = knob  # the knob asked for at this node; None at the end
        self.children: dict[Value, ChoiceNode] = {}  # the next node for each of the knob's values


Ask = Callable[[Choose], object]
"""Asks for each knob in turn. Only earlier choices may determine the next knob."""


class ChoiceTree:
    """The choices that have been made, and the knobs that followed them. It is not sent to other processes."""

    def __init__(self) -> None:
        self._root: ChoiceNode | None = None
        self._count = 0

    def __reduce__(self) -> tuple[type[ChoiceTree], tuple[()]]:
        return ChoiceTree, ()

    def config(self, choose: Choose, ask: Ask, name: str) -> Config:
        """Return the config that results from the choices; call ``ask`` only if they are new.

        Args:
            choose: A function that makes the choices.
            ask: A function that asks for the knobs.
            name: The name of ``ask`` in error messages.

        Raises:
            SearchlabError: If, after the same choices, ``ask`` asks for different knobs than before.
        """
        values: dict[str, Value] = {}
        node = self._root
        while node and (knob := node.knob):
            values[knob.name] = value = choose(knob)
            node = node.children.get(value)
        if not node:
            self._add_config(values, choose, ask, name)
        return Config.wrap(values)

    def knobs(self, config: Mapping[str, Value]) -> list[Knob] | None:
        """Return the knobs of ``config``, or None if they are not cached or ``config`` is not a member."""
        knobs: list[Knob] = []
        node = self._root
        while node and (knob := node.knob) and knob.name in config:
            knobs.append(knob)
            node = node.children.get(config[knob.name])
        return knobs if node and not node.knob and len(knobs) == len(config) else None

    def _add_config(self, values: dict[str, Value], choose: Choose, ask: Ask, name: str) -> None:
        """Make the choices that follow those already made, ``values``, and cache the knobs."""
        names = list(values)
        path: list[ChoiceNode] = []

        def record(knob: Knob) -> Value:
            if len(path) >= len(names):
                values[knob.name] = choose(knob)
            elif knob.name != names[len(path)]:
                raise _Differs
            path.append(ChoiceNode(knob))
            return values[knob.name]

        try:
            ask(record)
            if len(path) < len(names):
                raise _Differs
        except _Differs:
            raise SearchlabError(
                f"{name} asks for different knobs after the same choices, "
                f"{ {knob: values[knob] for knob in names} }; its behaviour must depend only on the choices"
            ) from None
        if self._count == MAX_CONFIGS:
            self._root, self._count = None, 0
        self._count += 1
        path.append(ChoiceNode(None))
        parent = self._root = self._root or path[0]
        for value, child in zip(values.values(), path[1:], strict=True):
            parent = parent.children.setdefault(value, child)


class _Differs(Exception):
    """The knobs differ from those previously asked for after the same choices."""
