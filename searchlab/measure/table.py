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
from ..log.format import Header, find_logs, read_header, read_log
from ..machine.host import own_cores
from ..plugins import Plugin
from ..records import Measurement, Statistic
from ..space import Config, ProductSpace, Space, Value
from ..target import Target
from .contract import KnownPrograms, Measurer, RunSettings, Whole
from .nearest import Nearest
from .pool import BuildPool

WORTH_PROCESSES = 512
"""From so many configs on, processes are started to extract features: a start takes as long as about this many rows."""


class TableSettings(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="table", omit_defaults=True
):
    """Answer from recorded logs: a file, a directory of logs, or several of them, relative to the study file.

    A config that they do not hold is refused, or answered by the ``nearest`` one that they do; with ``noise`` the
    repeats of a measurement are drawn anew from those recorded, from the seed of the run. The cost of a trial is
    the ``statistic`` of its repeats, whatever it was when they were recorded.

    name, digest: of a table of a suite. Logs then hold these and no path, so they are the same wherever the suite is,
    and a report compares the runs over each table apart.
    """

    path: str | list[str]
    missing: Literal["refuse", "nearest"] = "refuse"
    noise: bool = False
    statistic: Statistic = "median"
    name: str = ""
    digest: str = ""

    exclusive: ClassVar[Literal[False]] = False
    replays: ClassVar[Literal[True]] = True

    def paths(self, base: Path) -> list[Path]:
        return [base / path for path in ([self.path] if isinstance(self.path, str) else self.path)]

    def identity(self) -> dict[str, Any]:
        fields: dict[str, Any] = msgspec.to_builtins(self)
        return {name: value for name, value in fields.items() if name != "path"} if self.name else fields

    def default_target(self, base: Path = Path()) -> dict[str, Any]:
        """The one target, as a log's header has it, of all the logs. Raises SearchlabError where they have several."""
        return one_target({path: header.target for path, header in read_headers(self.paths(base)).items()})

    def measurable(self, base: Path = Path()) -> set[tuple[str, str]]:
        """The workload, and the fingerprint of the space, of each log."""
        return {(header.workload, header.fingerprint) for header in read_headers(self.paths(base)).values()}

    def space_of(self, name: str, workload: str, base: Path = Path()) -> Plugin | None:
        """The space ``name`` with the options that the logs of ``workload`` hold; None if there is no such log.

        Raises SearchlabError where they hold several.
        """
        headers = read_headers(self.paths(base)).items()
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
        """The one machine, as a log's header has it, of all the logs; empty where they are of several."""
        names = {header.measured_on for header in read_headers(self.paths(base)).values()}
        return names.pop() if len(names) == 1 else ""

    def make(self, target: Target, known: KnownPrograms, base: Path = Path()) -> TableMeasurer:
        return TableMeasurer(self.paths(base), self.missing, self.noise, self.statistic)


def one_target(targets: Mapping[Path, dict[str, Any]]) -> dict[str, Any]:
    """The target of all that answer in place of a machine, by path. Raises SearchlabError where they have several."""
    (first, target), *rest = targets.items()
    for path, other in rest:
        if other != target:
            raise SearchlabError(
                f"{first} and {path} were measured for different targets, {json.dumps(target)} and "
                f"{json.dumps(other)}; give the target, or name only what is for one"
            )
    return target


def read_headers(paths: Sequence[Path]) -> dict[Path, Header]:
    """The headers of the logs at ``paths`` and in the directories among them.

    Raises SearchlabError where there is none at one of them, or one is unreadable.
    """
    headers: dict[Path, Header] = {}
    for given in paths:
        logs = find_logs(given)
        if not logs:
            raise SearchlabError(f"there is no log (*.jsonl) in {given}")
        headers.update({path: read_header(path) for path in logs})
    return headers


def draw_weights(space: Space, configs: Sequence[Config]) -> Floats:
    """How often ``space.sample`` gives each of ``configs``, which are all that there are: shape (N,), of any sum.

    All alike in a product space. Elsewhere each knob is drawn uniformly from its choices, which depend on the choices
    before: they are those of the configs that begin alike, so that no knob need be asked for, which may take long.
    """
    weights = np.ones(len(configs))
    if isinstance(space, ProductSpace):
        return weights
    nodes: dict[tuple[int, tuple[str, Value]], int] = {}  # a way to begin, and the choice after it -> that beginning
    ways = [[0] for _ in configs]
    for way, config in zip(ways, configs, strict=True):
        for item in config.items():
            way.append(nodes.setdefault((way[-1], item), len(nodes) + 1))
    choices = Counter(node for node, _ in nodes)
    for index, way in enumerate(ways):
        weights[index] = 1 / math.prod(choices[node] for node in way[:-1])
    return weights


def drawn_for(seed: int, config: Config) -> np.random.Generator:
    """The random numbers of the noise of ``config`` in a run from ``seed``."""
    return np.random.default_rng([seed, zlib.crc32(json.dumps(config.to_json()).encode())])


class TableMeasurer(Measurer):
    """Answers from logs of the same workload and space; the first measurement of a config counts.

    Building is charged as it was recorded, on as many workers. Raises SearchlabError where no log is of the space.

    missing: a config that was never measured is refused with SearchlabError, or gets the measurement of the
        ``nearest`` config (see :class:`~searchlab.measure.nearest.Nearest`), which is marked as such.
    noise: the repeats are drawn anew from the recorded ones, with replacement: as another run on that machine might
        have seen them. The draw depends on the seed of the run and on the config.
    """

    repeatable = True

    def __init__(
        self,
        paths: Sequence[Path],
        missing: Literal["refuse", "nearest"] = "refuse",
        noise: bool = False,
        statistic: Statistic = "median",
    ) -> None:
        self.where = ", ".join(str(path) for path in paths)
        self.missing = missing
        self.noise = noise
        self.statistic = statistic
        self.begin(seed=0)
        self._headers = read_headers(paths)
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
            measurement = table.measured.get(config) or self._nearest(table, config)
            yield self._noisy(config, measurement) if self.noise else measurement

    def extract(self, space: Space, features: str, configs: Sequence[Config]) -> list[Floats]:
        """The runs over a table search the same configs, so its rows are kept from one run to the next."""
        if sum(map(len, self._rows.values())) > KEPT:
            self._rows.clear()
        known = self._rows.setdefault((space.fingerprint, features), {})
        new = [config for config in configs if config not in known]
        if new:
            known.update(zip(new, self._extracted(space, features, new), strict=True))
        return [known[config] for config in configs]

    def _extracted(self, space: Space, features: str, configs: Sequence[Config]) -> list[Floats]:
        if self._pool is None and len(configs) >= WORTH_PROCESSES and own_cores() > 1:
            limits = RunSettings()
            self._pool = BuildPool(own_cores(), limits.build_timeout, limits.memory_limit_mb)
        rows = self._pool.extract(space, features, configs) if self._pool is not None else None
        if rows is None:
            here = make_features(features, space)
            assert isinstance(here, ScheduledFeatures)
            rows = here.extract(configs)
        return rows

    def extract_seconds(self) -> float:
        return self._pool.extract_seconds if self._pool is not None else 0.0

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()

    def recorded(self, space: Space) -> list[Measurement]:
        """The measurements that the logs hold of this space, one a config."""
        return self._table(space).answers

    def whole(self, space: Space) -> Whole | None:
        return self._table(space).whole

    def optimum(self, space: Space) -> float | None:
        """The least recorded cost, if the logs hold every config of ``space``."""
        return self._table(space).optimum

    def _table(self, space: Space) -> _Table:
        key = (str(space.workload), space.fingerprint)
        if key not in self._tables:
            paths = [path for path, header in self._headers.items() if (header.workload, header.fingerprint) == key]
            if not paths:
                held = ", ".join(sorted({header.workload for header in self._headers.values()}))
                raise SearchlabError(
                    f"no log in {self.where} was made in this space for {space.workload} and this target; "
                    f"the logs there are of {held}, each in its own space and for its own target; leave out the "
                    f"target to take theirs"
                )
            self._tables[key] = _Table(paths, space, self.statistic)
        return self._tables[key]

    def _nearest(self, table: _Table, config: Config) -> Measurement:
        if self.missing == "refuse" or not table.measured:
            raise SearchlabError(
                f"{config.to_json()} was never measured in {self.where}; "
                f'a table must hold every config that a policy may ask for, or be read with missing = "nearest"'
            )
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"{self.where} does not hold every config that the policy asks for: the trial of a missing config gets "
                f'the measurement of the nearest config there, and is marked "nearest" in the log',
                SearchlabWarning,
                stacklevel=2,
            )
        return replace(table.answers[table.nearest.index(config)], nearest=True)

    def _noisy(self, config: Config, measurement: Measurement) -> Measurement:
        if len(measurement.seconds) < 2:
            return measurement
        count = len(measurement.seconds)
        drawn = drawn_for(self._seed, config).integers(count, size=count)
        return replace(measurement, seconds=tuple(measurement.seconds[i] for i in drawn))


class _Table:
    """The first measurement of each config in the logs of one space, without those that are of another config."""

    def __init__(self, paths: Sequence[Path], space: Space, statistic: Statistic) -> None:
        self._space = space
        self.measured: dict[Config, Measurement] = {}
        self._size: int | None = None  # of the whole space, if it was counted
        for path in paths:
            log = read_log(path)
            self._size = self._size or log.header.space_size
            for trial in log.trials:
                if not trial.measurement.nearest:
                    measurement = replace(trial.measurement, reused=False, statistic=statistic)
                    self.measured.setdefault(trial.config, measurement)

    @cached_property
    def optimum(self) -> float | None:
        """The least cost, if every config of the space is in the logs, and one of them runs."""
        return float(self.whole.costs.min()) if self.whole else None

    @cached_property
    def whole(self) -> Whole | None:
        """Every config of the space, if they are in the logs, and one of them runs."""
        if self._size is None or len(self.measured) < self._size:
            return None
        costs = np.array([measurement.cost for measurement in self.answers])
        return Whole(costs, draw_weights(self._space, list(self.measured))) if np.isfinite(costs).any() else None

    @cached_property
    def answers(self) -> list[Measurement]:
        return list(self.measured.values())

    @cached_property
    def nearest(self) -> Nearest:
        return Nearest(list(self.measured), self._space.knobs_of(self.measured))
