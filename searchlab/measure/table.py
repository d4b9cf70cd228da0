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

import msgspec
import numpy as np

from ..arrays import Floats
from ..costmodel.features import MAX_CACHED_ROWS, ScheduledFeatures, make_features
from ..errors import SearchlabError, UnsupportedWorkload, warn
from ..log.format import Header, Record
from ..log.programs import SAMPLE_SIZE, ChangedProgram, check_sample
from ..log.read import find_logs, read_header, read_log, read_logs_in
from ..machine.host import own_cores
from ..plugins import Plugin, iterate_functions
from ..records import Measurement, Statistic, Trial, compute_cost
from ..source import files_digest, source_digest
from ..space import Config, Knob, ProductSpace, Space, Value, coordinates, number_choices
from ..target import Target
from .building import BuildPool
from .contract import MeasurementsByProgram, Measurer, MeasureSettings, RunSettings, SpaceCosts

MIN_CONFIGS_FOR_PROCESSES = 512
"""The number of configs below which starting processes takes longer than it saves."""

ABSENT_DISTANCE = 1e3
"""The distance of a knob that only one of two configs has: more than the sum over all shared knobs."""


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

    def compute_content_digest(self, base_dir: Path = Path()) -> str:
        """Return the digest of the logs' content, which a table in a suite has already."""
        return self.digest or files_digest([log for path in self.list_log_paths(base_dir) for log in find_logs(path)])

    def read_headers(self, base_dir: Path) -> Mapping[Path, Header]:
        """Return the headers of all logs, searching directories recursively. They are read once for each directory.

        Raises:
            SearchlabError: If a path contains no logs that can be read.
        """
        if base_dir not in self._headers_by_base_dir:
            headers: dict[Path, Header] = {}
            for path in self.list_log_paths(base_dir):  # each of which must contain logs
                headers.update(read_logs_in([path], lambda log: (log, read_header(log))))
            self._headers_by_base_dir[base_dir] = headers
        return self._headers_by_base_dir[base_dir]

    def default_target(self, base_dir: Path = Path()) -> dict[str, Any]:
        """Return the target recorded in the logs' headers. Raises SearchlabError if the logs have several targets."""
        (path, header), *others = self.read_headers(base_dir).items()
        for other_path, other in others:
            if other.target != header.target:
                raise SearchlabError(
                    f"{path} and {other_path} were measured for different targets, {json.dumps(header.target)} and "
                    f"{json.dumps(other.target)}; specify the target, or pass only logs for one target"
                )
        return header.target

    def measurable_spaces(self, base_dir: Path = Path()) -> set[tuple[str, str]]:
        """Return the workload and the space fingerprint of each log."""
        return {(header.workload, header.fingerprint) for header in self.read_headers(base_dir).values()}

    def find_space(self, name: str, workload: str, base_dir: Path = Path()) -> Plugin | None:
        """Return the space called ``name`` with the options recorded for ``workload``, or None if no log has both.

        Raises:
            UnsupportedWorkload: If no log is for ``workload``.
            SearchlabError: If the logs have different options.
        """
        headers = self.read_headers(base_dir).items()
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

    def machine_name(self, target: Target, base_dir: Path = Path()) -> str:
        """Return the machine recorded in the logs' headers, or "" if the logs come from several machines."""
        names = {header.measured_on for header in self.read_headers(base_dir).values()}
        return names.pop() if len(names) == 1 else ""

    def make(self, target: Target, measurements: MeasurementsByProgram, base_dir: Path = Path()) -> TableMeasurer:
        return TableMeasurer(self, base_dir)

    def list_log_paths(self, base_dir: Path) -> list[Path]:
        """Return the logs and directories of logs."""
        return [base_dir / path for path in ([self.path] if isinstance(self.path, str) else self.path)]

    @cached_property
    def _headers_by_base_dir(self) -> dict[Path, Mapping[Path, Header]]:
        return {}


def compute_draw_weights(configs: Sequence[Config]) -> Floats:
    """Return the relative frequency with which ``space.sample`` draws each config, shape (N,).

    Each knob is drawn uniformly from its choices, which depend on the earlier choices. (A product space draws all
    configs with the same frequency.) Because querying the space may be slow, a knob's choices are inferred from the
    configs that have the same earlier choices.

    Args:
        configs: All configs in the space.
    """
    weights = np.ones(len(configs))
    node_by_choice: dict[tuple[int, tuple[str, Value]], int] = {}  # (a prefix, the next choice) -> the longer prefix
    node_paths = [[0] for _ in configs]
    for node_path, config in zip(node_paths, configs, strict=True):
        for choice in config.items():
            node_path.append(node_by_choice.setdefault((node_path[-1], choice), len(node_by_choice) + 1))
    choice_counts = Counter(node for node, _ in node_by_choice)
    for index, node_path in enumerate(node_paths):
        weights[index] = 1 / math.prod(choice_counts[node] for node in node_path[:-1])
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
        self.logs_text = ", ".join(map(str, settings.list_log_paths(base_dir)))
        self.begin(seed=0)
        self._headers_by_path = settings.read_headers(base_dir)
        self._tables_by_space: dict[tuple[str, str], _Table] = {}
        worker_counts = sorted({header.workers for header in self._headers_by_path.values()})
        if len(worker_counts) > 1:
            raise SearchlabError(
                f"the logs in {self.logs_text} were recorded with {' and '.join(map(str, worker_counts))} build "
                f"workers, so their times cannot be compared; choose logs from a single machine"
            )
        self.workers = worker_counts[0]
        self._pool: BuildPool | None = None
        self._cached_rows: dict[tuple[str, str], dict[Config, Floats]] = {}

    def begin(self, seed: int) -> None:
        self._seed = seed
        self._has_warned = False

    def measure(self, space: Space, configs: Sequence[Config], best_cost: float = math.inf) -> Iterator[Measurement]:
        table = self._load_table(space)
        for config in configs:
            measurement = table.find_measurement(config) or self._use_nearest(table, config)
            if self.settings.noise:
                measurement = self._resample(config, measurement, best_cost)
            best_cost = min(best_cost, measurement.cost)
            yield measurement

    def extract(self, space: Space, features: str, configs: Sequence[Config]) -> list[Floats]:
        """Return each config's features. Rows are kept for later runs, which are likely to search the same configs."""
        if sum(map(len, self._cached_rows.values())) > MAX_CACHED_ROWS:
            self._cached_rows.clear()
        rows_by_config = self._cached_rows.setdefault((space.fingerprint, features), {})
        new_configs = [config for config in configs if config not in rows_by_config]
        if self._pool is None and len(new_configs) >= MIN_CONFIGS_FOR_PROCESSES and own_cores() > 1:
            default_settings = RunSettings()
            self._pool = BuildPool(own_cores(), default_settings.build_timeout, default_settings.memory_limit_mb)
        rows: list[Floats] = []
        if self._pool is not None:
            rows = self._pool.extract(space, features, new_configs)
        elif new_configs:
            scheduled_features = make_features(features, space)
            assert isinstance(scheduled_features, ScheduledFeatures)
            rows = scheduled_features.extract(new_configs)
        rows_by_config.update(zip(new_configs, rows, strict=True))
        return [rows_by_config[config] for config in configs]

    def extract_seconds(self) -> float:
        return self._pool.extract_seconds if self._pool is not None else 0.0

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()

    def list_measurements(self, space: Space) -> list[Measurement]:
        """Return the measurements in ``space``, one for each config."""
        return self._load_table(space).measurements

    def all_costs(self, space: Space) -> SpaceCosts | None:
        return self._load_table(space).all_costs

    def _load_table(self, space: Space) -> _Table:
        space_key = (str(space.workload), space.fingerprint)
        if space_key not in self._tables_by_space:
            paths = [
                path
                for path, header in self._headers_by_path.items()
                if (header.workload, header.fingerprint) == space_key
            ]
            if not paths:
                workloads = ", ".join(sorted({header.workload for header in self._headers_by_path.values()}))
                raise SearchlabError(
                    f"no log in {self.logs_text} matches {space.workload}, this space and this target; the logs there "
                    f"are for {workloads}, each with its own space and target; omit the target to use the recorded one"
                )
            self._check_machine(paths)
            table = _Table(paths, space, self.settings.statistic)
            self._check_programs(paths, space, table)
            self._tables_by_space[space_key] = table
        return self._tables_by_space[space_key]

    def _check_machine(self, paths: Sequence[Path]) -> None:
        paths_by_machine = {self._headers_by_path[path].measured_on: path for path in paths}
        paths_by_machine.pop("", None)
        if len(paths_by_machine) > 1:
            (first_machine, path), (second_machine, other_path), *_ = paths_by_machine.items()
            raise SearchlabError(
                f"{path} was measured on {first_machine}, but {other_path} on {second_machine}, so their times are "
                f"not comparable; choose the logs of one machine"
            )

    def _check_programs(self, paths: Sequence[Path], space: Space, table: _Table) -> None:
        """Check that ``space`` builds the programs that were measured, unless its code is the same as then.

        A sample of the configs is scheduled. Tables of suites never change, so for them, other programs are only
        logged.
        """
        code_digests = {self._headers_by_path[path].code_digests.get("space", "") for path in paths}
        if not space.has_programs or code_digests == {source_digest(type(space), *iterate_functions(space.made_with))}:
            return
        header, table_name = self._headers_by_path[paths[0]], self.settings.name or str(paths[0])
        is_verified = True
        try:
            is_verified = check_sample(table_name, list(table.sample_trials(SAMPLE_SIZE)), space, header.versions) > 0
        except ChangedProgram as error:
            if not self.settings.name:
                raise
            logging.getLogger(__name__).info(
                "the table contains the times of other programs than the space builds now: %s", error.where_and_what
            )
        if not is_verified and any(code_digests):
            warn(
                f"the code of the space {header.space.name!r} has changed since {table_name} was measured, and the "
                f"table does not record the hashes of its programs, so they are unverified"
            )

    def _use_nearest(self, table: _Table, config: Config) -> Measurement:
        """Return the measurement of the nearest config. Raises SearchlabError if the settings refuse this."""
        if self.settings.missing == "refuse" or not len(table):
            raise SearchlabError(
                f"the logs in {self.logs_text} contain no measurement of {config.to_json()}; use a table that contains "
                f'every config that a policy may propose, or set missing = "nearest"'
            )
        if not self._has_warned:
            self._has_warned = True
            warn(
                f"{self.logs_text} does not contain every config that the policy proposes; for missing configs, the "
                f'measurement of the nearest config is used, and the trial is marked as "nearest" in the log'
            )
        return replace(table.measurements[table.config_index.find_nearest(config)], nearest=True)

    def _resample(self, config: Config, measurement: Measurement, best_cost: float) -> Measurement:
        """Return ``measurement`` with repeats drawn from its own, more of them if it is to be confirmed."""
        if len(measurement.seconds) < 2:
            return measurement
        rng = np.random.default_rng([self._seed, zlib.crc32(json.dumps(config.to_json()).encode())])
        repeat_count = len(measurement.seconds)
        sampled_seconds = tuple(measurement.seconds[i] for i in rng.integers(repeat_count, size=repeat_count))
        resampled = replace(measurement, seconds=sampled_seconds)
        if not (self.settings.confirm and resampled.cost < best_cost < math.inf):
            return resampled
        sampled_seconds += tuple(measurement.seconds[i] for i in rng.integers(repeat_count, size=repeat_count))
        timing_seconds = measurement.run_seconds - measurement.check_seconds
        return replace(measurement, seconds=sampled_seconds, run_seconds=measurement.run_seconds + timing_seconds)


class _Table:
    """The first measurement of each config in the logs for one space, except those taken from a nearest config.

    Most runs need only a few of the thousands of configs. Configs are therefore looked up by their JSON text, and
    decoded only on demand.
    """

    def __init__(self, paths: Sequence[Path], space: Space, statistic: Statistic) -> None:
        self._space = space
        self._statistic = statistic
        self._space_size: int | None = None  # the size of the space, if its configs were counted
        self._records_by_text: dict[bytes, Record] = {}
        self._measurements_by_text: dict[bytes, Measurement] = {}
        for log in map(read_log, paths):
            self._space_size = self._space_size or log.header.space_size
            for record in log.records:
                if not record.nearest:
                    self._records_by_text.setdefault(msgspec.json.encode(record.config), record)

    def __len__(self) -> int:
        return len(self._records_by_text)

    def find_measurement(self, config: Config) -> Measurement | None:
        """Return the measurement of ``config``, or None if the logs do not contain it."""
        config_text = msgspec.json.encode(config.to_json())
        if config_text not in self._records_by_text:
            config_text = self._texts_by_config.get(config, config_text)
        return self._get_measurement(config_text) if config_text in self._records_by_text else None

    def _get_measurement(self, config_text: bytes) -> Measurement:
        if config_text not in self._measurements_by_text:
            measurement = self._records_by_text[config_text].measurement
            self._measurements_by_text[config_text] = replace(measurement, reused=False, statistic=self._statistic)
        return self._measurements_by_text[config_text]

    def sample_trials(self, count: int) -> Iterator[Trial]:
        """Yield up to ``count`` trials, spread evenly over the table."""
        config_texts = list(self._records_by_text)
        for index in range(0, len(config_texts), max(1, len(config_texts) // count))[:count]:
            yield Trial(
                index, Config(msgspec.json.decode(config_texts[index])), self._get_measurement(config_texts[index])
            )

    @cached_property
    def _texts_by_config(self) -> dict[Config, bytes]:
        """Each config's JSON text, needed because a policy may list a config's knobs in a different order."""
        return {Config(msgspec.json.decode(config_text)): config_text for config_text in self._records_by_text}

    @cached_property
    def all_costs(self) -> SpaceCosts | None:
        """The costs of all configs, or None if the logs do not contain every config or if every config fails."""
        if self._space_size is None or len(self) < self._space_size or not np.isfinite(self._costs).any():
            return None
        is_product = isinstance(self._space, ProductSpace)
        weights = np.ones(len(self)) if is_product else compute_draw_weights(list(self._texts_by_config))
        return SpaceCosts(self._costs, weights)

    @cached_property
    def _costs(self) -> Floats:
        costs = [
            compute_cost(record.seconds, record.failure, self._statistic) for record in self._records_by_text.values()
        ]
        return np.array(costs)

    @property
    def measurements(self) -> list[Measurement]:
        return [self._get_measurement(config_text) for config_text in self._records_by_text]

    @cached_property
    def config_index(self) -> ConfigIndex:
        return ConfigIndex(list(self._texts_by_config), self._space.knobs_of(self._texts_by_config))


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
        word_knob_names = {name for name, knob in (knobs or {}).items() if knob.kind == "word"}
        self._knob_names = list(dict.fromkeys(name for config in configs for name in config))
        self._knobs = [
            _KnobValues([config.get(name) for config in configs], name in word_knob_names) for name in self._knob_names
        ]

    def find_nearest(self, config: Config) -> int:
        """Return the index of the nearest config."""
        total_distances = np.zeros(len(self._knobs[0].codes)) if self._knobs else np.zeros(1)
        for name, knob in zip(self._knob_names, self._knobs, strict=True):
            total_distances += knob.compute_distances(config.get(name))[knob.codes]
        return int(np.argmin(total_distances))


class _KnobValues:
    """A knob's distinct values in the table (None if the knob is absent), and the index of each config's value."""

    def __init__(self, values: Sequence[Value | None], is_word: bool) -> None:
        self._is_word = is_word
        self._values, self.codes = number_choices(values)
        self._sorted_numbers = sorted({float(value) for value in self._values if isinstance(value, int | float)})
        tiles = [value for value in self._values if isinstance(value, tuple)]
        self._max_log2 = max((abs(log2) for tile in tiles for _, log2 in coordinates(tile)), default=0.0) or 1.0
        self._distances_by_value: dict[tuple[type, Value | None], Floats] = {}

    def compute_distances(self, value: Value | None) -> Floats:
        """Return the distance from ``value`` to each of the knob's values in the table."""
        key = (type(value), value)
        if key not in self._distances_by_value:
            # Distances are rounded so that every machine finds the same ties.
            self._distances_by_value[key] = np.round(
                [self._compute_distance(value, other) for other in self._values], 9
            )
        return self._distances_by_value[key]

    def _compute_distance(self, a: Value | None, b: Value | None) -> float:
        if a is None or b is None:
            return 0.0 if a is b else ABSENT_DISTANCE
        if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b) and not self._is_word:
            distance = sum(abs(x - y) for (_, x), (_, y) in zip(coordinates(a), coordinates(b), strict=True))
            return distance / (2 * self._max_log2)
        if isinstance(a, int | float) and isinstance(b, int | float):
            ranks = np.interp([float(a), float(b)], self._sorted_numbers, np.arange(len(self._sorted_numbers)))
            return float(abs(ranks[0] - ranks[1])) / max(len(self._sorted_numbers) - 1, 1)
        return float(a != b)
