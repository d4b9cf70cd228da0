"""Logs as arrays, which store what an analysis needs in a hundred bytes per trial instead of a thousand.

:func:`read_columns` rejects the same logs as :func:`~searchlab.log.format.read_log`. It is faster if logs share
configs, which are decoded only once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any, Self

import msgspec
import numpy as np

from ..arrays import Array, Floats
from ..records import FAILURES
from ..schema import UNREADABLE
from .format import (
    COMPUTATIONS,
    DRAFT,
    FORMAT,
    SPENT,
    STARTS,
    ConfigJson,
    Ended,
    Final,
    Header,
    Log,
    LoggedTrials,
    Record,
    batch_numbers,
    check_follows,
    current,
    decode_log,
    read_bytes,
)
from .packed import costs_of

METRICS = ("pairwise_accuracy", "kendall_tau", "top_k_recall", "peak_score", "rmse")
"""The fields of :class:`~searchlab.costmodel.quality.ModelQuality` that :attr:`Columns.qualities` contains."""

Texts = dict[bytes, bytes]
"""The distinct configs in some logs, as JSON text. A study's runs share most of their configs."""

_PER_TRIAL = ("costs", "batches", "spent", "failures", "nearest", "reused", "sentinels", "counts")
_KINDS = {None: -1} | {kind: number for number, kind in enumerate(FAILURES)}
_CONFIG = msgspec.json.Decoder(ConfigJson)
_NOTE = re.compile(rb'\n(\{"kind":"(?:finalists|ended)",[^\n]*)')  # a line that is not a trial


@dataclass(frozen=True, eq=False)
class Columns(LoggedTrials):
    """The content of a log, as arrays. Unless stated otherwise, each array has one value per trial.

    Attributes:
        costs: The cost in seconds, or infinity for a failure.
        batches: The number of the trial's batch.
        spent: The seconds spent on proposing, training, building and running, shape (trials, 4).
        failures: The position of the kind of failure in :data:`~searchlab.records.FAILURES`, or -1 for none.
        nearest, reused: See :class:`~searchlab.records.Measurement`.
        configs: The config as JSON text.
        sentinels: See :class:`~searchlab.log.format.Record`; NaN for none.
        counts: The number of readings.
        readings: The readings of all trials in order, in seconds, shape (sum of ``counts``,).
        rounds: The indices of the trials with a :class:`~searchlab.costmodel.quality.ModelQuality`, shape (rounds,).
        qualities: The :data:`METRICS` of these trials, or NaN if undefined, shape (rounds, 5).
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
        """Return the columns of ``log``, and add its configs to ``texts``."""
        encoded = [msgspec.json.encode(record.config) for record in log.records]
        configs = [texts.setdefault(text, text) for text in encoded]
        return cls._of(log.path, log.header, log.records, configs, log.final, log.ended)

    @classmethod
    def _of(
        cls, path: Path, header: Header, rows: Sequence[Record], configs: Sequence[bytes], final: Final | None,
        ended: Ended | None,
    ) -> Self:  # fmt: skip
        number = len(rows)
        seconds = [row.seconds for row in rows]
        counts = np.fromiter(map(len, seconds), np.int32, number)
        readings = np.fromiter(chain.from_iterable(seconds), np.float64, int(counts.sum()))
        failures = np.fromiter(map(_KINDS.__getitem__, map(attrgetter("failure"), rows)), np.int8, number)
        rounds = [index for index, row in enumerate(rows) if row.model]
        qualities = [[getattr(rows[index].model, name) for name in METRICS] for index in rounds]
        return cls(
            path=path,
            header=header,
            costs=costs_of(readings, counts, failures, [row.statistic for row in rows]),
            batches=batch_numbers(rows, header.batch).astype(np.int32),
            spent=np.array(list(map(attrgetter(*SPENT[:4]), rows)), dtype=np.float64).reshape(-1, 4),
            failures=failures,
            nearest=np.fromiter(map(attrgetter("nearest"), rows), np.bool_, number),
            reused=np.fromiter(map(attrgetter("reused"), rows), np.bool_, number),
            configs=objects(configs),
            sentinels=np.array([row.sentinel for row in rows], dtype=np.float64),  # None becomes NaN
            counts=counts,
            readings=readings,
            rounds=np.array(rounds, dtype=np.int32),
            qualities=np.array(qualities, dtype=np.float64).reshape(-1, len(METRICS)),
            final=current(final, number),
            ended=current(ended, number),
        )

    @property
    def trials(self) -> int:
        """The number of trials."""
        return len(self.costs)

    def config(self, index: int) -> ConfigJson:
        """Return a trial's config."""
        return _CONFIG.decode(self.configs[index])

    def first(self, trials: int, ended: Ended | None = None) -> Self:
        """Return the first ``trials``, which must be fewer than all. ``ended`` is why the run ended there."""
        arrays = {name: getattr(self, name)[:trials] for name in ("configs", *_PER_TRIAL)}
        arrays["readings"] = self.readings[: int(arrays["counts"].sum())]
        rounds = int(np.searchsorted(self.rounds, trials))
        arrays |= {name: getattr(self, name)[:rounds] for name in ("rounds", "qualities")}
        return replace(self, **arrays, final=None, ended=ended)


def objects(values: Sequence[Any]) -> Array:
    """Return ``values`` as an array of objects, shape (values,)."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


class _Row(Record, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="kind", tag="trial"):
    """A record whose config is not decoded, because most configs in a study have already been decoded."""

    config: msgspec.Raw  # type: ignore[assignment]


_ROWS = msgspec.json.Decoder(_Row)
_NOTES = msgspec.json.Decoder(Final | Ended)


def read_columns(path: Path, texts: Texts) -> Columns:
    """Read the log at ``path``, ignoring an incomplete last line, and add its configs to ``texts``.

    Raises SearchlabError in the same cases as :func:`~searchlab.log.format.read_log`.
    """
    data = read_bytes(path)
    with suppress(*UNREADABLE):
        if columns := _quickly(path, data, texts):
            return columns
    return Columns.of(decode_log(path, data), texts)  # reports what is wrong, and in which line


def _quickly(path: Path, data: bytes, texts: Texts) -> Columns | None:
    """Decode a log, or return None if anything in it is unusual. Raises the errors in ``UNREADABLE``."""
    data = data[: data.rfind(b"\n") + 1]
    start = data.find(b"\n") + 1
    if not start or not data.startswith(STARTS):
        return None
    header = msgspec.json.decode(data[:start], type=Header)
    rows: list[_Row] = []
    latest: dict[type, Any] = {}
    notes = list(_NOTE.finditer(data, start - 1))
    for note in notes:
        rows += _ROWS.decode_lines(data[start : note.start() + 1])
        item = _NOTES.decode(note[1])
        check_follows(item, len(rows))
        latest[type(item)] = item
        start = note.end() + 1
    rows += _ROWS.decode_lines(data[start:])
    if header.searchlab_log not in (FORMAT, COMPUTATIONS, DRAFT) or data.count(b"\n") != 1 + len(notes) + len(rows):
        return None
    if [row.index for row in rows] != list(range(len(rows))):
        return None
    configs = list(map(bytes, map(attrgetter("config"), rows)))
    for text in set(configs).difference(texts):
        _CONFIG.decode(text)
        texts[text] = text
    configs = [texts[text] for text in configs]
    return Columns._of(path, header, rows, configs, latest.get(Final), latest.get(Ended))
