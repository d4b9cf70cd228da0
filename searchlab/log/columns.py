"""Logs as arrays, which hold the data for an analysis in a hundred bytes per trial instead of a thousand.

:func:`read_logs` keeps a cache, ``log-cache.pq``, in the directory that it reads. If a log file changes in any way, the
log is read again. A cache that is damaged or belongs to a different user is ignored. If the directory is not writable,
all logs are read every time.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any, Self

import msgspec
import numpy as np

from ..arrays import Array, Floats, Ints
from ..errors import SearchlabError, warn
from ..files import FileMissing, open_file, read_each, write_file
from ..parquet import decode, encode
from ..records import FAILURES
from .format import Changed, ConfigJson, Ended, Final, Header, Log, LoggedTrials
from .read import read_log

METRICS = ("pairwise_accuracy", "kendall_tau", "top_k_recall", "peak_score", "rmse")
"""The fields of :class:`~searchlab.costmodel.quality.ModelQuality` that :attr:`Columns.qualities` contains."""

Texts = dict[bytes, bytes]
"""The distinct configs in a set of logs, as JSON text. The runs in a study share most of their configs."""

_FLAGS = ("nearest", "reused", "fill_in")
_PER_TRIAL = ("costs", "batches", "spent", "parts", "failures", *_FLAGS, "sentinels", "counts")
_KINDS = {None: -1} | {kind: number for number, kind in enumerate(FAILURES)}
_CONFIG = msgspec.json.Decoder(ConfigJson)


@dataclass(frozen=True, eq=False)
class Columns(LoggedTrials):
    """The content of a log, as arrays. Unless stated otherwise, each array has one value per trial.

    Attributes:
        costs: The cost in seconds, or infinity for a failure.
        batches: The number of the trial's batch.
        spent: The seconds spent on proposing, training, building and running, shape (trials, 4).
        parts: The seconds of these that were spent on features and on checking, shape (trials, 2).
        failures: The position of the kind of failure in :data:`~searchlab.records.FAILURES`, or -1 for none.
        nearest, reused: See :class:`~searchlab.records.Measurement`.
        fill_in: See :class:`~searchlab.log.format.Record`.
        configs: The config as JSON text.
        sentinels: The sentinel reading before the trial, in seconds, or NaN for none.
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
    parts: Floats
    failures: Array
    nearest: Array
    reused: Array
    fill_in: Array
    configs: Array
    sentinels: Floats
    counts: Array
    readings: Floats
    rounds: Array
    qualities: Floats
    final: Final | None = None
    ended: Ended | None = None
    changes: tuple[Changed, ...] = ()

    @classmethod
    def from_log(cls, log: Log, texts: Texts) -> Self:
        """Return the columns of ``log``, and add its configs to ``texts``."""
        rows = log.records
        configs = [texts.setdefault(text, text) for text in (msgspec.json.encode(row.config) for row in rows)]
        number = len(rows)
        seconds = [row.seconds for row in rows]
        counts = np.fromiter(map(len, seconds), np.int32, number)
        readings = np.fromiter(chain.from_iterable(seconds), np.float64, int(counts.sum()))
        failures = np.fromiter(map(_KINDS.__getitem__, map(attrgetter("failure"), rows)), np.int8, number)
        rounds = [index for index, row in enumerate(rows) if row.model]
        qualities = [[getattr(rows[index].model, name) for name in METRICS] for index in rounds]
        return cls(
            path=log.path,
            header=log.header,
            costs=log.costs,
            batches=log.batches.astype(np.int32),
            spent=log.spent,
            parts=log.parts,
            failures=failures,
            **{name: np.fromiter(map(attrgetter(name), rows), np.bool_, number) for name in _FLAGS},
            configs=objects(configs),
            sentinels=log.sentinels,
            counts=counts,
            readings=readings,
            rounds=np.array(rounds, dtype=np.int32),
            qualities=np.array(qualities, dtype=np.float64).reshape(-1, len(METRICS)),
            final=log.final,
            ended=log.ended,
            changes=log.changes,
        )

    @property
    def trials(self) -> int:
        """The number of trials."""
        return len(self.costs)

    def config(self, index: int) -> ConfigJson:
        """Return a trial's config."""
        return _CONFIG.decode(self.configs[index])

    def head(self, trials: int, ended: Ended | None = None) -> Self:
        """Return these columns, shortened to the first ``trials`` trials; see :meth:`Log.head`."""
        arrays = {name: getattr(self, name)[:trials] for name in ("configs", *_PER_TRIAL)}
        arrays["readings"] = self.readings[: int(arrays["counts"].sum())]
        rounds = int(np.searchsorted(self.rounds, trials))
        arrays |= {name: getattr(self, name)[:rounds] for name in ("rounds", "qualities")}
        changes = tuple(change for change in self.changes if change.trials <= trials)
        return replace(self, **arrays, final=None, ended=ended, changes=changes)

    def take(self, indices: Ints, header: Header, batches: Ints, ended: Ended | None) -> Self:
        """Return the columns of a run that has the trials at ``indices``, in this order, without what it predicted."""
        arrays = {name: getattr(self, name)[indices] for name in ("configs", *_PER_TRIAL)}
        counts = arrays["counts"].astype(np.int64)
        shift = np.cumsum(self.counts)[indices] - np.cumsum(counts)  # how far each trial's readings move
        readings = self.readings[np.arange(counts.sum()) + np.repeat(shift, counts)]
        arrays |= {
            "batches": batches.astype(self.batches.dtype),
            "readings": readings,
            "rounds": self.rounds[:0],
            "qualities": self.qualities[:0],
        }
        return replace(self, header=header, **arrays, final=None, ended=ended, changes=())


def objects(values: Sequence[Any]) -> Array:
    """Return ``values`` as an array of objects, shape (values,)."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def read_columns(path: Path, texts: Texts) -> Columns:
    """Read the log at ``path``, ignoring an incomplete last line, and add its configs to ``texts``.

    Raises SearchlabError in the same cases as :func:`~searchlab.log.read.read_log`.
    """
    return Columns.from_log(read_log(path), texts)


CACHE = "log-cache.pq"
"""The name of the cache file, a Parquet file with a row for each log."""

MIN_LOGS = 200
"""The minimum number of logs for which a cache is written. Fewer logs can be read within a second."""

STALE = 0.02
"""The largest share of logs that may be missing from the cache without causing the cache to be rewritten."""

_CONFIGS = "configs-6"
"""The key of all configs in this version."""

_READINGS = ("counts", "readings")
_DTYPES = {
    **dict.fromkeys(("costs", "spent", "parts", "sentinels", "readings", "qualities"), "double"),
    **dict.fromkeys(("batches", "counts", "rounds", "configs"), "int32"),
    **dict.fromkeys(_FLAGS, "uint8"),
    "failures": "int8",
}

_WIDTHS = {"spent": 4, "parts": 2, "qualities": len(METRICS)}
"""The widths of the arrays with two dimensions."""

_COLUMNS = {"log": ("string",)} | {name: (f"list<element: {dtype}>",) for name, dtype in _DTYPES.items()}


Stamp = tuple[int, int, int, int]
"""The state of a file: its size, the times of its last modification and change, and its inode.

Programs cannot set the time of the last change, so a copy of the file has a different stamp.
"""


def _stamp_of(path: Path) -> Stamp | None:
    """Return the stamp of the file at ``path``, or None if the file cannot be read."""
    try:
        with open_file(path) as file:
            status = os.fstat(file.fileno())
    except (OSError, SearchlabError):
        return None
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


class _CacheEntry(msgspec.Struct, frozen=True):
    """A log in the cache, without its arrays."""

    file: bytes
    stamp: Stamp
    header: Header
    final: Final | None
    ended: Ended | None
    changes: tuple[Changed, ...]


def read_logs(
    directory: Path | None, paths: Sequence[Path], texts: Texts, readings: bool = True, required: Collection[Path] = ()
) -> list[Columns]:
    """Read the logs at ``paths``, in order, without those that cannot be read; see :func:`~searchlab.files.read_each`.

    Args:
        directory: The logs' common directory, in which the cache is stored, or None for no cache.
        paths: The paths of the logs.
        texts: The configs of other logs. The logs' configs are added to it.
        readings: Whether ``counts`` and ``readings``, a third of the data, are needed. If not, they may be empty.
        required: The logs that the user named and that therefore must be readable.
    """
    if directory is None or len(paths) < MIN_LOGS:
        return read_each(paths, lambda path: read_columns(path, texts), required)
    stamps = {path: _stamp_of(path) for path in paths}  # taken before reading, since logs may grow in the meantime
    cache = _read_cache(directory, stamps, texts, readings)
    is_stale = len(paths) - len(cache) > STALE * len(paths)
    if is_stale and cache and not readings:
        cache = _read_cache(directory, stamps, texts)  # everything is copied into the new cache
    logs = read_each(paths, lambda path: cache.get(path) or read_columns(path, texts), required)
    if is_stale:
        _write_cache(directory, [(stamp, log) for log in logs if (stamp := stamps[log.path])])
    return logs


def _read_cache(
    directory: Path, stamps: Mapping[Path, Stamp | None], texts: Texts, readings: bool = True
) -> dict[Path, Columns]:
    """Return those logs in ``stamps`` that are in the cache and have not changed since they were cached."""
    path = directory / CACHE
    try:
        with open_file(path, under=directory) as file:
            if os.fstat(file.fileno()).st_uid == os.geteuid():
                return _decode_cache(path, file.read(), stamps, texts, () if readings else _READINGS)
    except FileMissing:
        pass
    except Exception:  # damage may cause any error
        warn(f"{path} is damaged and will be rebuilt")
    return {}


def _decode_cache(
    path: Path, data: bytes, stamps: Mapping[Path, Stamp | None], texts: Texts, left_out: Collection[str]
) -> dict[Path, Columns]:
    metadata, table = decode(path, data, {name: kinds for name, kinds in _COLUMNS.items() if name not in left_out})
    if _CONFIGS not in metadata:
        return {}  # written by a different version
    configs = objects([texts.setdefault(text, text) for text in metadata[_CONFIGS].split(b"\n")])
    arrays: dict[str, list[Array]] = {}
    for name in _DTYPES:
        if name in left_out:
            arrays[name] = [np.empty(0)] * len(table)
        else:
            column = table[name].combine_chunks()
            arrays[name] = np.split(column.values.to_numpy(), column.offsets.to_numpy()[1:-1])
    logs = {}
    for row, text in enumerate(table["log"].to_pylist()):
        entry = msgspec.json.decode(text, type=_CacheEntry)
        log_path = path.parent / os.fsdecode(entry.file)
        if stamps.get(log_path) == entry.stamp:
            values = {name: parts[row] for name, parts in arrays.items()}
            values |= {name: values[name].view(np.bool_) for name in _FLAGS}
            values |= {name: values[name].reshape(-1, width) for name, width in _WIDTHS.items()}
            values["configs"] = configs[values["configs"]]
            logs[log_path] = Columns(
                path=log_path,
                header=entry.header,
                final=entry.final,
                ended=entry.ended,
                changes=entry.changes,
                **values,
            )
    return logs


def _write_cache(directory: Path, logs: Sequence[tuple[Stamp, Columns]]) -> None:
    """Replace the cache. If the directory is not writable, it is left unchanged."""
    import pyarrow as pa

    texts: dict[bytes, int] = {}
    entries, indices = [], []
    for stamp, log in logs:
        file = os.fsencode(log.path.relative_to(directory))
        entries.append(msgspec.json.encode(_CacheEntry(file, stamp, log.header, log.final, log.ended, log.changes)))
        indices.append(np.array([texts.setdefault(text, len(texts)) for text in log.configs.tolist()], np.int32))
    columns = {"log": pa.array(entries, "string")}
    for name, dtype in _DTYPES.items():
        values = indices if name == "configs" else [getattr(log, name).ravel() for _, log in logs]
        offsets = np.cumsum([0, *map(len, values)])
        flat = pa.array(np.concatenate(values).astype(dtype))
        columns[name] = pa.ListArray.from_arrays(pa.array(offsets, "int32"), flat)
    with suppress(SearchlabError):
        write_file(directory / CACHE, encode(columns, {_CONFIGS: b"\n".join(texts)}, level=1), under=directory)
