"""Packed tables: the configs, times and failures of a log as compressed arrays, a quarter of its size as ``.jsonl.gz``.

The first line is a magic word, the second the header as a log has it, and the rest the arrays. A table that other
people measured has no more in its lines than this, but for the time of day, which is left out. A packed table is read
wherever a log is; :class:`Packed` gives its columns without decoding a line.
"""

from __future__ import annotations

import lzma
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ..arrays import Floats, Ints
from ..errors import SearchlabError
from ..records import FAILURES, Statistic

SUFFIX = ".packed"
PRECISION = 1e-7
"""Relative; readings are stored as CUDA's events return them, in milliseconds as float32."""

_MAGIC = b"searchlab packed table 1\n"
_SPENT = ("build_seconds", "run_seconds", "propose_seconds", "train_seconds")
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9, "lc": 4, "lp": 0, "pb": 2}]
_MOST = 1 << 30  # bytes that a table may unpack to


class _Body(msgspec.Struct, array_like=True):
    configs: bytes  # JSON lines
    readings: bytes  # float32 in milliseconds
    counts: bytes  # uint16, readings of each trial
    failures: bytes  # int8, positions in FAILURES, -1 for none
    messages: list[str]
    message_of: bytes  # uint16, positions in messages
    spent: bytes  # float32 in seconds, shape (4, trials)
    statistic: Statistic


@dataclass(frozen=True)
class Packed:
    """The columns of a packed table.

    Attributes:
        header: The header as a JSON line.
        configs: As JSON, as :func:`msgspec.json.encode` writes them.
        readings: The readings of all trials in order, in seconds, shape (sum of ``counts``,).
        counts: The number of readings of each trial.
        failures: The position of its kind in :data:`~searchlab.records.FAILURES`, -1 for none.
        messages: The text of each trial's failure.
        spent: Seconds of building, running, proposing and training, shape (trials, 4).
        statistic: The statistic of the readings that is used as the cost.
    """

    header: bytes
    configs: Sequence[bytes]
    readings: Floats
    counts: Ints
    failures: Ints
    messages: Sequence[str]
    spent: Floats
    statistic: Statistic

    def lines(self) -> Iterator[bytes]:
        """Yield the lines of the log, without their ends."""
        yield self.header
        ends = np.cumsum(self.counts).tolist()
        readings, spent = self.readings.tolist(), self.spent.tolist()
        for index, (config, end, count) in enumerate(zip(self.configs, ends, self.counts.tolist(), strict=True)):
            fields: dict[str, Any] = {
                "kind": "trial",
                "index": index,
                "batch": index,
                "config": msgspec.Raw(config),
                "seconds": readings[end - count : end],
            }
            if (kind := int(self.failures[index])) >= 0:
                fields |= {"failure": FAILURES[kind], "message": self.messages[index]}
            fields |= {"statistic": self.statistic, **dict(zip(_SPENT, spent[index], strict=True))}
            yield msgspec.json.encode(fields)


def pack(header: bytes, rows: Sequence[Any]) -> bytes:
    """Return the packed table of a log.

    Args:
        header: Its first line.
        rows: Its records.

    Raises:
        SearchlabError: If the trials have different statistics, or more than can be packed.
    """
    statistics = {row.statistic for row in rows}
    if len(statistics) != 1:
        raise SearchlabError(f"cannot pack a table whose trials use {len(statistics)} different statistics")
    messages = sorted({row.message for row in rows})
    if max(len(messages), *(len(row.seconds) for row in rows)) >= 1 << 16:
        raise SearchlabError("cannot pack a table with more than 65,535 messages, or readings of one config")
    place = {message: index for index, message in enumerate(messages)}
    body = _Body(
        configs=b"\n".join(msgspec.json.encode(row.config) for row in rows),
        readings=np.array([1e3 * value for row in rows for value in row.seconds], dtype="<f4").tobytes(),
        counts=np.array([len(row.seconds) for row in rows], dtype="<u2").tobytes(),
        failures=np.array([-1 if row.failure is None else FAILURES.index(row.failure) for row in rows], "i1").tobytes(),
        messages=messages,
        message_of=np.array([place[row.message] for row in rows], dtype="<u2").tobytes(),
        spent=np.array([[getattr(row, name) for row in rows] for name in _SPENT], dtype="<f4").tobytes(),
        statistic=statistics.pop(),
    )
    data = lzma.compress(msgspec.msgpack.encode(body), filters=_FILTERS)
    return _MAGIC + header.rstrip(b"\n") + b"\n" + data


def unpack(path: Path, data: bytes) -> Packed:
    """Return the packed table whose bytes are ``data``. Raises SearchlabError if it is damaged."""
    header = unpack_header(path, data)
    try:
        opened = lzma.LZMADecompressor()
        body = opened.decompress(data[len(_MAGIC) + len(header) + 1 :], _MOST)
        if not opened.eof:
            raise EOFError("it is cut off")
        return _packed(header, msgspec.msgpack.decode(body, type=_Body))
    except (lzma.LZMAError, EOFError, ValueError, IndexError, msgspec.MsgspecError) as error:
        raise SearchlabError(f"the packed table {path} is damaged: {error}; fetch it again") from None


def unpack_header(path: Path, data: bytes) -> bytes:
    """Return the header line of the packed table that begins with ``data``. Raises SearchlabError if it is damaged."""
    end = data.find(b"\n", len(_MAGIC))
    if not data.startswith(_MAGIC) or end < 0:
        raise SearchlabError(f"the packed table {path} is damaged: it does not begin with {_MAGIC!r}; fetch it again")
    return data[len(_MAGIC) : end]


def _packed(header: bytes, body: _Body) -> Packed:
    configs = body.configs.split(b"\n")
    number = len(configs)
    counts = np.frombuffer(body.counts, "<u2").astype(np.int64)
    readings = np.frombuffer(body.readings, "<f4").astype(np.float64) / 1e3
    failures = np.frombuffer(body.failures, "i1")
    spent = np.frombuffer(body.spent, "<f4").astype(np.float64).reshape(4, -1).T
    of = np.frombuffer(body.message_of, "<u2").tolist()
    if {len(counts), len(failures), len(spent), len(of)} != {number} or counts.sum() != len(readings):
        raise ValueError("its columns differ in length")
    if failures.min() < -1 or failures.max() >= len(FAILURES):
        raise ValueError("it holds an unknown failure")
    messages = [body.messages[place] for place in of]
    return Packed(header, configs, readings, counts, failures, messages, spent, body.statistic)
