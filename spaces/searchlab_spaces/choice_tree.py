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


AskForKnobs = Callable[[Choose], object]
"""Asks for each knob in turn. Only earlier choices may determine the next knob."""


class ChoiceTree:
    """The choices that have been made, and the knobs that followed them. It is not sent to other processes."""

    def __init__(self) -> None:
        self._root: ChoiceNode | None = None
        self._config_count = 0

    def __reduce__(self) -> tuple[type[ChoiceTree], tuple[()]]:
        return ChoiceTree, ()

    def choose_config(self, choose: Choose, ask_for_knobs: AskForKnobs, asker_name: str) -> Config:
        """Return the config that results from the choices; call ``ask_for_knobs`` only if they are new.

        Args:
            choose: A function that makes the choices.
            ask_for_knobs: A function that asks for the knobs.
            asker_name: The name of ``ask_for_knobs`` in error messages.

        Raises:
            SearchlabError: If, after the same choices, ``ask_for_knobs`` asks for different knobs than before.
        """
        values: dict[str, Value] = {}
        node = self._root
        while node and (knob := node.knob):
            values[knob.name] = value = choose(knob)
            node = node.children.get(value)
        if not node:
            self._add_config(values, choose, ask_for_knobs, asker_name)
        return Config.wrap(values)

    def knobs(self, config: Mapping[str, Value]) -> list[Knob] | None:
        """Return the knobs of ``config``, or None if they are not cached or ``config`` is not a member."""
        knobs: list[Knob] = []
        node = self._root
        while node and (knob := node.knob) and knob.name in config:
            knobs.append(knob)
            node = node.children.get(config[knob.name])
        return knobs if node and not node.knob and len(knobs) == len(config) else None

    def _add_config(
        self, values: dict[str, Value], choose: Choose, ask_for_knobs: AskForKnobs, asker_name: str
    ) -> None:
        """Make the choices that follow those already made, ``values``, and cache the knobs."""
        made_names = list(values)
        nodes: list[ChoiceNode] = []

        def record(knob: Knob) -> Value:
            if len(nodes) >= len(made_names):
                values[knob.name] = choose(knob)
            elif knob.name != made_names[len(nodes)]:
                raise _KnobsDiffer
            nodes.append(ChoiceNode(knob))
            return values[knob.name]

        try:
            ask_for_knobs(record)
            if len(nodes) < len(made_names):
                raise _KnobsDiffer
        except _KnobsDiffer:
            raise SearchlabError(
                f"{asker_name} asks for different knobs after the same choices, "
                f"{ {knob: values[knob] for knob in made_names} }; its behaviour must depend only on the choices"
            ) from None
        if self._config_count == MAX_CONFIGS:
            self._root, self._config_count = None, 0
        self._config_count += 1
        nodes.append(ChoiceNode(None))
        parent = self._root = self._root or nodes[0]
        for value, child in zip(values.values(), nodes[1:], strict=True):
            parent = parent.children.setdefault(value, child)


class _KnobsDiffer(Exception):
    """The knobs differ from those previously asked for after the same choices."""
