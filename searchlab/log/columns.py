"""A log as arrays: what an analysis needs of its trials, in a hundred bytes each instead of a thousand.

A report may be of thousands of logs. :func:`read_columns` refuses what :func:`~searchlab.log.format.read_log` refuses,
and is faster where logs share configs, which it decodes once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any, Self

import msgspec
import numpy as np

from ..arrays import Array, Floats
from ..costmodel.quality import ModelQuality
from ..records import FAILURES, Statistic, cost_of
from ..schema import UNREADABLE
from ..workload import Workload, parse_workload
from .format import (
    DRAFT,
    FORMAT,
    STARTS,
    ConfigJson,
    Ended,
    Final,
    Header,
    Log,
    Record,
    batch_numbers,
    batch_starts,
    charged,
    check_follows,
    decode_log,
    read_bytes,
)

METRICS = ("pairwise_accuracy", "kendall_tau", "top_k_recall", "peak_score", "rmse")
"""What is kept of each :class:`~searchlab.costmodel.quality.ModelQuality`: the columns of :attr:`Columns.qualities`."""

Texts = dict[bytes, bytes]
"""Each distinct config of some logs once, as JSON: the runs of a study share most of theirs."""

_KINDS = {None: -1} | {kind: number for number, kind in enumerate(FAILURES)}
_CONFIG = msgspec.json.Decoder(ConfigJson)
_NOTE = re.compile(rb'\n(\{"kind":"(?:finalists|ended)",[^\n]*)')
"""A line that is no trial."""


@dataclass(frozen=True, eq=False)
class Columns:
    """The content of a log, in arrays with a value for each trial.

    costs: seconds, infinity if it failed. spent: the seconds that proposing, training, building and running took, shape
    (trials, 4). failures: the place of its kind in :data:`~searchlab.records.FAILURES`, -1 for none. nearest, reused:
    as of a :class:`~searchlab.records.Measurement`. configs: as JSON. sentinels: see
    :class:`~searchlab.log.format.Record`, NaN where there is none.
    counts: how many readings each trial has; readings: those of all, in seconds, one after the other.
    rounds: the trials, from 0, with a :class:`~searchlab.costmodel.quality.ModelQuality`; qualities: its
    :data:`METRICS`, NaN where one is not defined, shape (rounds, 5).
    """

    path: Path
    header: Header
    costs: Floats
    batches: Array
    spent: Floats
    failures: Array
    nearest: Array
    reused: Array
    configs: Array
    sentinels: Floats
    counts: Array
    readings: Floats
    rounds: Array
    qualities: Floats
    final: Final | None = None
    ended: Ended | None = None

    @classmethod
    def of(cls, log: Log, texts: Texts) -> Self:
        """The columns of ``log``. texts: the configs of the logs that it is compared with; its own are added."""
        encoded = [msgspec.json.encode(record.config) for record in log.records]
        configs = [texts.setdefault(text, text) for text in encoded]
        return cls._of(log.path, log.header, log.records, configs, log.final, log.ended)

    @classmethod
    def _of(
        cls, path: Path, header: Header, rows: Sequence[Record], configs: Sequence[bytes], final: Final | None,
        ended: Ended | None,
    ) -> Self:  # fmt: skip
        number = len(rows)
        of_each = [row.seconds for row in rows]
        counts = np.fromiter(map(len, of_each), np.int32, number)
        readings = np.fromiter(chain.from_iterable(of_each), np.float64, int(counts.sum()))
        failures = np.fromiter(map(_KINDS.__getitem__, map(attrgetter("failure"), rows)), np.int8, number)
        rounds = [index for index, row in enumerate(rows) if row.model]
        spent = list(map(attrgetter("propose_seconds", "train_seconds", "build_seconds", "run_seconds"), rows))
        return cls(
            path=path,
            header=header,
            costs=_costs(readings, counts, failures, [row.statistic for row in rows]),
            batches=batch_numbers(rows, header.batch).astype(np.int32),
            spent=np.array(spent, dtype=np.float64).reshape(-1, 4),
            failures=failures,
            nearest=np.fromiter(map(attrgetter("nearest"), rows), np.bool_, number),
            reused=np.fromiter(map(attrgetter("reused"), rows), np.bool_, number),
            configs=objects(configs),
            sentinels=np.array([row.sentinel for row in rows], dtype=np.float64),  # None becomes NaN
            counts=counts,
            readings=readings,
            rounds=np.array(rounds, dtype=np.int32),
            qualities=_qualities([rows[index].model for index in rounds]),
            final=final if final and final.trials == number else None,
            ended=ended if ended and ended.trials == number else None,
        )

    @cached_property
    def starts(self) -> list[int]:
        """Where its batches begin: see :func:`~searchlab.log.format.batch_starts`."""
        return batch_starts(self.batches, [self.trials])

    @cached_property
    def charged(self) -> Floats:
        """As :attr:`searchlab.log.format.Log.charged`."""
        return charged(self.spent, self.starts, [self.header.workers], [self.trials])

    @cached_property
    def elapsed(self) -> Floats:
        """Seconds charged up to the end of each trial: shape (trials,)."""
        return np.cumsum(self.charged.sum(axis=1))

    @property
    def workload(self) -> Workload:
        return _parsed(self.header.workload)

    @property
    def flops(self) -> int:
        return self.workload.flops

    @property
    def unit(self) -> str:
        """The unit of throughputs."""
        return self.workload.unit

    @property
    def trials(self) -> int:
        """The number of trials."""
        return len(self.costs)

    def config(self, index: int) -> ConfigJson:
        """The config of a trial."""
        return _CONFIG.decode(self.configs[index])

    def first(self, trials: int, ended: Ended | None = None) -> Self:
        """Its first ``trials``, fewer than it has. ended: why the run ended there."""
        rounds = int(np.searchsorted(self.rounds, trials))
        return replace(
            self, costs=self.costs[:trials], batches=self.batches[:trials], spent=self.spent[:trials],
            failures=self.failures[:trials],
            nearest=self.nearest[:trials], reused=self.reused[:trials], configs=self.configs[:trials],
            sentinels=self.sentinels[:trials], counts=self.counts[:trials],
            readings=self.readings[: int(self.counts[:trials].sum())], rounds=self.rounds[:rounds],
            qualities=self.qualities[:rounds], final=None, ended=ended,
        )  # fmt: skip


def charge(logs: Sequence[Columns]) -> None:
    """Compute :attr:`Columns.charged` and :attr:`Columns.elapsed` of all ``logs`` at once: thousands are read."""
    lengths = [log.trials for log in logs]
    spent = np.concatenate([log.spent for log in logs])
    starts = batch_starts(np.concatenate([log.batches for log in logs]), lengths)
    charges = charged(spent, starts, [log.header.workers for log in logs], lengths)
    sums = charges.sum(axis=1)
    ends = np.cumsum(lengths).tolist()
    for log, start, end in zip(logs, [0, *ends], ends, strict=False):
        vars(log)["charged"], vars(log)["elapsed"] = charges[start:end], np.cumsum(sums[start:end])


@lru_cache(maxsize=256)  # the logs of a study are of few workloads
def _parsed(workload: str) -> Workload:
    return parse_workload(workload)


def _costs(readings: Floats, counts: Array, failures: Array, statistics: Sequence[Statistic]) -> Floats:
    """The cost of each trial, as :attr:`searchlab.log.format.Record.cost`."""
    costs = np.full(len(counts), np.inf)
    ends = np.cumsum(counts)
    for count in set(counts.tolist()) - {0}:
        at = np.flatnonzero((counts == count) & (failures < 0))
        block = np.sort(readings[(ends[at] - count)[:, np.newaxis] + np.arange(count)], axis=1)
        costs[at] = (block[:, (count - 1) // 2] + block[:, count // 2]) / 2
    for index in [index for index, statistic in enumerate(statistics) if statistic != "median"]:
        own = readings[ends[index] - counts[index] : ends[index]].tolist()
        costs[index] = cost_of(own, None if failures[index] < 0 else FAILURES[failures[index]], statistics[index])
    return costs


def _qualities(models: Iterable[ModelQuality | None]) -> Floats:
    rows = [[getattr(model, name) for name in METRICS] for model in models]
    return np.array(rows, dtype=np.float64).reshape(-1, len(METRICS))  # None becomes NaN


def objects(values: Sequence[Any]) -> Array:
    """``values`` as an array of them, whatever they are: shape (values,)."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


class _Row(Record, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="kind", tag="trial"):
    """A record whose config is not decoded: most configs of a study were decoded before."""

    config: msgspec.Raw  # type: ignore[assignment]


_ROWS = msgspec.json.Decoder(_Row)
_NOTES = msgspec.json.Decoder(Final | Ended)


def read_columns(path: Path, texts: Texts) -> Columns:
    """The log at ``path``, without a torn last line. Raises SearchlabError as :func:`~searchlab.log.format.read_log`.

    texts: the configs of logs that were read before; those of this log are added.
    """
    data = read_bytes(path)
    with suppress(*UNREADABLE):
        if columns := _quickly(path, data, texts):
            return columns
    return Columns.of(decode_log(path, data), texts)  # it says what is wrong with which line


def _quickly(path: Path, data: bytes, texts: Texts) -> Columns | None:
    """None if anything in the log is unusual. May raise what is ``UNREADABLE``."""
    data = data[: data.rfind(b"\n") + 1]
    start = data.find(b"\n") + 1
    if not start or not data.startswith(STARTS):
        return None
    header = msgspec.json.decode(data[:start], type=Header)
    decode = _ROWS.decode_lines
    rows: list[_Row] = []
    final, ended = None, None
    notes = list(_NOTE.finditer(data, start - 1))
    for note in notes:
        rows += decode(data[start : note.start() + 1])
        item = _NOTES.decode(note[1])
        check_follows(item, len(rows))
        if isinstance(item, Final):
            final = item
        else:
            ended = item
        start = note.end() + 1
    rows += decode(data[start:])
    lines = 1 + len(notes) + len(rows)
    if header.searchlab_log not in (FORMAT, DRAFT) or data.count(b"\n") != lines:
        return None
    if [row.index for row in rows] != list(range(len(rows))):
        return None
    configs = list(map(bytes, map(attrgetter("config"), rows)))
    for text in set(configs).difference(texts):
        _CONFIG.decode(text)
        texts[text] = text
    return Columns._of(path, header, rows, list(map(texts.__getitem__, configs)), final, ended)
