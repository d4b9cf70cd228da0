"""A point of a search space."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping, Sequence
from typing import Any, Self

from .knob import Value


class Config(Mapping[str, Value]):
    """A point of a search space: the choice of each knob, in the order in which the space asked for them.

    It is immutable and hashable.

    Example:
        >>> from searchlab import Config
        >>> config = Config({"tile": [4, 8], "unroll": 16})
        >>> config["tile"], config == Config({"unroll": 16, "tile": (4, 8)})
        ((4, 8), True)
    """

    __slots__ = ("_hash", "_values")

    def __init__(self, values: Mapping[str, Any] | Sequence[tuple[str, Any]] = ()) -> None:
        items = values.items() if isinstance(values, Mapping) else values
        # JSON has no tuples: a list read from a file is a tile.
        self._values: dict[str, Value] = {k: tuple(v) if isinstance(v, list) else v for k, v in items}
        self._hash: int | None = None

    @classmethod
    def of(cls, values: dict[str, Value]) -> Self:
        """The config of these very values: no copy is made, and no list becomes a tile."""
        config = cls.__new__(cls)
        config._values, config._hash = values, None
        return config

    def __getitem__(self, name: str) -> Value:
        return self._values[name]

    # The four methods below follow from the others; a search calls them for every config that it thinks of.

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
        return dict(self._values)
