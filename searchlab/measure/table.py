"""Tables of recorded measurements, which replace measuring on a machine."""

from __future__ import annotations

import json
import logging
import math
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal
from weakref import WeakKeyDictionary

import msgspec
import numpy as np

from ..arrays import Floats
from ..costmodel.features import KEPT, ScheduledFeatures, make_features
from ..errors import SearchlabError, UnsupportedWorkload, warn
from ..log.format import Header, Record
from ..log.programs import SAMPLE_SIZE, ChangedProgram, check_sample
from ..log.read import find_logs, read_header, read_log, read_logs_in
from ..machine.host import own_cores
from ..plugins import Plugin, functions_in
from ..records import Measurement, Statistic, Trial, cost_of
from ..source import files_digest, source_digest
from ..space import Config, Knob, ProductSpace, Space, Value
from ..target import Target
from .contract import MeasurementsByProgram, Measurer, MeasureSettings, RunSettings, SpaceCosts
from .pool import BuildPool

MIN_CONFIGS_FOR_PROCESSES = 512
"""The number of configs below which starting processes takes longer than it saves."""

ABSENT_DISTANCE = 1e3
"""The distance of a knob that only one of two configs has: more than the sum over all shared knobs."""


_CHECKED_TABLES: WeakKeyDictionary[Space, set[str]] = WeakKeyDictionary()
"""The digests of the tables whose programs have been compared with those of a space."""


class TableSettings(MeasureSettings, frozen=True, tag="table", omit_defaults=True, dict=True):
    """Use the measurements in recorded logs instead of measuring.

    Attributes:
        path: A log or a directory of logs, or a list of these, relative to the study file.
        missing: What to do if a config is not in the logs: end the study ("refuse"), or use the measurement of the
            "nearest" config in the logs.
        noise: Whether to resample each measurement's repeats from the recorded ones, using the run's seed.
        confirm: With ``noise``, whether the repeats of a config that is faster than the run's best are resampled once
            more; see :class:`.RunSettings`.
        statistic: The statistic over the repeats that is used as the cost, whichever one the logs were recorded with.
        name: The name of a table in a suite. If it is set, logs record the name and the digest instead of the path, so
            they do not depend on the suite's location. Reports then compare the runs on each table separately.
        digest: The SHA-256 digest of that table's file.
    """

    path: str | list[str]
    missing: Literal["refuse", "nearest"] = "refuse"
    noise: bool = False
    confirm: bool = False
    statistic: Statistic = "median"
    name: str = ""
    digest: str = ""

    replays: ClassVar[bool] = True

    def __reduce__(self) -> Any:  # otherwise, unpickled defaults would no longer be omitted from the identity
        return msgspec.convert, (msgspec.to_builtins(self), TableSettings)

    def identity(self) -> dict[str, Any]:
        fields: dict[str, Any] = msgspec.to_builtins(self)
        return {name: value for name, value in fields.items() if name != "path"} if self.name else fields

    def content_digest(self, base_dir: Path = Path()) -> str:
        """Return the digest of the logs' content, which a table in a suite has already."""
        return self.digest or files_digest([log for path in self.paths(base_dir) for log in find_logs(path)])

    def headers(self, base_dir: Path) -> Mapping[Path, Header]:
        """Return the headers of all logs, searching directories recursively. They are read once for each directory.

        Raises:
            SearchlabError: If a path contains no logs that can be read.
        """
        if base_dir not in self._headers:
            headers: dict[Path, Header] = {}
            for path in self.paths(base_dir):  # each of which must contain logs
                headers.update(read_logs_in([path], lambda log: (log, read_header(log))))
            self._headers[base_dir] = headers
        return self._headers[base_dir]

    def default_target(self, base_dir: Path = Path()) -> dict[str, Any]:
        """Return the target recorded in the logs' headers. Raises SearchlabError if the logs have several targets."""
        (path, header), *others = self.headers(base_dir).items()
        for other_path, other in others:
            if other.target != header.target:
                raise SearchlabError(
                    f"{path} and {other_path} were measured for different targets, {json.dumps(header.target)} and "
                    f"{json.dumps(other.target)}; specify the target, or pass only logs for one target"
                )
        return header.target

    def measurable(self, base_dir: Path = Path()) -> set[tuple[str, str]]:
        """Return the workload and the space fingerprint of each log."""
        return {(header.workload, header.fingerprint) for header in self.headers(base_dir).values()}

    def space_of(self, name: str, workload: str, base_dir: Path = Path()) -> Plugin | None:
        """Return the space called ``name`` with the options recorded for ``workload``, or None if no log has both.

        Raises:
            UnsupportedWorkload: If no log is for ``workload``.
            SearchlabError: If the logs have different options.
        """
        headers = self.headers(base_dir).items()
        matches = [
            (path, header.space) for path, header in headers if (header.workload, header.space.name) == (workload, name)
        ]
        if not matches:
            workloads = sorted({header.workload for _, header in headers})
            if workload not in workloads:
                raise UnsupportedWorkload(f"{self.path} contains {', '.join(workloads)}, but not {workload}")
            return None
        (path, space), *other_matches = matches
        for other_path, other_space in other_matches:
            if other_space != space:
                raise SearchlabError(
                    f"{path} and {other_path} contain {workload} in the {name} space with different options; choose "
                    "one of them"
                )
        return space

    def machine(self, target: Target, base_dir: Path = Path()) -> str:
        """Return the machine recorded in the logs' headers, or "" if the logs come from several machines."""
        names = {header.measured_on for header in self.headers(base_dir).values()}
        return names.pop() if len(names) == 1 else ""

    def make(self, target: Target, measurements: MeasurementsByProgram, base_dir: Path = Path()) -> TableMeasurer:
        return TableMeasurer(self, base_dir)

    def paths(self, base_dir: Path) -> list[Path]:
        """Return the logs and directories of logs."""
        return [base_dir / path for path in ([self.path] if isinstance(self.path, str) else self.path)]

    @cached_property
    def _headers(self) -> dict[Path, Mapping[Path, Header]]:
        return {}


def draw_weights(configs: Sequence[Config]) -> Floats:
    """Return the relative frequency with which ``space.sample`` draws each config, shape (N,).

    Each knob is drawn uniformly from its choices, which depend on the earlier choices. (A product space draws all
    configs with the same frequency.) Because querying the space may be slow, a knob's choices are inferred from the
    configs that have the same earlier choices.

    Args:
        configs: All configs in the space.
    """
    weights = np.ones(len(configs))
    nodes: dict[tuple[int, tuple[str, Value]], int] = {}  # (a prefix, the next choice) -> the longer prefix
    paths = [[0] for _ in configs]
    for path, config in zip(paths, configs, strict=True):
        for item in config.items():
            path.append(nodes.setdefault((path[-1], item), len(nodes) + 1))
    choices = Counter(node for node, _ in nodes)
    for index, path in enumerate(paths):
        weights[index] = 1 / math.prod(choices[node] for node in path[:-1])
    return weights


class TableMeasurer(Measurer):
    """A measurer that returns each config's first measurement in the logs for the same workload and space.

    Building is charged as recorded, with the same number of workers. If ``noise`` is true, the repeats are resampled
    with replacement to simulate another run on the recorded machine. The sample depends on the run's seed and on the
    config.

    Args:
        settings: The logs, and how to use them.
        base_dir: The directory that relative paths start from.

    Raises:
        SearchlabError: If no log is found, or if the logs were recorded with different numbers of build workers. Also
            raised later if logs for the same space were recorded on different machines.
    """

    repeatable = True

    def __init__(self, settings: TableSettings, base_dir: Path = Path()) -> None:
        self.settings = settings
        self.where = ", ".join(map(str, settings.paths(base_dir)))
        self.begin(seed=0)
        self._headers = settings.headers(base_dir)
        self._tables: dict[tuple[str, str], _Table] = {}
        worker_counts = sorted({header.workers for header in self._headers.values()})
        if len(worker_counts) > 1:
            raise SearchlabError(
                f"the logs in {self.where} were recorded with {' and '.join(map(str, worker_counts))} build workers, "
                f"so their times cannot be compared; choose logs from a single machine"
            )
        self.workers = worker_counts[0]
        self._pool: BuildPool | None = None
        self._rows: dict[tuple[str, str], dict[Config, Floats]] = {}

    def begin(self, seed: int) -> None:
        self._seed = seed
        self._has_warned = False

    def measure(self, space: Space, configs: Sequence[Config], best: float = math.inf) -> Iterator[Measurement]:
        table = self._table(space)
        for config in configs:
            measurement = table.measurement(config) or self._use_nearest(table, config)
            if self.settings.noise:
                measurement = self._resample(config, measurement, best)
            best = min(best, measurement.cost)
            yield measurement

    def extract(self, space: Space, features: str, configs: Sequence[Config]) -> list[Floats]:
        """Return each config's features. Rows are kept for later runs, which are likely to search the same configs."""
        if sum(map(len, self._rows.values())) > KEPT:
            self._rows.clear()
        rows_by_config = self._rows.setdefault((space.fingerprint, features), {})
        new_configs = [config for config in configs if config not in rows_by_config]
        if self._pool is None and len(new_configs) >= MIN_CONFIGS_FOR_PROCESSES and own_cores() > 1:
            limits = RunSettings()
            self._pool = BuildPool(own_cores(), limits.build_timeout, limits.memory_limit_mb)
        rows: list[Floats] = []
        if self._pool is not None:
            rows = self._pool.extract(space, features, new_configs)
        elif new_configs:
            own_features = make_features(features, space)
            assert isinstance(own_features, ScheduledFeatures)
            rows = own_features.extract(new_configs)
        rows_by_config.update(zip(new_configs, rows, strict=True))
        return [rows_by_config[config] for config in configs]

    def extract_seconds(self) -> float:
        return self._pool.extract_seconds if self._pool is not None else 0.0

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()

    def recorded_measurements(self, space: Space) -> list[Measurement]:
        """Return the measurements in ``space``, one for each config."""
        return self._table(space).measurements

    def all_costs(self, space: Space) -> SpaceCosts | None:
        return self._table(space).all_costs

    def _table(self, space: Space) -> _Table:
        key = (str(space.workload), space.fingerprint)
        if key not in self._tables:
            paths = [path for path, header in self._headers.items() if (header.workload, header.fingerprint) == key]
            if not paths:
                workloads = ", ".join(sorted({header.workload for header in self._headers.values()}))
                raise SearchlabError(
                    f"no log in {self.where} matches {space.workload}, this space and this target; the logs there are "
                    f"for {workloads}, each with its own space and target; omit the target to use the recorded one"
                )
            self._check_machine(paths)
            table = _Table(paths, space, self.settings.statistic)
            self._check_programs(paths, space, table)
            self._tables[key] = table
        return self._tables[key]

    def _check_machine(self, paths: Sequence[Path]) -> None:
        paths_by_machine = {self._headers[path].measured_on: path for path in paths}
        paths_by_machine.pop("", None)
        if len(paths_by_machine) > 1:
            (first, path), (second, other), *_ = paths_by_machine.items()
            raise SearchlabError(
                f"{path} was measured on {first}, but {other} on {second}, so their times are not comparable; choose "
                f"the logs of one machine"
            )

    def _check_programs(self, paths: Sequence[Path], space: Space, table: _Table) -> None:
        """Check that ``space`` builds the programs that were measured, unless its code is the same as then.

        A sample of the configs is scheduled, once for each space and table. Tables of suites never change, so for them,
        other programs are only logged.
        """
        code = {self._headers[path].code.get("space", "") for path in paths}
        if not space.has_programs or code == {source_digest(type(space), *functions_in(space.made_with))}:
            return
        tables = _CHECKED_TABLES.setdefault(space, set())
        if (key := files_digest(paths)) in tables:
            return
        header, where = self._headers[paths[0]], self.settings.name or str(paths[0])
        is_verified = True
        try:
            is_verified = check_sample(where, list(table.sample(SAMPLE_SIZE)), space, header.versions) > 0
        except ChangedProgram as error:
            if not self.settings.name:
                raise
            logging.getLogger(__name__).info(
                "the table contains the times of other programs than the space builds now: %s", error.where_and_what
            )
        tables.add(key)
        if not is_verified and any(code):
            warn(
                f"the code of the space {header.space.name!r} has changed since {where} was measured, and the table "
                f"does not record the hashes of its programs, so they are unverified"
            )

    def _use_nearest(self, table: _Table, config: Config) -> Measurement:
        """Return the measurement of the nearest config. Raises SearchlabError if the settings refuse this."""
        if self.settings.missing == "refuse" or not len(table):
            raise SearchlabError(
                f"the logs in {self.where} contain no measurement of {config.to_json()}; use a table that contains "
                f'every config that a policy may propose, or set missing = "nearest"'
            )
        if not self._has_warned:
            self._has_warned = True
            warn(
                f"{self.where} does not contain every config that the policy proposes; for missing configs, the "
                f'measurement of the nearest config is used, and the trial is marked as "nearest" in the log'
            )
        return replace(table.measurements[table.config_index.find_nearest(config)], nearest=True)

    def _resample(self, config: Config, measurement: Measurement, best: float) -> Measurement:
        """Return ``measurement`` with repeats drawn from its own, more of them if it is to be confirmed."""
        if len(measurement.seconds) < 2:
            return measurement
        rng = np.random.default_rng([self._seed, zlib.crc32(json.dumps(config.to_json()).encode())])
        count = len(measurement.seconds)
        sample = tuple(measurement.seconds[i] for i in rng.integers(count, size=count))
        resampled = replace(measurement, seconds=sample)
        if not (self.settings.confirm and resampled.cost < best < math.inf):
            return resampled
        sample += tuple(measurement.seconds[i] for i in rng.integers(count, size=count))
        timing = measurement.run_seconds - measurement.check_seconds
        return replace(measurement, seconds=sample, run_seconds=measurement.run_seconds + timing)


class _Table:
    """The first measurement of each config in the logs for one space, except those taken from a nearest config.

    Most runs need only a few of the thousands of configs. Configs are therefore looked up by their JSON text, and
    decoded only on demand.
    """

    def __init__(self, paths: Sequence[Path], space: Space, statistic: Statistic) -> None:
        self._space = space
        self._statistic = statistic
        self._size: int | None = None  # the size of the space, if its configs were counted
        self._records: dict[bytes, Record] = {}
        self._measurements: dict[bytes, Measurement] = {}
        for log in map(read_log, paths):
            self._size = self._size or log.header.space_size
            for record in log.records:
                if not record.nearest:
                    self._records.setdefault(msgspec.json.encode(record.config), record)

    def __len__(self) -> int:
        return len(self._records)

    def measurement(self, config: Config) -> Measurement | None:
        """Return the measurement of ``config``, or None if the logs do not contain it."""
        text = msgspec.json.encode(config.to_json())
        if text not in self._records and (recorded_text := self._texts.get(config)) is not None:
            text = recorded_text
        return self._measurement(text) if text in self._records else None

    def _measurement(self, text: bytes) -> Measurement:
        if text not in self._measurements:
            measurement = self._records[text].measurement
            self._measurements[text] = replace(measurement, reused=False, statistic=self._statistic)
        return self._measurements[text]

    def sample(self, count: int) -> Iterator[Trial]:
        """Yield up to ``count`` trials, spread evenly over the table."""
        texts = list(self._records)
        for index in range(0, len(texts), max(1, len(texts) // count))[:count]:
            yield Trial(index, Config(msgspec.json.decode(texts[index])), self._measurement(texts[index]))

    @cached_property
    def _texts(self) -> dict[Config, bytes]:
        """Each config's JSON text, needed because a policy may list a config's knobs in a different order."""
        return {Config(msgspec.json.decode(text)): text for text in self._records}

    @cached_property
    def all_costs(self) -> SpaceCosts | None:
        """The costs of all configs, or None if the logs do not contain every config or if every config fails."""
        if self._size is None or len(self) < self._size or not np.isfinite(self._costs).any():
            return None
        product = isinstance(self._space, ProductSpace)
        return SpaceCosts(self._costs, np.ones(len(self)) if product else draw_weights(list(self._texts)))

    @cached_property
    def _costs(self) -> Floats:
        costs = [cost_of(record.seconds, record.failure, self._statistic) for record in self._records.values()]
        return np.array(costs)

    @property
    def measurements(self) -> list[Measurement]:
        return [self._measurement(text) for text in self._records]

    @cached_property
    def config_index(self) -> ConfigIndex:
        return ConfigIndex(list(self._texts), self._space.knobs_of(self._texts))


class ConfigIndex:
    """Finds which of ``configs`` is nearest to a given config, or the first if several are equally near.

    The distance between two configs is the sum of the distances between their knobs' values. Each of these is between 0
    and 1, or slightly greater for long tiles:

    - For two tiles, it is the sum of ``|log2|`` of their factors' ratios, divided by twice the largest ``log2`` of any
      of the knob's factors.
    - For two numbers, it is the difference between their ranks among the knob's values, divided by the largest rank.
    - For two words, it is 0 or 1.

    A knob that only one of the configs has counts more than all shared knobs together, so a config with the same knobs
    is always nearer than one with different knobs.
    """

    def __init__(self, configs: Sequence[Config], knobs: Mapping[str, Knob] | None = None) -> None:
        words = {name for name, knob in (knobs or {}).items() if knob.kind == "word"}
        self._names = list(dict.fromkeys(name for config in configs for name in config))
        self._knobs = [_Knob([config.get(name) for config in configs], name in words) for name in self._names]

    def find_nearest(self, config: Config) -> int:
        """Return the index of the nearest config."""
        total = np.zeros(len(self._knobs[0].codes)) if self._knobs else np.zeros(1)
        for name, knob in zip(self._names, self._knobs, strict=True):
            total += knob.distances(config.get(name))[knob.codes]
        return int(np.argmin(total))


class _Knob:
    """A knob's distinct values in the table (None if the knob is absent), and the index of each config's value."""

    def __init__(self, values: Sequence[Value | None], words: bool) -> None:
        self._words = words
        position: dict[tuple[type, Value | None], int] = {}
        # True == 1 == 1.0, but they are different choices.
        self.codes = np.array([position.setdefault((type(v), v), len(position)) for v in values], dtype=np.intp)
        self._values = [value for _, value in position]
        self._numbers = sorted({float(v) for v in self._values if isinstance(v, int | float)})
        self._span = max((abs(_log2(f)) for v in self._values if isinstance(v, tuple) for f in v), default=0.0) or 1.0
        self._positions_by_value: dict[tuple[type, Value | None], Floats] = {}

    def distances(self, value: Value | None) -> Floats:
        """Return the distance from ``value`` to each of the knob's values in the table."""
        key = (type(value), value)
        if key not in self._positions_by_value:
            # Distances are rounded so that every machine finds the same ties.
            self._positions_by_value[key] = np.round([self._distance(value, other) for other in self._values], 9)
        return self._positions_by_value[key]

    def _distance(self, a: Value | None, b: Value | None) -> float:
        if a is None or b is None:
            return 0.0 if a is b else ABSENT_DISTANCE
        if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b) and not self._words:
            return sum(abs(_log2(x) - _log2(y)) for x, y in zip(a, b, strict=True)) / (2 * self._span)
        if isinstance(a, int | float) and isinstance(b, int | float):
            ranks = np.interp([float(a), float(b)], self._numbers, np.arange(len(self._numbers)))
            return float(abs(ranks[0] - ranks[1])) / max(len(self._numbers) - 1, 1)
        return float(a != b)


def _log2(factor: int) -> float:
    return math.log2(factor) if factor > 0 else -1.0
