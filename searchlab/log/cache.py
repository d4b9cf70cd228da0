"""A cache of logs, which makes reading hundreds of them faster.

:func:`read_logs` keeps the cache in the directory that it reads. If a log file changes in any way, the log is read
again. A cache that is damaged or belongs to a different user is ignored. If the directory is not writable, all logs are
read every time.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np

from ..arrays import make_object_array
from ..errors import SearchlabError, warn
from ..files import FileMissing, open_file, read_each, replace_file
from .columns import OTHER_ARRAYS, TRIAL_ARRAYS, LogColumns, read_columns
from .format import CodeChange, FinalistTimes, Header, RunEnd

CACHE_FILE_NAME = "log-cache.npz"
"""The cache file, in NumPy's format: the arrays of :class:`LogColumns`, joined over all logs."""

MIN_CACHED_LOGS = 200
"""The minimum number of logs for which a cache is written. Fewer logs can be read within a second."""

MAX_MISSING_FRACTION = 0.02
"""The largest fraction of logs that may be missing from the cache without causing the cache to be rewritten."""

_INDEX_KEY = "index-8"
"""The key of a :class:`_CacheIndex`, as JSON in bytes, in this version."""

_ARRAYS = (*TRIAL_ARRAYS, *OTHER_ARRAYS)

FileStamp = tuple[int, int, int, int]
"""The state of a file: its size, the times of its last modification and change, and its inode.

Programs cannot set the time of the last change, so a copy of the file has a different stamp.
"""


class _CachedLog(msgspec.Struct, frozen=True):
    """A log in the cache, without its arrays. ``row_counts`` are their lengths, by name."""

    path_bytes: bytes
    stamp: FileStamp
    header: Header
    finalist_times: FinalistTimes | None
    run_end: RunEnd | None
    changes: tuple[CodeChange, ...]
    row_counts: dict[str, int]


class _CacheIndex(msgspec.Struct, frozen=True):
    """The logs in the cache, and the distinct configs, to whose positions the array ``configs`` refers."""

    logs: list[_CachedLog]
    configs: list[str]


def read_logs(directory: Path | None, paths: Sequence[Path], required: Collection[Path] = ()) -> list[LogColumns]:
    """Read the logs at ``paths``, in order, without those that cannot be read; see :func:`~searchlab.files.read_each`.

    Args:
        directory: The logs' common directory, in which the cache is stored, or None for no cache.
        paths: The paths of the logs.
        required: The logs that the user named and that therefore must be readable.
    """
    if directory is None or len(paths) < MIN_CACHED_LOGS:
        return read_each(paths, read_columns, required)
    stamps = {path: _stamp_of(path) for path in paths}  # taken before reading, since logs may grow in the meantime
    cache = _read_cache(directory, stamps)
    logs = read_each(paths, lambda path: cache.get(path) or read_columns(path), required)
    if len(paths) - len(cache) > MAX_MISSING_FRACTION * len(paths):
        _write_cache(directory, [(stamp, log) for log in logs if (stamp := stamps[log.path])])
    return logs


def _stamp_of(path: Path) -> FileStamp | None:
    """Return the stamp of the file at ``path``, or None if there is no such file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def _read_cache(directory: Path, stamps: Mapping[Path, FileStamp | None]) -> dict[Path, LogColumns]:
    """Return those logs in ``stamps`` that are in the cache and have not changed since they were cached."""
    path = directory / CACHE_FILE_NAME
    try:
        with open_file(path, under=directory) as file:
            if os.fstat(file.fileno()).st_uid == os.geteuid():
                logs = _decode_cache(directory, file)
                return {log.path: log for stamp, log in logs if stamps.get(log.path) == stamp}
    except FileMissing:
        pass
    except Exception:  # damage may cause any error
        warn(f"{path} is damaged and will be rebuilt")
    return {}


def _decode_cache(directory: Path, file: BinaryIO) -> list[tuple[FileStamp, LogColumns]]:
    with np.load(file) as stored_arrays:
        if _INDEX_KEY not in stored_arrays:
            return []  # written by a different version
        index = msgspec.json.decode(stored_arrays[_INDEX_KEY].tobytes(), type=_CacheIndex)
        arrays_by_name = {
            name: np.split(stored_arrays[name], np.cumsum([log.row_counts[name] for log in index.logs])[:-1])
            for name in _ARRAYS
        }
    configs = make_object_array(list(map(sys.intern, index.configs)))
    arrays_by_name["configs"] = [configs[positions] for positions in arrays_by_name["configs"]]
    return [
        (
            log.stamp,
            LogColumns(
                path=directory / os.fsdecode(log.path_bytes),
                header=log.header,
                finalist_times=log.finalist_times,
                run_end=log.run_end,
                changes=log.changes,
                **dict(zip(_ARRAYS, log_arrays, strict=True)),
            ),
        )
        for log, *log_arrays in zip(index.logs, *arrays_by_name.values(), strict=True)
    ]


def _write_cache(directory: Path, logs: Sequence[tuple[FileStamp, LogColumns]]) -> None:
    """Replace the cache. If the directory is not writable, it is left unchanged."""
    import pandas as pd

    cached_logs = [
        _CachedLog(
            os.fsencode(log.path.relative_to(directory)),
            stamp,
            log.header,
            log.finalist_times,
            log.run_end,
            log.changes,
            {name: len(getattr(log, name)) for name in _ARRAYS},
        )
        for stamp, log in logs
    ]
    arrays: dict[str, Any] = {name: np.concatenate([getattr(log, name) for _, log in logs]) for name in _ARRAYS}
    positions, configs = pd.factorize(arrays["configs"])
    arrays["configs"] = positions.astype(np.int32)
    index_bytes = msgspec.json.encode(_CacheIndex(cached_logs, configs.tolist()))
    arrays[_INDEX_KEY] = np.frombuffer(index_bytes, np.uint8)
    with suppress(SearchlabError), replace_file(directory / CACHE_FILE_NAME, under=directory) as file:
        np.savez(file, **arrays)
