"""A cache of the knobs that a space asks for after each sequence of choices, for spaces in which asking is slow."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from searchlab.errors import SearchlabError
from searchlab.space import Choose, Config, Knob, Value

KEPT = 10_000
"""The maximum number of cached configs; when it is reached, the cache is cleared."""


class ChoiceNode:
    """A node in the tree of choices."""

    __slots__ = ("after", "knob")

    def __init__(self, knob: Knob | None) -> None:
        self.knob = knob  # the knob asked for at this node; None at the end
        self.after: dict[Value, ChoiceNode] = {}  # the next node for each of the knob's values


Ask = Callable[[Choose], object]
"""Asks for each knob in turn. Only earlier choices may determine the next knob."""


class Memory:
    """The tree of the choices known so far. It is not sent to other processes."""

    def __init__(self) -> None:
        self._first: ChoiceNode | None = None
        self._kept = 0

    def __reduce__(self) -> tuple[type[Memory], tuple[()]]:
        return Memory, ()

    def config(self, choose: Choose, ask: Ask, name: str) -> Config:
        """Return the config that results from the choices; call ``ask`` only if they are new.

        Args:
            choose: A function that makes the choices.
            ask: A function that asks for the knobs.
            name: The name of ``ask`` in error messages.

        Raises:
            SearchlabError: If, after the same choices, ``ask`` asks for different knobs than before.
        """
        made: dict[str, Value] = {}
        asked = self._first
        while asked and (knob := asked.knob):
            made[knob.name] = value = choose(knob)
            asked = asked.after.get(value)
        if not asked:
            self._continue(made, choose, ask, name)
        return Config.wrap(made)

    def knobs(self, config: Mapping[str, Value]) -> list[Knob] | None:
        """Return the knobs of ``config``, or None if they are not cached or ``config`` is not a member."""
        knobs: list[Knob] = []
        asked = self._first
        while asked and (knob := asked.knob) and knob.name in config:
            knobs.append(knob)
            asked = asked.after.get(config[knob.name])
        return knobs if asked and not asked.knob and len(knobs) == len(config) else None

    def _continue(self, made: dict[str, Value], choose: Choose, ask: Ask, name: str) -> None:
        """Make the choices that follow those already ``made``, and cache the knobs."""
        names = list(made)
        path: list[ChoiceNode] = []

        def record(knob: Knob) -> Value:
            if len(path) >= len(names):
                made[knob.name] = choose(knob)
            elif knob.name != names[len(path)]:
                raise _Differs
            path.append(ChoiceNode(knob))
            return made[knob.name]

        try:
            ask(record)
            if len(path) < len(names):
                raise _Differs
        except _Differs:
            raise SearchlabError(
                f"{name} asks for different knobs after the same choices, "
                f"{ {knob: made[knob] for knob in names} }; its behaviour must depend only on the choices"
            ) from None
        if self._kept == KEPT:
            self._first, self._kept = None, 0
        self._kept += 1
        path.append(ChoiceNode(None))
        at = self._first = self._first or path[0]
        for value, then in zip(made.values(), path[1:], strict=True):
            at = at.after.setdefault(value, then)


class _Differs(Exception):
    """The knobs differ from those previously asked for after the same choices."""
