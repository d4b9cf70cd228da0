"""A log as arrays: what an analysis needs of its trials, in a hundred bytes each instead of a thousand.

A report may be of thousands of logs. :func:`read_columns` refuses what :func:`~searchlab.log.format.read_log` refuses,
and is faster where logs share configs, which it decodes once.
"""

from __future__ import annotations

import hashlib
import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import chain
from operator import attrgetter
from pathlib import Path
from tempfile import mkstemp
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import msgspec
import numpy as np

from ..arrays import Array, Floats
from ..costmodel.quality import ModelQuality
from ..errors import SearchlabWarning
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

if TYPE_CHECKING:
    import pyarrow as pa


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
            pa.array(
                [_json(msgspec.structs.replace(log.header, seed=0, created=0.0, machine={})) for log in logs],
                pa.binary(),
            ),
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
        header = msgspec.structs.replace(headers[common[row]], seed=own.seed, created=own.created, machine=own.machine)
        arrays: dict[str, Array] = {
            name: values[slice(*ends[_PER.get(name, "costs")][row : row + 2])] for name, values in flat.items()
        }
        return Columns(
            path=path, header=header, final=_FINAL.decode(finals[row]), ended=_ENDED.decode(endeds[row]), **arrays,
            **left_out,
        )  # fmt: skip

    return log
