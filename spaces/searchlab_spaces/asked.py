"""What a space asks for after which choices: remembered, where finding out takes longer than looking it up."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from searchlab.errors import SearchlabError
from searchlab.space import Choose, Config, Knob, Value

KEPT = 10_000
"""Configs that are remembered. Before there are more, all are forgotten."""


class Asked:
    """``knob`` is asked for after some choices; ``after`` has what is asked for after each choice of it.

    knob: None where nothing more is asked for.
    """

    __slots__ = ("after", "knob")

    def __init__(self, knob: Knob | None) -> None:
        self.knob = knob
        self.after: dict[Value, Asked] = {}


Ask = Callable[[Choose], object]
"""Asks for each knob in turn. Nothing but the choices before may decide which it is."""


class Memory:
    """What a space asks for, as far as it is known. It is left behind when its space goes to another process."""

    def __init__(self) -> None:
        self._first: Asked | None = None
        self._kept = 0

    def __reduce__(self) -> tuple[type[Memory], tuple[()]]:
        return Memory, ()

    def config(self, choose: Choose, ask: Ask, name: str) -> Config:
        """The config of these choices; ``ask`` is called where they are new.

        Raises SearchlabError, with its ``name``, where it does not ask for what it asked for after the same choices.
        """
        made: dict[str, Value] = {}
        asked = self._first
        while asked and (knob := asked.knob):
            made[knob.name] = value = choose(knob)
            asked = asked.after.get(value)
        if not asked:
            self._go_on(made, choose, ask, name)
        return Config.of(made)

    def knobs(self, config: Mapping[str, Value]) -> list[Knob] | None:
        """The knobs asked for on the way to ``config``; None if that is not known, or it is none."""
        knobs: list[Knob] = []
        asked = self._first
        while asked and (knob := asked.knob) and knob.name in config:
            knobs.append(knob)
            asked = asked.after.get(config[knob.name])
        return knobs if asked and not asked.knob and len(knobs) == len(config) else None

    def _go_on(self, made: dict[str, Value], choose: Choose, ask: Ask, name: str) -> None:
        """Make the choices after those that are ``made``, and remember what was asked for."""
        known = list(made)
        path: list[Asked] = []

        def record(knob: Knob) -> Value:
            if len(path) >= len(known):
                made[knob.name] = choose(knob)
            elif knob.name != known[len(path)]:
                raise _Differs
            path.append(Asked(knob))
            return made[knob.name]

        try:
            ask(record)
            if len(path) < len(known):
                raise _Differs
        except _Differs:
            raise SearchlabError(
                f"{name} does not ask for the same knobs after the same choices, which are "
                f"{ {knob: made[knob] for knob in known} }; nothing but its choices may decide what it does"
            ) from None
        if self._kept == KEPT:
            self._first, self._kept = None, 0
        self._kept += 1
        path.append(Asked(None))
        at = self._first = self._first or path[0]
        for value, then in zip(made.values(), path[1:], strict=True):
            at = at.after.setdefault(value, then)


class _Differs(Exception):
    """Something else is asked for than after the same choices before."""
