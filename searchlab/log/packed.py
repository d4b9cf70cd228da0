"""Packed tables: a log's configs, times and failures as compressed arrays, a quarter of the size of ``.jsonl.gz``.

The first line is a magic word, the second line is the log's header, and the rest contains the arrays. For tables
measured by other tuners, only the time of day is lost. Packed tables can be read wherever logs can.
:class:`Packed` provides their columns without decoding individual lines.
"""

from __future__ import annotations

import lzma
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ..arrays import Array, Floats, Ints
from ..errors import SearchlabError
from ..records import FAILURES, Measurement, Statistic, cost_of

SUFFIX = ".packed"
PRECISION = 1e-7
"""The relative precision of readings. Like the times of CUDA events, they are stored as float32 milliseconds."""

_MAGIC = b"searchlab packed table 1\n"
_SPENT = ("build_seconds", "run_seconds", "propose_seconds", "train_seconds")
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9, "lc": 4, "lp": 0, "pb": 2}]
_MOST = 1 << 30  # the maximum unpacked size of a table, in bytes


class _Body(msgspec.Struct, array_like=True):
    """The content of a packed table, in arrays over its trials.

    Attributes:
        configs: The configs as JSON lines.
        readings: The times as float32, in milliseconds.
        counts: The number of readings per trial, as uint16.
        failures: The indices in FAILURES as int8, or -1 for none.
        message_of: The indices in messages, as uint16.
        spent: The charged times as float32, in seconds, shape (4, trials).
    """

    configs: bytes
    readings: bytes
    counts: bytes
    failures: bytes
    messages: list[str]
    message_of: bytes
    spent: bytes
    statistic: Statistic


@dataclass(frozen=True)
class Packed:
    """The columns of a packed table.

    Attributes:
        header: The header as a JSON line.
        configs: The configs as JSON text, as written by :func:`msgspec.json.encode`.
        readings: The readings of all trials in order, in seconds; shape (sum of ``counts``,).
        counts: The number of readings in each trial.
        failures: For each trial, the position of its kind of failure in :data:`~searchlab.records.FAILURES`, or -1 for
            none.
        messages: The message about each trial's failure, or "" for none.
        spent: The times for building, running, proposing and training, in seconds; shape (trials, 4).
        statistic: The statistic over the readings that is used as the cost.
    """

    header: bytes
    configs: Sequence[bytes]
    readings: Floats
    counts: Ints
    failures: Ints
    messages: Sequence[str]
    spent: Floats
    statistic: Statistic

    @cached_property
    def _reading_ends(self) -> list[int]:
        return [0, *np.cumsum(self.counts).tolist()]

    def measurement(self, trial: int) -> Measurement:
        """Return the measurement of the trial with the given index."""
        start, end = self._reading_ends[trial : trial + 2]
        kind = int(self.failures[trial])
        build_seconds, run_seconds = self.spent[trial, :2].tolist()
        return Measurement(
            tuple(self.readings[start:end].tolist()),
            FAILURES[kind] if kind >= 0 else None,
            self.messages[trial],
            build_seconds,
            run_seconds,
            statistic=self.statistic,
        )

    def costs(self, statistic: Statistic) -> Floats:
        """Return the ``statistic`` over each trial's readings, or infinity if the trial failed; shape (trials,)."""
        return costs_of(self.readings, self.counts, self.failures, [statistic] * len(self.configs))


def costs_of(readings: Floats, counts: Array, failures: Array, statistics: Sequence[Statistic]) -> Floats:
    """Return each trial's cost, as defined by :attr:`searchlab.records.Measurement.cost`; see :class:`Packed`."""
    costs = np.full(len(counts), np.inf)
    ends = np.cumsum(counts)
    for count in set(counts.tolist()) - {0}:
        trial_indices = np.flatnonzero((counts == count) & (failures < 0))
        block = np.sort(readings[(ends[trial_indices] - count)[:, np.newaxis] + np.arange(count)], axis=1)
        costs[trial_indices] = (
            block[:, (count - 1) // 2] + block[:, count // 2]
        ) / 2  # in the same way as statistics.median
    for index in [index for index, statistic in enumerate(statistics) if statistic != "median"]:
        times = readings[ends[index] - counts[index] : ends[index]].tolist()
        costs[index] = cost_of(times, None if failures[index] < 0 else FAILURES[failures[index]], statistics[index])
    return costs


def pack(header: bytes, rows: Sequence[Any]) -> bytes:
    """Return a log as a packed table.

    Args:
        header: The log's first line.
        rows: The log's records.

    Raises:
        SearchlabError: If the trials use different statistics, or have too many messages or readings for the format.
    """
    statistics = {row.statistic for row in rows}
    if len(statistics) != 1:
        raise SearchlabError(f"cannot pack a table whose trials use {len(statistics)} different statistics")
    messages = sorted({row.message for row in rows})
    if max(len(messages), *(len(row.seconds) for row in rows)) >= 1 << 16:
        raise SearchlabError("cannot pack a table with more than 65,535 messages or 65,535 readings per config")
    index_of = {message: index for index, message in enumerate(messages)}
    body = _Body(
        configs=b"\n".join(msgspec.json.encode(row.config) for row in rows),
        readings=np.array([1e3 * value for row in rows for value in row.seconds], dtype="<f4").tobytes(),
        counts=np.array([len(row.seconds) for row in rows], dtype="<u2").tobytes(),
        failures=np.array([-1 if row.failure is None else FAILURES.index(row.failure) for row in rows], "i1").tobytes(),
        messages=messages,
        message_of=np.array([index_of[row.message] for row in rows], dtype="<u2").tobytes(),
        spent=np.array([[getattr(row, name) for row in rows] for name in _SPENT], dtype="<f4").tobytes(),
        statistic=statistics.pop(),
    )
    data = lzma.compress(msgspec.msgpack.encode(body), filters=_FILTERS)
    return _MAGIC + header.rstrip(b"\n") + b"\n" + data


def unpack(path: Path, data: bytes) -> Packed:
    """Decode the packed table whose bytes are ``data``. Raises SearchlabError if it is damaged."""
    header = unpack_header(path, data)
    try:
        opened = lzma.LZMADecompressor()
        body = opened.decompress(data[len(_MAGIC) + len(header) + 1 :], _MOST)
        if not opened.eof:
            raise EOFError("its end is missing")
        return _parse_body(header, msgspec.msgpack.decode(body, type=_Body))
    except (lzma.LZMAError, EOFError, ValueError, IndexError, msgspec.MsgspecError) as error:
        raise SearchlabError(f"the packed table {path} is damaged: {error}; download it again") from None


def unpack_header(path: Path, data: bytes) -> bytes:
    """Return the header line of a packed table that begins with ``data``. Raises SearchlabError if it is damaged."""
    end = data.find(b"\n", len(_MAGIC))
    if not data.startswith(_MAGIC) or end < 0:
        raise SearchlabError(
            f"the packed table {path} is damaged: it does not begin with {_MAGIC!r}; download it again"
        )
    return data[len(_MAGIC) : end]


def _parse_body(header: bytes, body: _Body) -> Packed:
    configs = body.configs.split(b"\n")
    number = len(configs)
    counts = np.frombuffer(body.counts, "<u2").astype(np.int64)
    readings = np.frombuffer(body.readings, "<f4").astype(np.float64) / 1e3
    failures = np.frombuffer(body.failures, "i1")
    spent = np.frombuffer(body.spent, "<f4").astype(np.float64).reshape(4, -1).T
    message_indices = np.frombuffer(body.message_of, "<u2").tolist()
    if {len(counts), len(failures), len(spent), len(message_indices)} != {number} or counts.sum() != len(readings):
        raise ValueError("its columns differ in length")
    if failures.min() < -1 or failures.max() >= len(FAILURES):
        raise ValueError("it contains an unknown failure")
    messages = [body.messages[message] for message in message_indices]
    return Packed(header, configs, readings, counts, failures, messages, spent, body.statistic)
