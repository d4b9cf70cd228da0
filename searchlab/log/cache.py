"""Many logs read at once, by way of a cache beside them: ``log-cache.parquet`` in the directory that is read.

The cache is derived from the logs. A log whose file has changed in any way is read again; a cache
that is damaged, or that somebody else made, does not count. It is Parquet, a row for each log, and takes pyarrow, the
extra ``searchlab[cache]``; without it, and in directories that cannot be written to, all logs are read each time.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkstemp
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from ..arrays import Array
from ..errors import SearchlabWarning
from ..schema import UNREADABLE
from .columns import METRICS, Columns, Texts, charge, objects, read_columns
from .format import Ended, Final, Header

if TYPE_CHECKING:
    import pyarrow as pa

CACHE = "log-cache.parquet"
"""The name of the file."""

FEWEST = 200
"""So few logs are read within a second: they get no cache."""

STALE = 0.02
"""The cache is rewritten when more than this part of the logs had to be read."""

_FORMAT = b"3"
_FINAL, _ENDED = msgspec.json.Decoder(Final | None), msgspec.json.Decoder(Ended | None)
_GROUP = 500  # logs that are converted at a time
_TAIL = 4096  # bytes
_ARRAYS = {
    "costs": np.float64, "batches": np.int32, "spent": np.float64, "failures": np.int8, "nearest": np.int8,
    "reused": np.int8,
    "sentinels": np.float64, "counts": np.int32, "readings": np.float64, "rounds": np.int32, "qualities": np.float64,
}  # fmt: skip
_READINGS = ("counts", "readings")
_BOOLS = ("nearest", "reused")
_PER = {"readings": "readings", "rounds": "rounds", "qualities": "rounds"}  # of the others there is one for each trial
_WIDTHS = {"spent": 4, "qualities": len(METRICS)}


class _Own(msgspec.Struct, frozen=True, array_like=True):
    """What is of one run alone in a header; the rest is common to the runs of a strategy, and is decoded once."""

    seed: int
    created: float
    machine: dict[str, Any]


_HEADER, _OWN = msgspec.json.Decoder(Header), msgspec.json.Decoder(_Own)


class Stamp(NamedTuple):
    """What says that a file is the same as before. No program sets ``changed``: a copy of a file has another.

    modified, changed: nanoseconds. tail: a digest of its last bytes.
    """

    size: int
    modified: int
    changed: int
    inode: int
    tail: bytes

    @classmethod
    def of(cls, path: Path) -> Stamp | None:
        """None if the file cannot be read."""
        try:
            file = os.open(path, os.O_RDONLY)
        except (OSError, ValueError):
            return None
        try:
            status = os.fstat(file)
            tail = hashlib.blake2b(os.pread(file, _TAIL, max(0, status.st_size - _TAIL)), digest_size=16).digest()
        except OSError:
            return None
        finally:
            os.close(file)
        return cls(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, tail)


def read_logs(directory: Path | None, paths: Sequence[Path], texts: Texts, readings: bool = True) -> list[Columns]:
    """The logs at ``paths``, in order. Raises SearchlabError as :func:`~searchlab.log.columns.read_columns`.

    directory: their common directory, which holds the cache; None for none. texts: see there. readings: False where
    ``counts`` and ``readings`` are not needed, a third of all; they may then be empty.
    """
    cache = LogCache.of(directory) if directory and len(paths) >= FEWEST else None
    if cache is None:
        return [read_columns(path, texts) for path in paths]
    stamps = {path: Stamp.of(path) for path in paths}  # taken before they are read: they may grow meanwhile
    held = cache.read(stamps, texts, readings)
    stale = len(paths) - len(held) > STALE * len(paths)
    if stale and held and not readings:
        held = cache.read(stamps, texts)  # all of it goes into the new cache
    logs = [held.get(path) or read_columns(path, texts) for path in paths]
    if stale:
        cache.write([(stamp, log) for log in logs if (stamp := stamps[log.path])])
    return logs


@dataclass(frozen=True)
class LogCache:
    """The cache in ``directory``."""

    directory: Path

    @classmethod
    def of(cls, directory: Path) -> LogCache | None:
        """None without pyarrow."""
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError:
            return None
        return cls(directory)

    @property
    def path(self) -> Path:
        return self.directory / CACHE

    def read(self, stamps: Mapping[Path, Stamp | None], texts: Texts, readings: bool = True) -> dict[Path, Columns]:
        """The logs among ``stamps`` that the cache holds and that have not changed since.

        texts, readings: see :func:`read_logs`.
        """
        import pyarrow as pa

        try:
            with self.path.open("rb") as file:
                if os.fstat(file.fileno()).st_uid != os.geteuid():
                    return {}
                return dict(self._logs(file, stamps, texts, readings))
        except FileNotFoundError:
            pass
        except (OSError, ValueError, KeyError, IndexError, pa.ArrowException, *UNREADABLE) as error:
            warnings.warn(f"{self.path} is damaged ({error}) and will be rebuilt", SearchlabWarning, stacklevel=2)
        return {}

    def _logs(
        self, file: Any, stamps: Mapping[Path, Stamp | None], texts: Texts, readings: bool
    ) -> Iterator[tuple[Path, Columns]]:
        import pyarrow.parquet as pq

        cached = pq.ParquetFile(file, page_checksum_verification=True)
        if cached.schema_arrow != _schema() or cached.schema_arrow.metadata != _schema().metadata:
            return  # of another version
        headers: dict[bytes, Header] = {}
        columns = [name for name in _schema().names if readings or name not in _READINGS]
        for number in range(cached.num_row_groups):
            group = cached.read_row_group(number, columns, use_threads=False)
            rows = list(zip(*(group[name].to_pylist() for name in ("file", *Stamp._fields)), strict=True))
            paths = [self.directory / os.fsdecode(row[0]) for row in rows]
            same = [stamps.get(path) == Stamp(*row[1:]) for path, row in zip(paths, rows, strict=True)]
            if any(same):
                unpack = _unpacked(group, texts, headers)
                logs = {path: unpack(at, path) for at, path in enumerate(paths) if same[at]}
                charge(list(logs.values()))
                yield from logs.items()

    def write(self, logs: Sequence[tuple[Stamp, Columns]]) -> None:
        """Write ``logs`` in place of what is there; nothing where that is impossible."""
        import pyarrow.parquet as pq

        with suppress(OSError):
            handle, part = mkstemp(dir=self.directory, prefix=f"{CACHE}.", suffix=".part")
            try:
                with (
                    open(handle, "wb") as file,
                    pq.ParquetWriter(file, _schema(), compression="zstd", write_page_checksum=True) as writer,
                ):
                    for start in range(0, len(logs), _GROUP):
                        writer.write_table(self._packed(logs[start : start + _GROUP]))
                os.replace(part, self.path)
            finally:
                with suppress(FileNotFoundError):  # it has its name now
                    os.unlink(part)

    def _packed(self, group: Sequence[tuple[Stamp, Columns]]) -> pa.Table:
        import pyarrow as pa

        logs = [log for _, log in group]
        texts = np.concatenate([log.configs for log in logs]).tolist()
        places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
        indices = np.fromiter(map(places.__getitem__, texts), np.int32, len(texts))
        configs = pa.DictionaryArray.from_arrays(indices, pa.array(list(places), pa.binary()))
        columns = [
            pa.array([os.fsencode(log.path.relative_to(self.directory)) for log in logs], pa.binary()),
            *(pa.array(values) for values in zip(*(stamp for stamp, _ in group), strict=True)),
            pa.array([_json(replace(log.header, seed=0, created=0.0, machine={})) for log in logs], pa.binary()),
            pa.array([_json(_Own(h.seed, h.created, h.machine)) for h in (log.header for log in logs)], pa.binary()),
            *(pa.array([_json(getattr(log, name)) for log in logs], pa.binary()) for name in ("final", "ended")),
            _lists([len(log.configs) for log in logs], configs),
        ]
        for name, kind in _ARRAYS.items():
            arrays = [getattr(log, name).astype(kind, copy=False).ravel() for log in logs]
            columns.append(_lists(list(map(len, arrays)), pa.array(np.concatenate(arrays))))
        return pa.Table.from_arrays(columns, schema=_schema())


def _json(value: Any) -> bytes:
    return msgspec.json.encode(value)


def _schema() -> pa.Schema:
    import pyarrow as pa

    stamp = [(name, pa.binary() if name == "tail" else pa.int64()) for name in Stamp._fields]
    content = [(name, pa.binary()) for name in ("header", "own", "final", "ended")]
    arrays = [(name, pa.list_(pa.from_numpy_dtype(kind))) for name, kind in _ARRAYS.items()]
    configs = ("configs", pa.list_(pa.dictionary(pa.int32(), pa.binary())))
    fields = [("file", pa.binary()), *stamp, *content, configs, *arrays]
    return pa.schema(fields, metadata={b"searchlab_log_cache": _FORMAT})


def _lists(lengths: Sequence[int], values: pa.Array) -> pa.ListArray:
    import pyarrow as pa

    return pa.ListArray.from_arrays(pa.array(np.cumsum([0, *lengths]), pa.int32()), values)


def _unpacked(group: pa.Table, texts: Texts, headers: dict[bytes, Header]) -> Callable[[int, Path], Columns]:
    """A function of a row and a path that gives the log of that row. Raises what a damaged table raises.

    headers: those that were decoded before, as they are in the table; others are added.
    """
    names = [name for name in ("configs", *_ARRAYS) if name in group.column_names]
    lists = {name: group[name].combine_chunks() for name in names}
    per: list[str] = [name for name in ("costs", "rounds", "readings") if name in names]
    ends: dict[str, list[int]] = {name: lists[name].offsets.to_numpy().tolist() for name in per}
    configs = lists.pop("configs").values
    distinct = objects([texts.setdefault(text, text) for text in configs.dictionary.to_pylist()])
    flat = {"configs": distinct[configs.indices.to_numpy()]}
    for name, column in lists.items():
        values = column.values.to_numpy()
        flat[name] = values.reshape(-1, _WIDTHS[name]) if name in _WIDTHS else values
    if any(len(values) != ends[_PER.get(name, "costs")][-1] for name, values in flat.items()):
        raise ValueError("its columns differ in length")
    left_out = {name: np.empty(0) for name in _READINGS if name not in flat}
    flat |= {name: flat[name].astype(np.bool_) for name in _BOOLS}
    common, owns, finals, endeds = (group[name].to_pylist() for name in ("header", "own", "final", "ended"))
    for text in set(common).difference(headers):
        headers[text] = _HEADER.decode(text)

    def log(row: int, path: Path) -> Columns:
        own = _OWN.decode(owns[row])
        header = replace(headers[common[row]], seed=own.seed, created=own.created, machine=own.machine)
        arrays: dict[str, Array] = {
            name: values[slice(*ends[_PER.get(name, "costs")][row : row + 2])] for name, values in flat.items()
        }
        return Columns(
            path=path, header=header, final=_FINAL.decode(finals[row]), ended=_ENDED.decode(endeds[row]), **arrays,
            **left_out,
        )  # fmt: skip

    return log
