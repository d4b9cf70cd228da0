"""Configs: the points of a search space."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping, Sequence
from typing import Any, Self

from ..options import plain
from .knob import SCALAR_TYPES, Value


class Config(Mapping[str, Value]):
    """A point in a search space: the values of its knobs, in the order in which the space asked for them.

    A config is an immutable, hashable mapping. Configs with the same values are equal regardless of their order.

    Args:
        values: The values by name. Lists are converted to tuples, since JSON has no tuples, and NumPy's scalars and
            arrays to plain numbers and tuples, since a log could not store them.

    Example:
        >>> from searchlab import Config
        >>> config = Config({"tile": [4, 8], "unroll": 16})
        >>> config["tile"], config == Config({"unroll": 16, "tile": (4, 8)})
        ((4, 8), True)
    """

    __slots__ = ("_hash", "_values")

    def __init__(self, values: Mapping[str, Any] | Sequence[tuple[str, Any]] = ()) -> None:
        items = values.items() if isinstance(values, Mapping) else values
        self._values: dict[str, Value] = {
            name: value if type(value) in SCALAR_TYPES else _make_plain(value) for name, value in items
        }
        self._hash: int | None = None

    @classmethod
    def wrap(cls, values: dict[str, Value]) -> Self:
        """Return a config that wraps ``values`` itself, without copying or converting it."""
        config = cls.__new__(cls)
        config._values, config._hash = values, None
        return config

    def __getitem__(self, name: str) -> Value:
        return self._values[name]

    # Mapping could derive the next four methods, but searches call them so often that their speed matters.

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def get(self, name: str, default: Any = None) -> Any:
        return self._values.get(name, default)

    def keys(self) -> KeysView[str]:
        return self._values.keys()

    def items(self) -> ItemsView[str, Value]:
        return self._values.items()

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self._values.items()))
        return self._hash

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Config):
            return self._values == other._values
        return NotImplemented

    def __repr__(self) -> str:
        return f"Config({self._values})"

    def to_json(self) -> dict[str, Any]:
        """Return a plain dictionary from which :class:`Config` creates an equal config."""
        return dict(self._values)


def _make_plain(value: Any) -> Any:
    """Return a choice that is not a plain scalar, with lists as tuples and NumPy's numbers as Python's."""
    if type(value) in (list, tuple) and SCALAR_TYPES.issuperset(map(type, value)):
        return tuple(value)
    value = plain(value)
    return tuple(value) if isinstance(value, list) else value
