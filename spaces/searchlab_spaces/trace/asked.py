"""What a trace function asks for after which choices: remembered, since finding out takes as long as scheduling."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from searchlab.space import Choose, Knob, Value

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


class Memory:
    """What one function asks for on one workload and target, as far as it has been run."""

    def __init__(self) -> None:
        self._first: Asked | None = None
        self._kept = 0

    def choose(self, choose: Choose) -> tuple[list[tuple[str, Value]], bool]:
        """The choices made as far as is known, by name; and whether they are all."""
        made: list[tuple[str, Value]] = []
        asked = self._first
        while asked and (knob := asked.knob):
            value = choose(knob)
            made.append((knob.name, value))
            asked = asked.after.get(value)
        return made, asked is not None

    def knobs(self, config: Mapping[str, Value]) -> list[Knob] | None:
        """The knobs asked for on the way to ``config``; None if that is not known, or it is none."""
        knobs: list[Knob] = []
        asked = self._first
        while asked and (knob := asked.knob) and knob.name in config:
            knobs.append(knob)
            asked = asked.after.get(config[knob.name])
        return knobs if asked and not asked.knob and len(knobs) == len(config) else None

    def remember(self, knobs: Iterable[Knob], values: Iterable[Value]) -> None:
        """A config: all knobs that were asked for, and their values."""
        path = [*map(Asked, knobs), Asked(None)]
        if self._kept == KEPT:
            self._first, self._kept = None, 0
        self._kept += 1
        at = self._first = self._first or path[0]
        for value, then in zip(values, path[1:], strict=True):
            at = at.after.setdefault(value, then)
