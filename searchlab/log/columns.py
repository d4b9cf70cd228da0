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

QUALITY_METRICS = ("pairwise_accuracy", "kendall_tau", "top_k_recall", "peak_score", "rmse")
"""The fields of :class:`~searchlab.costmodel.quality.ModelQuality` that :attr:`Columns.qualities` contains."""

ConfigTexts = dict[bytes, bytes]
"""The distinct configs in a set of logs, as JSON text. The runs in a study share most of their configs."""

_FLAG_ARRAYS = ("nearest", "reused", "fill_in")
_TRIAL_ARRAYS = (
    "costs",
    "batch_numbers",
    "spent_seconds",
    "part_seconds",
    "failures",
    *_FLAG_ARRAYS,
    "sentinels",
    "reading_counts",
)
_FAILURE_CODES = {None: -1} | {kind: number for number, kind in enumerate(FAILURES)}
_CONFIG_DECODER = msgspec.json.Decoder(ConfigJson)


@dataclass(frozen=True, eq=False)
class Columns(LoggedTrials):
    """The content of a log, as arrays. Unless stated otherwise, each array has one value per trial.

    Attributes:
        costs: The cost in seconds, or infinity for a failure.
        batch_numbers: The number of the trial's batch.
        spent_seconds: The seconds spent on proposing, training, building and running, shape (trials, 4).
        part_seconds: The seconds of these that were spent on features and on checking, shape (trials, 2).
        failures: The position of the kind of failure in :data:`~searchlab.records.FAILURES`, or -1 for none.
        nearest, reused: See :class:`~searchlab.records.Measurement`.
        fill_in: See :class:`~searchlab.log.format.Record`.
        configs: The config as JSON text.
        sentinels: The sentinel reading before the trial, in seconds, or NaN for none.
        reading_counts: The number of readings.
        readings: The readings of all trials in order, in seconds, shape (sum of ``reading_counts``,).
        rated_trials: The indices of the trials with a :class:`~searchlab.costmodel.quality.ModelQuality`, shape
            (rated_trials,).
        qualities: The :data:`QUALITY_METRICS` of these trials, or NaN if undefined, shape (rated_trials, 5).
    """

    path: Path
    header: Header
    costs: Floats
    batch_numbers: Array
    spent_seconds: Floats
    part_seconds: Floats
    failures: Array
    nearest: Array
    reused: Array
    fill_in: Array
    configs: Array
    sentinels: Floats
    reading_counts: Array
    readings: Floats
    rated_trials: Array
    qualities: Floats
    final: Final | None = None
    ended: Ended | None = None
    changes: tuple[Changed, ...] = ()

    @classmethod
    def from_log(cls, log: Log, config_texts: ConfigTexts) -> Self:
        """Return the columns of ``log``, and add its configs to ``config_texts``."""
        records = log.records
        configs = [
            config_texts.setdefault(text, text) for text in (msgspec.json.encode(record.config) for record in records)
        ]
        count = len(records)
        seconds = [record.seconds for record in records]
        reading_counts = np.fromiter(map(len, seconds), np.int32, count)
        readings = np.fromiter(chain.from_iterable(seconds), np.float64, int(reading_counts.sum()))
        failures = np.fromiter(map(_FAILURE_CODES.__getitem__, map(attrgetter("failure"), records)), np.int8, count)
        rated_trials = [index for index, record in enumerate(records) if record.model]
        qualities = [[getattr(records[index].model, name) for name in QUALITY_METRICS] for index in rated_trials]
        return cls(
            path=log.path,
            header=log.header,
            costs=log.costs,
            batch_numbers=log.batch_numbers.astype(np.int32),
            spent_seconds=log.spent_seconds,
            part_seconds=log.part_seconds,
            failures=failures,
            **{name: np.fromiter(map(attrgetter(name), records), np.bool_, count) for name in _FLAG_ARRAYS},
            configs=make_object_array(configs),
            sentinels=log.sentinels,
            reading_counts=reading_counts,
            readings=readings,
            rated_trials=np.array(rated_trials, dtype=np.int32),
            qualities=np.array(qualities, dtype=np.float64).reshape(-1, len(QUALITY_METRICS)),
            final=log.final,
            ended=log.ended,
            changes=log.changes,
        )

    @property
    def trial_count(self) -> int:
        """The number of trials."""
        return len(self.costs)

    def config(self, index: int) -> ConfigJson:
        """Return a trial's config."""
        return _CONFIG_DECODER.decode(self.configs[index])

    def truncate(self, trials: int, ended: Ended | None = None) -> Self:
        """Return these columns, shortened to the first ``trials`` trials; see :meth:`Log.truncate`."""
        arrays = {name: getattr(self, name)[:trials] for name in ("configs", *_TRIAL_ARRAYS)}
        arrays["readings"] = self.readings[: int(arrays["reading_counts"].sum())]
        rated_count = int(np.searchsorted(self.rated_trials, trials))
        arrays |= {name: getattr(self, name)[:rated_count] for name in ("rated_trials", "qualities")}
        changes = tuple(change for change in self.changes if change.trials <= trials)
        return replace(self, **arrays, final=None, ended=ended, changes=changes)

    def take(self, indices: Ints, header: Header, batch_numbers: Ints, ended: Ended | None) -> Self:
        """Return the columns of a run that has the trials at ``indices``, in this order, without what it predicted."""
        arrays = {name: getattr(self, name)[indices] for name in ("configs", *_TRIAL_ARRAYS)}
        counts = arrays["reading_counts"].astype(np.int64)
        offsets = np.cumsum(self.reading_counts)[indices] - np.cumsum(counts)  # how far each trial's readings move
        readings = self.readings[np.arange(counts.sum()) + np.repeat(offsets, counts)]
        arrays |= {
            "batch_numbers": batch_numbers.astype(self.batch_numbers.dtype),
            "readings": readings,
            "rated_trials": self.rated_trials[:0],
            "qualities": self.qualities[:0],
        }
        return replace(self, header=header, **arrays, final=None, ended=ended, changes=())


def make_object_array(values: Sequence[Any]) -> Array:
    """Return ``values`` as an array of objects, shape (values,)."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def read_columns(path: Path, config_texts: ConfigTexts) -> Columns:
    """Read the log at ``path``, ignoring an incomplete last line, and add its configs to ``config_texts``.

    Raises SearchlabError in the same cases as :func:`~searchlab.log.read.read_log`.
    """
    return Columns.from_log(read_log(path), config_texts)


CACHE_FILE_NAME = "log-cache.pq"
"""The name of the cache file, a Parquet file with a row for each log."""

MIN_CACHED_LOGS = 200
"""The minimum number of logs for which a cache is written. Fewer logs can be read within a second."""

MAX_MISSING_FRACTION = 0.02
"""The largest fraction of logs that may be missing from the cache without causing the cache to be rewritten."""

_CONFIGS_KEY = "configs-7"
"""The key of all configs in this version."""

_READING_ARRAYS = ("reading_counts", "readings")
_DTYPES = {
    **dict.fromkeys(("costs", "spent_seconds", "part_seconds", "sentinels", "readings", "qualities"), "double"),
    **dict.fromkeys(("batch_numbers", "reading_counts", "rated_trials", "configs"), "int32"),
    **dict.fromkeys(_FLAG_ARRAYS, "uint8"),
    "failures": "int8",
}

_ROW_WIDTHS = {"spent_seconds": 4, "part_seconds": 2, "qualities": len(QUALITY_METRICS)}
"""The widths of the arrays with two dimensions."""

_CACHE_COLUMN_TYPES = {"log": ("string",)} | {name: (f"list<element: {dtype}>",) for name, dtype in _DTYPES.items()}


FileStamp = tuple[int, int, int, int]
"""The state of a file: its size, the times of its last modification and change, and its inode.

Programs cannot set the time of the last change, so a copy of the file has a different stamp.
"""


def _stamp_of(path: Path) -> FileStamp | None:
    """Return the stamp of the file at ``path``, or None if the file cannot be read."""
    try:
        with open_file(path) as file:
            status = os.fstat(file.fileno())
    except (OSError, SearchlabError):
        return None
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


class _CacheEntry(msgspec.Struct, frozen=True):
    """A log in the cache, without its arrays."""

    path_bytes: bytes
    stamp: FileStamp
    header: Header
    final: Final | None
    ended: Ended | None
    changes: tuple[Changed, ...]


def read_logs(
    directory: Path | None,
    paths: Sequence[Path],
    config_texts: ConfigTexts,
    needs_readings: bool = True,
    required: Collection[Path] = (),
) -> list[Columns]:
    """Read the logs at ``paths``, in order, without those that cannot be read; see :func:`~searchlab.files.read_each`.

    Args:
        directory: The logs' common directory, in which the cache is stored, or None for no cache.
        paths: The paths of the logs.
        config_texts: The configs of other logs. The logs' configs are added to it.
        needs_readings: Whether ``reading_counts`` and ``readings``, a third of the data, are needed. If not, they may
            be empty.
        required: The logs that the user named and that therefore must be readable.
    """
    if directory is None or len(paths) < MIN_CACHED_LOGS:
        return read_each(paths, lambda path: read_columns(path, config_texts), required)
    stamps = {path: _stamp_of(path) for path in paths}  # taken before reading, since logs may grow in the meantime
    cache = _read_cache(directory, stamps, config_texts, needs_readings)
    is_stale = len(paths) - len(cache) > MAX_MISSING_FRACTION * len(paths)
    if is_stale and cache and not needs_readings:
        cache = _read_cache(directory, stamps, config_texts)  # everything is copied into the new cache
    logs = read_each(paths, lambda path: cache.get(path) or read_columns(path, config_texts), required)
    if is_stale:
        _write_cache(directory, [(stamp, log) for log in logs if (stamp := stamps[log.path])])
    return logs


def _read_cache(
    directory: Path, stamps: Mapping[Path, FileStamp | None], config_texts: ConfigTexts, needs_readings: bool = True
) -> dict[Path, Columns]:
    """Return those logs in ``stamps`` that are in the cache and have not changed since they were cached."""
    path = directory / CACHE_FILE_NAME
    try:
        with open_file(path, under=directory) as file:
            if os.fstat(file.fileno()).st_uid == os.geteuid():
                return _decode_cache(path, file.read(), stamps, config_texts, () if needs_readings else _READING_ARRAYS)
    except FileMissing:
        pass
    except Exception:  # damage may cause any error
        warn(f"{path} is damaged and will be rebuilt")
    return {}


def _decode_cache(
    path: Path,
    cache_bytes: bytes,
    stamps: Mapping[Path, FileStamp | None],
    config_texts: ConfigTexts,
    omitted_arrays: Collection[str],
) -> dict[Path, Columns]:
    metadata, table = decode(
        path, cache_bytes, {name: types for name, types in _CACHE_COLUMN_TYPES.items() if name not in omitted_arrays}
    )
    if _CONFIGS_KEY not in metadata:
        return {}  # written by a different version
    configs = make_object_array([config_texts.setdefault(text, text) for text in metadata[_CONFIGS_KEY].split(b"\n")])
    arrays_by_name: dict[str, list[Array]] = {}
    for name in _DTYPES:
        if name in omitted_arrays:
            arrays_by_name[name] = [np.empty(0)] * len(table)
        else:
            column = table[name].combine_chunks()
            arrays_by_name[name] = np.split(column.values.to_numpy(), column.offsets.to_numpy()[1:-1])
    logs = {}
    for row, text in enumerate(table["log"].to_pylist()):
        cache_entry = msgspec.json.decode(text, type=_CacheEntry)
        log_path = path.parent / os.fsdecode(cache_entry.path_bytes)
        if stamps.get(log_path) == cache_entry.stamp:
            arrays = {name: array_by_row[row] for name, array_by_row in arrays_by_name.items()}
            arrays |= {name: arrays[name].view(np.bool_) for name in _FLAG_ARRAYS}
            arrays |= {name: arrays[name].reshape(-1, width) for name, width in _ROW_WIDTHS.items()}
            arrays["configs"] = configs[arrays["configs"]]
            logs[log_path] = Columns(
                path=log_path,
                header=cache_entry.header,
                final=cache_entry.final,
                ended=cache_entry.ended,
                changes=cache_entry.changes,
                **arrays,
            )
    return logs


def _write_cache(directory: Path, logs: Sequence[tuple[FileStamp, Columns]]) -> None:
    """Replace the cache. If the directory is not writable, it is left unchanged."""
    import pyarrow as pa

    config_texts: dict[bytes, int] = {}
    encoded_entries, indices = [], []
    for stamp, log in logs:
        path_bytes = os.fsencode(log.path.relative_to(directory))
        encoded_entries.append(
            msgspec.json.encode(_CacheEntry(path_bytes, stamp, log.header, log.final, log.ended, log.changes))
        )
        indices.append(
            np.array([config_texts.setdefault(text, len(config_texts)) for text in log.configs.tolist()], np.int32)
        )
    columns = {"log": pa.array(encoded_entries, "string")}
    for name, dtype in _DTYPES.items():
        values = indices if name == "configs" else [getattr(log, name).ravel() for _, log in logs]
        offsets = np.cumsum([0, *map(len, values)])
        flat = pa.array(np.concatenate(values).astype(dtype))
        columns[name] = pa.ListArray.from_arrays(pa.array(offsets, "int32"), flat)
    with suppress(SearchlabError):
        write_file(
            directory / CACHE_FILE_NAME,
            encode(columns, {_CONFIGS_KEY: b"\n".join(config_texts)}, level=1),
            under=directory,
        )
