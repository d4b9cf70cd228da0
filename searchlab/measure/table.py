"""A table of recorded measurements that stands in for the machine."""

from __future__ import annotations

import json
import math
import warnings
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import msgspec
import numpy as np

from ..arrays import Floats
from ..costmodel.features import KEPT, ScheduledFeatures, make_features
from ..errors import SearchlabError, SearchlabWarning
from ..log.format import Header, Record, find_logs, read_header, read_log, read_packed
from ..log.packed import SUFFIX, Packed
from ..machine.host import own_cores
from ..plugins import Plugin
from ..records import Measurement, Statistic, cost_of
from ..space import Config, Knob, ProductSpace, Space, Value
from ..target import Target
from .contract import KnownPrograms, Measurer, RunSettings, Whole
from .pool import BuildPool

WORTH_PROCESSES = 512  # configs whose features are worth starting processes, which takes as long as about 512 rows
ABSENT = 1e3  # distance for a knob that only one of two configs has: more than all knobs that they share can differ


class TableSettings(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    tag_field="kind",
    tag="table",
    omit_defaults=True,
    dict=True,
):
    """Answer from recorded logs instead of measuring.

    Attributes:
        path: A log, a directory of logs, or several of them, relative to the study file.
        missing: What happens if a config is not in the logs: the study ends ("refuse"), or the config gets the
            measurement of the "nearest" config in the logs.
        noise: Whether the repeats of each measurement are resampled from the recorded ones, by the seed of the run.
        statistic: The statistic of the repeats that is used as the cost, whatever it was when they were recorded.
        name: The name of a table of a suite. Logs then record the name and the digest instead of the path, so that they
            do not depend on where the suite is, and reports compare the runs over each table separately.
        digest: The SHA-256 of that table.
    """

    path: str | list[str]
    missing: Literal["refuse", "nearest"] = "refuse"
    noise: bool = False
    statistic: Statistic = "median"
    name: str = ""
    digest: str = ""

    exclusive: ClassVar[Literal[False]] = False
    replays: ClassVar[Literal[True]] = True

    def identity(self) -> dict[str, Any]:
        fields: dict[str, Any] = msgspec.to_builtins(self)
        return {name: value for name, value in fields.items() if name != "path"} if self.name else fields

    def headers(self, base: Path) -> Mapping[Path, Header]:
        """Return the headers of all logs, which are read once for each ``base``; see :func:`read_headers`."""
        if base not in self._headers:
            self._headers[base] = read_headers(self._paths(base))
        return self._headers[base]

    def default_target(self, base: Path = Path()) -> dict[str, Any]:
        """Return the target of the logs as their headers record it. Raises SearchlabError if they have several."""
        (first, header), *rest = self.headers(base).items()
        for path, other in rest:
            if other.target != header.target:
                raise SearchlabError(
                    f"{first} and {path} were measured for different targets, {json.dumps(header.target)} and "
                    f"{json.dumps(other.target)}; give the target, or only name logs for one"
                )
        return header.target

    def measurable(self, base: Path = Path()) -> set[tuple[str, str]]:
        """Return the workload and the fingerprint of the space of each log."""
        return {(header.workload, header.fingerprint) for header in self.headers(base).values()}

    def space_of(self, name: str, workload: str, base: Path = Path()) -> Plugin | None:
        """Return the space ``name`` with the options in the logs of ``workload``; None if there is no such log.

        Raises:
            SearchlabError: If the logs have different options.
        """
        headers = self.headers(base).items()
        held = [(path, one.space) for path, one in headers if (one.workload, one.space.name) == (workload, name)]
        if not held:
            return None
        (first, space), *rest = held
        for path, other in rest:
            if other != space:
                raise SearchlabError(
                    f"{first} and {path} hold {workload} in the space {name} with different options; choose one of them"
                )
        return space

    def machine(self, target: Target, base: Path = Path()) -> str:
        """Return the machine of the logs as their headers record it; "" if they come from several."""
        names = {header.measured_on for header in self.headers(base).values()}
        return names.pop() if len(names) == 1 else ""

    def make(self, target: Target, known: KnownPrograms, base: Path = Path()) -> TableMeasurer:
        return TableMeasurer(self._paths(base), self.missing, self.noise, self.statistic, self.headers(base))

    def _paths(self, base: Path) -> list[Path]:
        return [base / path for path in ([self.path] if isinstance(self.path, str) else self.path)]

    @cached_property
    def _headers(self) -> dict[Path, Mapping[Path, Header]]:
        return {}


def read_headers(paths: Sequence[Path]) -> dict[Path, Header]:
    """Return the headers of the logs at ``paths`` and below the directories among them.

    Raises:
        SearchlabError: If one of the paths has no log, or a log cannot be read.
    """
    headers: dict[Path, Header] = {}
    for given in paths:
        logs = find_logs(given)
        if not logs:
            raise SearchlabError(f"there is no log (*.jsonl) in {given}")
        headers.update({path: read_header(path) for path in logs})
    return headers


def draw_weights(configs: Sequence[Config]) -> Floats:
    """Return the relative frequencies, shape (N,), with which ``space.sample`` draws ``configs``, all of the space.

    Each knob is drawn uniformly from its choices, which depend on the choices before it. (A product space draws all
    configs alike.) The choices are derived from the configs that begin alike: asking the space may be slow.
    """
    weights = np.ones(len(configs))
    nodes: dict[tuple[int, tuple[str, Value]], int] = {}  # (a beginning, the next choice) -> the longer beginning
    ways = [[0] for _ in configs]
    for way, config in zip(ways, configs, strict=True):
        for item in config.items():
            way.append(nodes.setdefault((way[-1], item), len(nodes) + 1))
    choices = Counter(node for node, _ in nodes)
    for index, way in enumerate(ways):
        weights[index] = 1 / math.prod(choices[node] for node in way[:-1])
    return weights


class TableMeasurer(Measurer):
    """Answers from logs of the same workload and space. The first measurement of each config counts.

    Building is charged as recorded, on the same number of workers. With ``noise``, the repeats are resampled with
    replacement, as another run on that machine might have measured them; the sample depends on the seed of the run and
    on the config.

    Args:
        paths: Logs and directories of logs.
        missing: See :class:`TableSettings`; so ``noise`` and ``statistic``.
        headers: The headers of the logs, if they have been read already.

    Raises:
        SearchlabError: If there is no log, or if the logs were built on different numbers of workers.
    """

    repeatable = True

    def __init__(
        self,
        paths: Sequence[Path],
        missing: Literal["refuse", "nearest"] = "refuse",
        noise: bool = False,
        statistic: Statistic = "median",
        headers: Mapping[Path, Header] | None = None,
    ) -> None:
        self.where = ", ".join(str(path) for path in paths)
        self.missing = missing
        self.noise = noise
        self.statistic = statistic
        self.begin(seed=0)
        self._headers = headers if headers is not None else read_headers(paths)
        self._tables: dict[tuple[str, str], _Table] = {}
        built_on = sorted({header.workers for header in self._headers.values()})
        if len(built_on) > 1:
            raise SearchlabError(
                f"the logs in {self.where} were built on {' and '.join(map(str, built_on))} workers, so "
                f"their times cannot be compared; choose logs of one machine"
            )
        self.workers = built_on[0]
        self._pool: BuildPool | None = None
        self._rows: dict[tuple[str, str], dict[Config, Floats]] = {}

    def begin(self, seed: int) -> None:
        self._seed = seed
        self._warned = False

    def measure(self, space: Space, configs: Sequence[Config], best: float = math.inf) -> Iterator[Measurement]:
        table = self._table(space)
        for config in configs:
            measurement = table.measurement(config) or self._nearest(table, config)
            yield self._noisy(config, measurement) if self.noise else measurement

    def extract(self, space: Space, features: str, configs: Sequence[Config]) -> list[Floats]:
        """Return the features. Runs over a table search the same configs, so the rows are kept for the next run."""
        if sum(map(len, self._rows.values())) > KEPT:
            self._rows.clear()
        known = self._rows.setdefault((space.fingerprint, features), {})
        new = [config for config in configs if config not in known]
        if self._pool is None and len(new) >= WORTH_PROCESSES and own_cores() > 1:
            limits = RunSettings()
            self._pool = BuildPool(own_cores(), limits.build_timeout, limits.memory_limit_mb)
        rows = self._pool.extract(space, features, new) if self._pool is not None else None
        if new and rows is None:
            here = make_features(features, space)
            assert isinstance(here, ScheduledFeatures)
            rows = here.extract(new)
        known.update(zip(new, rows or (), strict=True))
        return [known[config] for config in configs]

    def extract_seconds(self) -> float:
        return self._pool.extract_seconds if self._pool is not None else 0.0

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()

    def recorded(self, space: Space) -> list[Measurement]:
        """Return the measurements of this space, one per config."""
        return self._table(space).answers

    def whole(self, space: Space) -> Whole | None:
        return self._table(space).whole

    def _table(self, space: Space) -> _Table:
        key = (str(space.workload), space.fingerprint)
        if key not in self._tables:
            paths = [path for path, header in self._headers.items() if (header.workload, header.fingerprint) == key]
            if not paths:
                held = ", ".join(sorted({header.workload for header in self._headers.values()}))
                raise SearchlabError(
                    f"no log in {self.where} is for {space.workload} in this space and for this target; the logs there "
                    f"are for {held}, each with its own space and target; leave out the target to use theirs"
                )
            self._tables[key] = _Table(paths, space, self.statistic)
        return self._tables[key]

    def _nearest(self, table: _Table, config: Config) -> Measurement:
        if self.missing == "refuse" or not len(table):
            raise SearchlabError(
                f"{config.to_json()} was never measured in {self.where}; "
                f'use a table with every config that a policy may propose, or set missing = "nearest"'
            )
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"{self.where} does not contain every config that the policy proposes: a missing config gets the "
                f'measurement of the nearest config there, and its trial is marked "nearest" in the log',
                SearchlabWarning,
                stacklevel=2,
            )
        return replace(table.answers[table.nearest.index(config)], nearest=True)

    def _noisy(self, config: Config, measurement: Measurement) -> Measurement:
        if len(measurement.seconds) < 2:
            return measurement
        rng = np.random.default_rng([self._seed, zlib.crc32(json.dumps(config.to_json()).encode())])
        count = len(measurement.seconds)
        drawn = rng.integers(count, size=count)
        return replace(measurement, seconds=tuple(measurement.seconds[i] for i in drawn))


class _Table:
    """The first measurement of each config in the logs of one space, without those taken from a nearest config.

    Most runs ask for a few of thousands of configs, so these are found by their JSON, and decoded when they are asked.
    """

    def __init__(self, paths: Sequence[Path], space: Space, statistic: Statistic) -> None:
        self._space = space
        self._statistic = statistic
        self._size: int | None = None  # of the space, if it was counted
        self._rows: dict[bytes, tuple[Packed | list[Record], int]] = {}
        self._known: dict[bytes, Measurement] = {}
        for path in paths:
            rows: Packed | list[Record]
            if path.suffix == SUFFIX:
                size, rows = read_header(path).space_size, read_packed(path)
                configs = rows.configs
            else:
                log = read_log(path)
                size, rows = log.header.space_size, [record for record in log.records if not record.nearest]
                configs = [msgspec.json.encode(record.config) for record in rows]
            self._size = self._size or size
            for place, config in enumerate(configs):
                self._rows.setdefault(config, (rows, place))

    def __len__(self) -> int:
        return len(self._rows)

    def measurement(self, config: Config) -> Measurement | None:
        """Return the measurement of ``config``; None if there is none."""
        text = msgspec.json.encode(config.to_json())
        if text not in self._rows and (known := self._texts.get(config)) is not None:
            text = known
        return self._measurement(text) if text in self._rows else None

    def _measurement(self, text: bytes) -> Measurement:
        if text not in self._known:
            rows, place = self._rows[text]
            found = rows.measurement(place) if isinstance(rows, Packed) else rows[place].measurement
            self._known[text] = replace(found, reused=False, statistic=self._statistic)
        return self._known[text]

    @cached_property
    def _texts(self) -> dict[Config, bytes]:
        """The JSON of each config: a policy may spell a config in another order of its knobs."""
        return {Config(msgspec.json.decode(text)): text for text in self._rows}

    @cached_property
    def whole(self) -> Whole | None:
        """The costs of the space, if every config of it is in the logs and one of them runs."""
        if self._size is None or len(self) < self._size or not np.isfinite(self._costs).any():
            return None
        product = isinstance(self._space, ProductSpace)
        return Whole(self._costs, np.ones(len(self)) if product else draw_weights(list(self._texts)))

    @cached_property
    def _costs(self) -> Floats:
        sources = {id(rows): rows for rows, _ in self._rows.values()}
        costs = {
            key: rows.costs(self._statistic)
            if isinstance(rows, Packed)
            else [cost_of(row.seconds, row.failure, self._statistic) for row in rows]
            for key, rows in sources.items()
        }
        return np.array([costs[id(rows)][place] for rows, place in self._rows.values()])

    @property
    def answers(self) -> list[Measurement]:
        return [self._measurement(text) for text in self._rows]

    @cached_property
    def nearest(self) -> Nearest:
        return Nearest(list(self._texts), self._space.knobs_of(self._texts))


class Nearest:
    """Finds the one of ``configs`` that is nearest to a given config; the first, if several are equally near.

    The distance between two configs is the sum of the distances of their knobs, which are in [0, 1], or a little more
    for long tiles. For two tiles it is the sum of ``|log2|`` of the ratios of their factors, divided by twice the
    largest ``log2`` of a factor of the knob. For two numbers it is the difference of their ranks among the values of
    the knob, divided by the largest rank. For two words it is 0 or 1. A knob that only one config has counts more than
    all others, so a config with the same knobs is always nearer than one with different knobs.
    """

    def __init__(self, configs: Sequence[Config], knobs: Mapping[str, Knob] | None = None) -> None:
        words = {name for name, knob in (knobs or {}).items() if knob.kind == "word"}
        self._names = list(dict.fromkeys(name for config in configs for name in config))
        self._knobs = [_Knob([config.get(name) for config in configs], name in words) for name in self._names]

    def index(self, config: Config) -> int:
        """Return the index of the nearest config."""
        total = np.zeros(len(self._knobs[0].codes)) if self._knobs else np.zeros(1)
        for name, knob in zip(self._names, self._knobs, strict=True):
            total += knob.distances(config.get(name))[knob.codes]
        return int(np.argmin(total))


class _Knob:
    """A knob: its values in the table (None if it is absent), and for each config the index of its value."""

    def __init__(self, values: Sequence[Value | None], words: bool) -> None:
        self._words = words
        position: dict[tuple[type, Value | None], int] = {}
        # True == 1 == 1.0, but they are different choices.
        self.codes = np.array([position.setdefault((type(v), v), len(position)) for v in values], dtype=np.intp)
        self._values = [value for _, value in position]
        self._numbers = sorted({float(v) for v in self._values if isinstance(v, int | float)})
        self._span = max((abs(_log2(f)) for v in self._values if isinstance(v, tuple) for f in v), default=0.0) or 1.0
        self._known: dict[tuple[type, Value | None], Floats] = {}

    def distances(self, value: Value | None) -> Floats:
        """Return the distance from ``value`` to each value of the knob in the table."""
        key = (type(value), value)
        if key not in self._known:
            # Rounded, so that ties are the same on every machine.
            self._known[key] = np.round([self._distance(value, other) for other in self._values], 9)
        return self._known[key]

    def _distance(self, a: Value | None, b: Value | None) -> float:
        if a is None or b is None:
            return 0.0 if a is b else ABSENT
        if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b) and not self._words:
            return sum(abs(_log2(x) - _log2(y)) for x, y in zip(a, b, strict=True)) / (2 * self._span)
        if isinstance(a, int | float) and isinstance(b, int | float):
            ranks = np.interp([float(a), float(b)], self._numbers, np.arange(len(self._numbers)))
            return float(abs(ranks[0] - ranks[1])) / max(len(self._numbers) - 1, 1)
        return float(a != b)


def _log2(factor: int) -> float:
    return math.log2(factor) if factor > 0 else -1.0
