"""``parameters``: configs with given names and values, some of which may be excluded.

They are measured by calling a function or looked up in a table, unless a function schedules the workload's program.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
import zlib
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Never

import numpy as np

from searchlab.arrays import Array
from searchlab.errors import InvalidConfig, SearchlabError, UnsupportedWorkload
from searchlab.options import MAX_RANGE_LENGTH
from searchlab.plugins import load_attribute, make_reference
from searchlab.space import Choose, Config, Knob, ProductSpace, Space, Value
from searchlab.target import Target
from searchlab.workload import Workload, call_with

from .restrictions import Restrict, Restriction, parse_restriction

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

MAX_CONFIGS = 1 << 24
"""The maximum number of configs, and of bytes for their indices, so that an untrusted header cannot exhaust memory."""

MAX_INT64_INDEX = 1 << 62

MAX_EVALUATED_VALUES = 1 << 21
"""The number of values of knobs for which restrictions are evaluated in order to find a config, or to count all."""

PrefixKey = tuple[Value, ...]
"""The values of those knobs of a prefix on which the rest of a config depends."""


class Parameters(ProductSpace):
    """The product of the values of parameters, without the configs that restrictions exclude.

    A knob offers the values that lead to a config, so later knobs depend on earlier ones. Indices are those in the
    complete product, so they have gaps. ``sample`` draws uniformly. Configs are not enumerated in advance.

    The space has no programs unless you pass ``schedule``: it is for functions that measure a config
    (``python:MODULE:NAME``), and for tables from other tuners.

    Args:
        parameters: The values of each parameter, in order. Raises UnsupportedWorkload if no parameters are passed.
        listed: The indices of the configs in packed form, or an empty string for the complete product.
            ``searchlab import`` writes both options into the table, because other tuners' files contain no
            restrictions; a study over it specifies only the space.
        restrictions: Conditions that all configs satisfy: expressions such as ``"x * y <= 1024"``, functions whose
            parameters are names of knobs, or functions that receive the config. In a study file, a function is
            ``"module:name"``.
        schedule: A function that transforms a schedule of the workload's program, ``schedule(sch, config)``, or with
            names of knobs in place of ``config``. In a study file, it is ``"module:name"``.
    """

    has_programs = False

    def __init__(
        self,
        workload: Workload,
        target: Target,
        *,
        parameters: Mapping[str, Sequence[Value]] | None = None,
        listed: str = "",
        restrictions: Sequence[Restrict] = (),
        schedule: Callable[..., Any] | str | None = None,
    ) -> None:
        if not parameters:
            raise UnsupportedWorkload(
                f"space 'parameters' has no configs for {workload}: specify its parameters, as in the space "
                f'{{"x": [1, 2, 4]}}, or use measure = {{ kind = "table", path = ... }} with a table that contains them'
            )
        super().__init__(workload, target, _make_knobs(parameters))
        self._listed = listed
        self._restrictions = [restrictions] if isinstance(restrictions, str) else list(restrictions)
        self._schedule = load_attribute(schedule, "schedule") if isinstance(schedule, str) else schedule
        if schedule is not None:
            self.has_programs = True
            workload.module  # noqa: B018 - raises UnsupportedWorkload if there is no program to schedule
        self._indices: Sequence[int] | None = None  # None if they have not been enumerated
        if listed:
            self._indices = _decode_indices(listed, self.range_length)
        elif not self._restrictions and self.range_length <= MAX_CONFIGS:
            self._indices = range(self.range_length)
        else:
            self._restricted_tree  # noqa: B018 - raises SearchlabError if a restriction is invalid or there is no config

    @classmethod
    def options_for(
        cls, parameters: Mapping[str, Sequence[Value]], configs: Sequence[Mapping[str, Value]]
    ) -> dict[str, Any]:
        """Return the options of the space that consists of ``configs``, whose values are among ``parameters``."""
        knobs = _make_knobs(parameters)
        position_maps = [{value: i for i, value in enumerate(knob.choices)} for knob in knobs]
        indices = set()
        for config in configs:
            index, stride = 0, 1
            for knob, position in zip(knobs, position_maps, strict=True):
                index += stride * position[config[knob.name]]
                stride *= len(knob.choices)
            indices.add(index)
        plain_parameters = {name: list(values) for name, values in parameters.items()}
        return {
            "parameters": plain_parameters,
            **({"listed": _encode_indices(sorted(indices))} if len(indices) < stride else {}),
        }

    # --- the configs ----------------------------------------------------------------------------------------

    @cached_property
    def _prefix_tree(self) -> _Tree:
        return _ListedTree(self.axes, self._indices or ()) if self._listed else self._restricted_tree

    @cached_property
    def _restricted_tree(self) -> _RestrictedTree:
        names = [knob.name for knob in self.axes]
        return _RestrictedTree(self.axes, [parse_restriction(restriction, names) for restriction in self._restrictions])

    def decide(self, choose: Choose) -> Config:
        return self._prefix_tree.decide(choose)

    def sample(self, rng: np.random.Generator) -> Config:
        """Draw a config uniformly or, if the configs are too many to count, each knob's value in turn."""
        if self._indices is None:
            return self._restricted_tree.sample(rng) or super().sample(rng)
        return super().config_at(self._indices[int(rng.integers(len(self._indices)))])

    def knobs(self, config: Mapping[str, Value]) -> list[Knob]:
        return self._prefix_tree.knobs(config) or Space.knobs(self, config)  # which reports what is wrong

    def repair(self, values: Mapping[str, Value], rng: np.random.Generator) -> Config:
        return self._prefix_tree.repair(values, rng)

    def size(self, limit: int = 0) -> int:
        """Return the number of configs, or of the complete product if the restrictions make them too many to count."""
        if self._indices is None:
            return self._restricted_tree.size or self.range_length
        return len(self._indices)

    def enumerate(self, rng: np.random.Generator | None = None) -> Iterator[Config]:
        """Yield every config once, by ascending index, or in random order with ``rng``.

        If restrictions exclude some, or there are very many, they are in the order of :meth:`Space.enumerate`.
        """
        if self._indices is None:
            return Space.enumerate(self, rng)
        indices = self._indices
        order = range(len(indices)) if rng is None else rng.permutation(len(indices)).tolist()
        return (ProductSpace.config_at(self, indices[row]) for row in order)

    def config_at(self, index: int) -> Config:
        """Return the config with this index. Raises IndexError if the index is not listed."""
        config = super().config_at(index)
        if self._prefix_tree.knobs(config) is None:
            raise IndexError(f"index {index} is not that of a config")
        return config

    def index_of(self, config: Mapping[str, Value]) -> int:
        self.knobs(config)  # reports which knob is wrong
        return super().index_of(config)

    def schedule(self, config: Mapping[str, Value]) -> Schedule:
        """Return the schedule. Raises InvalidConfig if the configs have no programs."""
        self.knobs(config)
        if self._schedule is None:
            raise InvalidConfig(f"{self.workload} has no program, so its configs have only times")
        from tvm.s_tir import Schedule

        schedule = Schedule(self.workload.module)
        result = call_with(partial(self._schedule, schedule), config)
        return result if isinstance(result, Schedule) else schedule

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the parameters, the listed configs and the restrictions."""
        knobs = [[knob.name, list(knob.choices)] for knob in self.axes]
        identity = f"{self.workload} {self.target} {json.dumps(knobs)} {self._listed}"
        if self._restrictions:
            identity += json.dumps(
                [item if isinstance(item, str) else make_reference(item) for item in self._restrictions]
            )
        return hashlib.sha256(identity.encode()).hexdigest()[:16]

    def __getstate__(self) -> dict[str, Any]:
        return {
            name: value for name, value in self.__dict__.items() if name not in ("_prefix_tree", "_restricted_tree")
        }


def _make_knobs(parameters: Mapping[str, Sequence[Value]]) -> list[Knob]:
    """Return a knob for each parameter. Raises SearchlabError for invalid values."""
    if not isinstance(parameters, Mapping):
        raise SearchlabError(f"parameters must be a mapping from names to lists of values, not {parameters!r:.200}")
    knobs = []
    for name, choices in parameters.items():
        if not isinstance(name, str):
            raise SearchlabError(f"parameters: the name of a parameter must be a string, not {name!r:.200}")
        if _is_list(choices) and len(choices) > MAX_RANGE_LENGTH:
            raise SearchlabError(
                f"parameters: {name!r} has {len(choices):,} values; choose at most {MAX_RANGE_LENGTH:,}, for example "
                "by a larger step"
            )
        items = choices if _is_list(choices) else []
        values = [tuple(item) if isinstance(item, list) else item for item in items]
        if not values:
            raise SearchlabError(f"parameters: {name!r} must be a list of at least one value, not {choices!r:.200}")
        distinct_values: set[Value] = set()
        for value in values:
            if not _is_value(value):
                raise SearchlabError(
                    f"parameters: {name!r} contains {value!r:.100}; values must be strings, tiles, or finite "
                    "numbers, of which integers have at most 64 bits"
                )
            if value in distinct_values:
                raise SearchlabError(
                    f"parameters: {name!r} contains {value!r:.100} twice; values must be distinct (1, 1.0 and true are "
                    "equal)"
                )
            distinct_values.add(value)
        knobs.append(Knob(name, values))
    return knobs


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _is_value(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(type(factor) is int and _is_value(factor) for factor in value)
    if type(value) is int:
        return bool(-(2**63) <= value < 2**63)
    return type(value) in (bool, str) or (isinstance(value, float) and math.isfinite(value))


# --- the list as text: the gaps between the sorted indices, seven bits per byte, compressed ---------------------------


def _encode_indices(indices: Sequence[int]) -> str:
    """Encode ``indices``, which must be ascending and distinct, as text."""
    gap_bytes = bytearray()
    for previous, index in pairwise([-1, *indices]):
        gap = index - previous - 1
        while gap > 0x7F:
            gap_bytes.append(gap & 0x7F | 0x80)
            gap >>= 7
        gap_bytes.append(gap)
    return base64.b64encode(zlib.compress(bytes(gap_bytes), 9)).decode()


def _decode_indices(listed: str, end: int) -> list[int]:
    """Invert :func:`_encode`. Raises SearchlabError if the text is damaged or an index reaches ``end``."""
    if not isinstance(listed, str):
        _raise_damaged(f"it is {listed!r}")
    try:
        decompressor = zlib.decompressobj()
        gap_bytes = decompressor.decompress(base64.b64decode(listed, validate=True), MAX_CONFIGS)
    except (binascii.Error, ValueError, zlib.error) as error:
        _raise_damaged(error)
    if not decompressor.eof:
        _raise_damaged("it is truncated or too long")
    indices: list[int] = []
    index, gap, shift = -1, 0, 0
    for byte in gap_bytes:
        gap |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            index += gap + 1
            indices.append(index)
            gap = shift = 0
        elif shift > 1024:
            _raise_damaged("one of its numbers is unterminated")
    if shift or not indices or index >= end:
        _raise_damaged(f"its {len(indices)} configs do not fit a product of {end}")
    return indices


def _raise_damaged(reason: object) -> Never:
    raise SearchlabError(
        f"parameters: the list of configs is damaged ({reason}); copy it from the header of the imported table"
    ) from None


# --- the tree of prefixes ---------------------------------------------------------------------------------------------


class _Node:
    """The choice that follows a prefix of values.

    Attributes:
        keys_by_value: The values that lead to a config, each with what its tree needs to create the next node.
        knob: The knob with these values as its choices.
    """

    __slots__ = ("_depth", "_tree", "children", "cumulative_counts", "keys_by_value", "knob")

    def __init__(self, tree: _Tree, depth: int, keys_by_value: dict[Value, Any]) -> None:
        knob = tree.axes[depth]
        self.knob = Knob(knob.name, list(keys_by_value)) if keys_by_value else knob
        self.keys_by_value = keys_by_value
        # The cumulated numbers of configs after each value, if they have been counted.
        self.cumulative_counts: list[int] = []
        self.children: dict[Value, _Node] = {}  # filled lazily
        self._tree, self._depth = tree, depth

    def next_node(self, value: Value) -> _Node:
        """Return the choice after ``value``, or the root after the last knob."""
        child = self.children.get(value)
        if child is None:
            depth = self._depth + 1
            tree = self._tree
            child = tree.make_node(depth, self.keys_by_value[value]) if depth < len(tree.axes) else tree.root
            self.children[value] = child
        return child


class _Tree(ABC):
    """The configs of a space as a tree, whose nodes are created when they are first used."""

    axes: Sequence[Knob]
    root: _Node

    @abstractmethod
    def make_node(self, depth: int, prefix_key: Any) -> _Node:
        """Return the node at ``depth`` that a value leads to, given what the value's row contains."""

    def decide(self, choose: Choose) -> Config:
        values: dict[str, Value] = {}
        node = self.root
        for knob in self.axes:
            values[knob.name] = value = choose(node.knob)
            node = node.next_node(value)
        return Config.wrap(values)

    # These two return the same as in Space, but faster: model-guided searches spend most of their time in them.

    def knobs(self, config: Mapping[str, Value]) -> list[Knob] | None:
        """Return the knobs of ``config``, or None if it is not in the space."""
        knobs: list[Knob] = []
        node = self.root
        for knob in self.axes:
            value = config.get(knob.name)
            if value not in node.keys_by_value:
                return None
            knobs.append(node.knob)
            node = node.children.get(value) or node.next_node(value)
        return knobs if len(config) == len(knobs) else None

    def repair(self, config: Mapping[str, Value], rng: np.random.Generator) -> Config:
        """Return the config that :meth:`Space.repair` returns, with the same draws."""
        values: dict[str, Value] = {}
        node = self.root
        for knob in self.axes:
            value = config.get(knob.name)
            if value is None or value not in node.keys_by_value:
                value = node.knob.choices[int(rng.integers(len(node.keys_by_value)))]
            values[knob.name] = value
            node = node.children.get(value) or node.next_node(value)
        return Config.wrap(values)


class _ListedTree(_Tree):
    """The listed configs as sorted rows of positions, in which configs with a common prefix are adjacent."""

    def __init__(self, axes: Sequence[Knob], indices: Sequence[int]) -> None:
        needs_objects = len(indices) > 0 and indices[-1] >= MAX_INT64_INDEX
        remainders: Array = np.array(indices, dtype=object if needs_objects else np.int64)
        columns = []
        for knob in axes:
            columns.append((remainders % len(knob.choices)).astype(np.int64))
            remainders = remainders // len(knob.choices)
        row_order = np.lexsort(columns[::-1])
        self.axes = axes
        self.columns = [column[row_order] for column in columns]
        self.root = self.make_node(0, (0, len(indices)))

    def make_node(self, depth: int, prefix_key: tuple[int, int]) -> _Node:
        """Return the node for the rows from the first to the end, which have a prefix in common."""
        first, end = prefix_key
        positions, starts = np.unique(self.columns[depth][first:end], return_index=True)
        choices = self.axes[depth].choices
        limits = [*(first + starts).tolist(), end]
        row_ranges = zip((choices[position] for position in positions.tolist()), pairwise(limits), strict=True)
        return _Node(self, depth, dict(row_ranges))


class _TooManyConfigs(Exception):
    """The restrictions have been evaluated for MAX_EVALUATED values, but not for all."""


class _RestrictedTree(_Tree):
    """The configs that satisfy restrictions.

    Which values lead to a config depends only on those earlier knobs that later restrictions mention. Prefixes with the
    same values of these knobs share a node, so that an unrestricted space has one node per knob.

    Raises:
        SearchlabError: If no config satisfies the restrictions.
    """

    def __init__(self, axes: Sequence[Knob], restrictions: Sequence[Restriction]) -> None:
        self.axes = axes
        knob_names = [knob.name for knob in axes]
        last_depths = {
            restriction: max((knob_names.index(name) for name in restriction.knobs), default=0)
            for restriction in restrictions
        }
        self.restrictions_by_depth = [
            [restriction for restriction in restrictions if last_depths[restriction] == depth]
            for depth in range(len(axes))
        ]
        # For each depth, the earlier knobs that matter. Nothing matters from the depth ``free_depth`` on.
        self.live_names = [
            [
                name
                for name in knob_names[:depth]
                if any(name in restriction.knobs and last_depths[restriction] >= depth for restriction in restrictions)
            ]
            for depth in range(len(axes) + 1)
        ]
        self.free_depth = 1 + max(last_depths.values(), default=-1)
        self._nodes: dict[tuple[int, PrefixKey], _Node] = {}
        self._leads_by_prefix: dict[tuple[int, PrefixKey], bool] = {}
        self._counts_by_prefix: dict[tuple[int, PrefixKey], int] = {}
        self._evaluated_count = 0
        self.root = self.make_node(0, ())
        if not self.root.keys_by_value:
            raise SearchlabError(self._why_empty(restrictions))

    def _why_empty(self, restrictions: Sequence[Restriction]) -> str:
        """Return a message that names the first restriction that excludes all configs that the previous ones allow."""
        if earlier := restrictions[:-1]:
            _RestrictedTree(self.axes, earlier)  # raises the message about these if they exclude all configs
        exclusion = "all configs that the other restrictions allow" if earlier else "all configs"
        return f"no config satisfies the restrictions: {restrictions[-1].text!r} excludes {exclusion}"

    def make_node(self, depth: int, prefix_key: PrefixKey) -> _Node:
        if (depth, prefix_key) not in self._nodes:
            self._evaluated_count = 0
            try:
                keys_by_value = {
                    v: next_key
                    for v, next_key in self._allowed_values(depth, prefix_key)
                    if self._leads_to_config(depth + 1, next_key)
                }
            except _TooManyConfigs:
                raise SearchlabError(
                    f"cannot find a config that satisfies the restrictions: {MAX_EVALUATED_VALUES:,} values have been "
                    "tried. Put the knobs that a restriction mentions next to each other, or list fewer values"
                ) from None
            self._nodes[depth, prefix_key] = _Node(self, depth, keys_by_value)
        return self._nodes[depth, prefix_key]

    def _allowed_values(self, depth: int, prefix_key: PrefixKey) -> Iterator[tuple[Value, PrefixKey]]:
        """Yield the values of a knob that satisfy all restrictions of it and earlier knobs, with the next part."""
        knob, restrictions = self.axes[depth], self.restrictions_by_depth[depth]
        values = dict(zip(self.live_names[depth], prefix_key, strict=True))
        for value in knob.choices:
            values[knob.name] = value
            self._evaluated_count += 1
            if self._evaluated_count > MAX_EVALUATED_VALUES:
                raise _TooManyConfigs
            if all(restriction.is_satisfied(values) for restriction in restrictions):
                yield value, tuple(values[name] for name in self.live_names[depth + 1])

    def _leads_to_config(self, depth: int, prefix_key: PrefixKey) -> bool:
        if depth >= self.free_depth:
            return True
        if (depth, prefix_key) not in self._leads_by_prefix:
            following = self._allowed_values(depth, prefix_key)
            self._leads_by_prefix[depth, prefix_key] = any(
                self._leads_to_config(depth + 1, next_key) for _, next_key in following
            )
        return self._leads_by_prefix[depth, prefix_key]

    def _count_configs(self, depth: int, prefix_key: PrefixKey) -> int:
        """Return the number of configs after a prefix. Raises _TooManyConfigs."""
        if depth >= self.free_depth:
            return math.prod(len(knob.choices) for knob in self.axes[depth:])
        if (depth, prefix_key) not in self._counts_by_prefix:
            self._counts_by_prefix[depth, prefix_key] = sum(
                self._count_configs(depth + 1, next_key) for _, next_key in self._allowed_values(depth, prefix_key)
            )
        return self._counts_by_prefix[depth, prefix_key]

    @cached_property
    def size(self) -> int | None:
        """The number of configs, or None if they are too many to count."""
        self._evaluated_count = 0
        with suppress(_TooManyConfigs):
            return self._count_configs(0, ())
        return None

    def sample(self, rng: np.random.Generator) -> Config | None:
        """Draw a config uniformly. Return None if the configs are too many to count."""
        if self.size is None or self.size > 1e300:
            return None
        node, values = self.root, {}
        for depth, knob in enumerate(self.axes):
            node.cumulative_counts = node.cumulative_counts or list(
                accumulate(self._count_configs(depth + 1, prefix_key) for prefix_key in node.keys_by_value.values())
            )
            choice = bisect_right(
                node.cumulative_counts, rng.random() * node.cumulative_counts[-1], hi=len(node.cumulative_counts) - 1
            )
            values[knob.name] = value = node.knob.choices[choice]
            node = node.next_node(value)
        return Config.wrap(values)
