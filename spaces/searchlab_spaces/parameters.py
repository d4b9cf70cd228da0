"""``parameters``: configs recorded by a different tuner. They have no programs, so only a table can measure them."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Never

import numpy as np

from searchlab.arrays import Array
from searchlab.errors import InvalidConfig, SearchlabError, UnsupportedWorkload
from searchlab.space import Choose, Config, Knob, ProductSpace, Space, Value
from searchlab.target import Target
from searchlab.workload import Workload

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

MOST = 1 << 24
"""The maximum number of configs, and of bytes for their indices, so that an untrusted header cannot exhaust memory."""

INT64 = 1 << 62


class Parameters(ProductSpace):
    """The configs listed in a different tuner's file. They have no programs, so only a table can measure them.

    The list defines the space: the other tuner's restrictions are never evaluated, but configs that they excluded are
    not in the list. A knob offers the values that lead to a listed config, so later knobs depend on earlier ones.
    Indices are those in the product of all parameters, so they have gaps. ``sample`` draws uniformly.

    Args:
        parameters: The values of each parameter, in order. Raises UnsupportedWorkload if no parameters are passed.
        listed: The indices of the configs in packed form, or an empty string for the complete product.
            ``searchlab import`` writes both options into the table; a study over it specifies only the space.
    """

    has_programs = False

    def __init__(
        self,
        workload: Workload,
        target: Target,
        *,
        parameters: Mapping[str, Sequence[Value]] | None = None,
        listed: str = "",
    ) -> None:
        if not parameters:
            raise UnsupportedWorkload(
                f"space 'parameters' has no configs for {workload}: they are stored in a table imported from another "
                f'tuner; use measure = {{ kind = "table", path = ... }} with such a table'
            )
        super().__init__(workload, target, _knobs(parameters))
        self._listed = listed
        self._indices = self._every() if not listed else _decode(listed, self.range_length)

    @classmethod
    def options_for(
        cls, parameters: Mapping[str, Sequence[Value]], configs: Sequence[Mapping[str, Value]]
    ) -> dict[str, Any]:
        """Return the options of the space that consists of ``configs``, whose values are among ``parameters``."""
        knobs = _knobs(parameters)
        positions = [{value: i for i, value in enumerate(knob.choices)} for knob in knobs]
        indices = set()
        for config in configs:
            index, stride = 0, 1
            for knob, position in zip(knobs, positions, strict=True):
                index += stride * position[config[knob.name]]
                stride *= len(knob.choices)
            indices.add(index)
        plain = {name: list(values) for name, values in parameters.items()}
        return {"parameters": plain, **({"listed": _encode(sorted(indices))} if len(indices) < stride else {})}

    def _every(self) -> Sequence[int]:
        if self.range_length > MOST:
            raise SearchlabError(
                f"parameters: the product of the values has {self.range_length:,} configs, but at most {MOST:,} are "
                f"supported; check that the header comes from an imported table"
            )
        return range(self.range_length)

    # --- the configs ----------------------------------------------------------------------------------------

    @cached_property
    def _tree(self) -> _Tree:
        return _Tree(self.axes, self._indices)

    @cached_property
    def _members(self) -> frozenset[int]:
        return frozenset(self._indices)

    def decide(self, choose: Choose) -> Config:
        return self._tree.decide(choose)

    def sample(self, rng: np.random.Generator) -> Config:
        """Draw a config uniformly."""
        return super().config_at(self._indices[int(rng.integers(len(self._indices)))])

    def knobs(self, config: Mapping[str, Value]) -> list[Knob]:
        return self._tree.knobs(config) or Space.knobs(self, config)  # which reports what is wrong

    def repair(self, values: Mapping[str, Value], rng: np.random.Generator) -> Config:
        return self._tree.repair(values, rng)

    def size(self, limit: int = 0) -> int:
        return len(self._indices)

    def enumerate(self, rng: np.random.Generator | None = None) -> Iterator[Config]:
        """Yield every config once, by ascending index, or in random order with ``rng``."""
        order = range(len(self._indices)) if rng is None else rng.permutation(len(self._indices)).tolist()
        return (ProductSpace.config_at(self, self._indices[row]) for row in order)

    def config_at(self, index: int) -> Config:
        """Return the config with this index. Raises IndexError if the index is not listed."""
        config = super().config_at(index)
        if index not in self._members:
            raise IndexError(f"index {index} is not listed")
        return config

    def index_of(self, config: Mapping[str, Value]) -> int:
        self.knobs(config)  # reports which knob is wrong
        return super().index_of(config)

    def schedule(self, config: Mapping[str, Value]) -> Schedule:
        """Raise InvalidConfig, because the configs have no programs."""
        self.knobs(config)
        raise InvalidConfig(
            f"{self.workload} was measured by another tuner, so its configs have recorded times but no programs"
        )

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the parameters and the listed configs."""
        knobs = [[knob.name, list(knob.choices)] for knob in self.axes]
        identity = f"{self.workload} {self.target} {json.dumps(knobs)} {self._listed}"
        return hashlib.sha256(identity.encode()).hexdigest()[:16]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_tree", "_members")}


def _knobs(parameters: Mapping[str, Sequence[Value]]) -> list[Knob]:
    """Return a knob for each parameter. Raises SearchlabError for invalid values."""
    knobs = []
    for name, choices in parameters.items():
        values = [tuple(value) if isinstance(value, list) else value for value in choices] if _is_list(choices) else []
        if not values or not all(_is_value(value) for value in values) or len(set(values)) < len(values):
            raise SearchlabError(
                f"parameters: {name!r} must be a list of distinct values (numbers, strings or tiles), not {choices!r}"
            )
        knobs.append(Knob(name, values))
    return knobs


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _is_value(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(type(factor) is int for factor in value)
    return isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value))


# --- the list as text: the gaps between the sorted indices, seven bits per byte, compressed ---------------------------


def _encode(indices: Sequence[int]) -> str:
    """Encode ``indices``, which must be ascending and distinct, as text."""
    data = bytearray()
    for before, index in pairwise([-1, *indices]):
        gap = index - before - 1
        while gap > 0x7F:
            data.append(gap & 0x7F | 0x80)
            gap >>= 7
        data.append(gap)
    return base64.b64encode(zlib.compress(bytes(data), 9)).decode()


def _decode(listed: str, end: int) -> list[int]:
    """Invert :func:`_encode`. Raises SearchlabError if the text is damaged or an index reaches ``end``."""
    if not isinstance(listed, str):
        _fail(f"it is {listed!r}")
    try:
        unpack = zlib.decompressobj()
        data = unpack.decompress(base64.b64decode(listed, validate=True), MOST)
    except (binascii.Error, ValueError, zlib.error) as error:
        _fail(error)
    if not unpack.eof:
        _fail("it is truncated or too long")
    indices: list[int] = []
    index, gap, shift = -1, 0, 0
    for byte in data:
        gap |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            index += gap + 1
            indices.append(index)
            gap = shift = 0
        elif shift > 1024:
            _fail("one of its numbers is unterminated")
    if shift or not indices or index >= end:
        _fail(f"its {len(indices)} configs do not fit a product of {end}")
    return indices


def _fail(why: object) -> Never:
    raise SearchlabError(
        f"parameters: the list of configs is damaged ({why}); copy it from the header of the imported table"
    ) from None


# --- the tree of prefixes ---------------------------------------------------------------------------------------------


class _Node:
    """The choice that follows a prefix of values, which the rows from ``first`` to ``end`` have in common."""

    __slots__ = ("_depth", "_tree", "children", "knob", "rows")

    def __init__(self, tree: _Tree, depth: int, first: int, end: int) -> None:
        knob = tree.axes[depth]
        positions, starts = np.unique(tree.columns[depth][first:end], return_index=True)
        values = [knob.choices[position] for position in positions.tolist()]
        limits = [*(first + starts).tolist(), end]
        self.knob = Knob(knob.name, values)
        self.rows: Mapping[Value, tuple[int, int]] = dict(zip(values, pairwise(limits), strict=True))
        self.children: dict[Value, _Node] = {}  # filled lazily
        self._tree, self._depth = tree, depth

    def after(self, value: Value) -> _Node:
        """Return the choice after ``value``, or the root after the last knob."""
        child = self.children.get(value)
        if child is None:
            depth = self._depth + 1
            tree = self._tree
            child = _Node(tree, depth, *self.rows[value]) if depth < len(tree.axes) else tree.root
            self.children[value] = child
        return child


class _Tree:
    """The listed configs as sorted rows of positions, in which configs with a common prefix are adjacent."""

    def __init__(self, axes: Sequence[Knob], indices: Sequence[int]) -> None:
        large = len(indices) > 0 and indices[-1] >= INT64
        rest: Array = np.array(indices, dtype=object if large else np.int64)
        columns = []
        for knob in axes:
            columns.append((rest % len(knob.choices)).astype(np.int64))
            rest = rest // len(knob.choices)
        order = np.lexsort(columns[::-1])
        self.axes = axes
        self.columns = [column[order] for column in columns]
        self.root = _Node(self, 0, 0, len(indices))

    def decide(self, choose: Choose) -> Config:
        values: dict[str, Value] = {}
        node = self.root
        for knob in self.axes:
            values[knob.name] = value = choose(node.knob)
            node = node.after(value)
        return Config.wrap(values)

    # These two return the same as in Space, but faster: model-guided searches spend most of their time in them.

    def knobs(self, config: Mapping[str, Value]) -> list[Knob] | None:
        """Return the knobs of ``config``, or None if it is not listed."""
        knobs: list[Knob] = []
        node = self.root
        for knob in self.axes:
            value = config.get(knob.name)
            if value not in node.rows:
                return None
            knobs.append(node.knob)
            node = node.children.get(value) or node.after(value)  # type: ignore[arg-type]
        return knobs if len(config) == len(knobs) else None

    def repair(self, config: Mapping[str, Value], rng: np.random.Generator) -> Config:
        """Return the config that :meth:`Space.repair` returns, with the same draws."""
        values: dict[str, Value] = {}
        node = self.root
        for knob in self.axes:
            value = config.get(knob.name)
            if value is None or value not in node.rows:
                value = node.knob.choices[int(rng.integers(len(node.rows)))]
            values[knob.name] = value
            node = node.children.get(value) or node.after(value)
        return Config.wrap(values)
