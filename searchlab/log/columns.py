"""Logs as arrays: what an analysis needs of a trial, in a hundred bytes instead of a thousand.

:func:`read_columns` refuses what :func:`~searchlab.log.format.read_log` refuses, and is faster where logs share
configs, which it decodes once. :func:`read_logs` keeps a cache, ``log-cache.parquet``, in the directory that it reads.
The cache is derived from the logs: a log whose file has changed in any way is read again, and a cache that is damaged
or belongs to another user is ignored. Without pyarrow (the extra ``searchlab[cache]``), and in directories that cannot
be written to, all logs are read each time.
"""

from __future__ import annotations

import hashlib
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from operator import attrgetter
from pathlib import Path
from tempfile import mkstemp
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import msgspec
import numpy as np

from ..arrays import Array, Floats
from ..errors import SearchlabWarning
from ..records import FAILURES, Statistic, cost_of
from ..schema import UNREADABLE
from .format import (
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
    batch_starts,
    charged,
    check_follows,
    current,
    decode_log,
    read_bytes,
)

if TYPE_CHECKING:
    import pyarrow as pa

METRICS = ("pairwise_accuracy", "kendall_tau", "top_k_recall", "peak_score", "rmse")
"""What is kept of each :class:`~searchlab.costmodel.quality.ModelQuality`: the columns of :attr:`Columns.qualities`."""

Texts = dict[bytes, bytes]
"""Each distinct config of some logs once, as JSON: the runs of a study share most of their configs."""

_KINDS = {None: -1} | {kind: number for number, kind in enumerate(FAILURES)}
_CONFIG = msgspec.json.Decoder(ConfigJson)
_NOTE = re.compile(rb'\n(\{"kind":"(?:finalists|ended)",[^\n]*)')  # a line that is no trial


@dataclass(frozen=True, eq=False)
class Columns(LoggedTrials):
    """The content of a log, in arrays with a value for each trial.

    Attributes:
        costs: Seconds, infinity for a failure.
        batches: The number of its batch.
        spent: Seconds of proposing, training, building and running, shape (trials, 4).
        failures: The position of its kind in :data:`~searchlab.records.FAILURES`, -1 for none.
        nearest, reused: See :class:`~searchlab.records.Measurement`.
        configs: As JSON.
        sentinels: See :class:`~searchlab.log.format.Record`, NaN for none.
        counts: The number of its readings.
        readings: The readings of all trials in order, in seconds, shape (sum of ``counts``,).
        rounds: The indices of the trials with a :class:`~searchlab.costmodel.quality.ModelQuality`, shape (rounds,).
        qualities: Their :data:`METRICS`, NaN for an undefined one, shape (rounds, 5).
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
            costs=_costs(readings, counts, failures, [row.statistic for row in rows]),
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
        """Return the config of a trial."""
        return _CONFIG.decode(self.configs[index])

    def first(self, trials: int, ended: Ended | None = None) -> Self:
        """Return the first ``trials``, fewer than it has; ``ended`` is why the run ended there."""
        per_trial = ("costs", "batches", "spent", "failures", "nearest", "reused", "configs", "sentinels", "counts")
        arrays = {name: getattr(self, name)[:trials] for name in per_trial}
        arrays["readings"] = self.readings[: int(arrays["counts"].sum())]
        rounds = int(np.searchsorted(self.rounds, trials))
        arrays |= {name: getattr(self, name)[:rounds] for name in ("rounds", "qualities")}
        return replace(self, **arrays, final=None, ended=ended)


def charge(logs: Sequence[Columns]) -> None:
    """Compute :attr:`Columns.charged` and :attr:`Columns.elapsed` of many logs at once, which is faster."""
    lengths = [log.trials for log in logs]
    spent = np.concatenate([log.spent for log in logs])
    starts = batch_starts(np.concatenate([log.batches for log in logs]), lengths)
    charges = charged(spent, starts, [log.header.workers for log in logs], lengths)
    sums = charges.sum(axis=1)
    ends = np.cumsum(lengths).tolist()
    for log, start, end in zip(logs, [0, *ends], ends, strict=False):
        vars(log)["charged"], vars(log)["elapsed"] = charges[start:end], np.cumsum(sums[start:end])


def _costs(readings: Floats, counts: Array, failures: Array, statistics: Sequence[Statistic]) -> Floats:
    """Return the cost of each trial, as :attr:`searchlab.log.format.Record.cost`."""
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


def objects(values: Sequence[Any]) -> Array:
    """Return ``values`` as an array of objects, shape (values,)."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


class _Row(Record, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="kind", tag="trial"):
    """A record whose config is not decoded: most configs of a study have been decoded before."""

    config: msgspec.Raw  # type: ignore[assignment]


_ROWS = msgspec.json.Decoder(_Row)
_NOTES = msgspec.json.Decoder(Final | Ended)


def read_columns(path: Path, texts: Texts) -> Columns:
    """Read the log at ``path``, without a torn last line, and add its configs to ``texts``.

    Raises SearchlabError as :func:`~searchlab.log.format.read_log`.
    """
    data = read_bytes(path)
    with suppress(*UNREADABLE):
        if columns := _quickly(path, data, texts):
            return columns
    return Columns.of(decode_log(path, data), texts)  # names what is wrong, and in which line


def _quickly(path: Path, data: bytes, texts: Texts) -> Columns | None:
    """Decode a log; None if anything in it is unusual. Raises what is ``UNREADABLE``."""
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
    if header.searchlab_log not in (FORMAT, DRAFT) or data.count(b"\n") != 1 + len(notes) + len(rows):
        return None
    if [row.index for row in rows] != list(range(len(rows))):
        return None
    configs = list(map(bytes, map(attrgetter("config"), rows)))
    for text in set(configs).difference(texts):
        _CONFIG.decode(text)
        texts[text] = text
    configs = [texts[text] for text in configs]
    return Columns._of(path, header, rows, configs, latest.get(Final), latest.get(Ended))


CACHE = "log-cache.parquet"
"""The name of the cache."""

FEWEST = 200
"""Fewer logs than this are read within a second, and get no cache."""

STALE = 0.02
"""The cache is rewritten when more than this share of the logs had to be read."""

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
_PER = {"readings": "readings", "rounds": "rounds", "qualities": "rounds"}  # the others have one value for each trial
_WIDTHS = {"spent": 4, "qualities": len(METRICS)}


class _Own(msgspec.Struct, frozen=True, array_like=True):
    """What a header does not share with those of other runs of the strategy; the rest is decoded once."""

    seed: int
    created: float
    machine: dict[str, Any]


_HEADER, _OWN = msgspec.json.Decoder(Header), msgspec.json.Decoder(_Own)


class Stamp(NamedTuple):
    """What shows that a file has not changed. No program can set ``changed``, so a copy of a file has another."""

    size: int
    modified: int  # nanoseconds
    changed: int  # nanoseconds
    inode: int
    tail: bytes  # digest of the last bytes

    @classmethod
    def of(cls, path: Path) -> Stamp | None:
        """Return None if the file cannot be read."""
        try:
            with open(path, "rb", buffering=0) as file:
                status = os.fstat(file.fileno())
                tail = os.pread(file.fileno(), _TAIL, max(0, status.st_size - _TAIL))
        except (OSError, ValueError):
            return None
        digest = hashlib.blake2b(tail, digest_size=16).digest()
        return cls(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, digest)


def read_logs(directory: Path | None, paths: Sequence[Path], texts: Texts, readings: bool = True) -> list[Columns]:
    """Read the logs at ``paths``, in order. Raises SearchlabError as :func:`read_columns`.

    Args:
        directory: Their common directory, which holds the cache; None for no cache.
        paths: The logs.
        texts: The configs that are known already; those of the logs are added.
        readings: Whether ``counts`` and ``readings`` are needed, a third of all data; if not, they may be empty.
    """
    if directory is None or len(paths) < FEWEST or not _has_pyarrow():
        return [read_columns(path, texts) for path in paths]
    stamps = {path: Stamp.of(path) for path in paths}  # before they are read, as they may grow meanwhile
    held = _read_cache(directory, stamps, texts, readings)
    stale = len(paths) - len(held) > STALE * len(paths)
    if stale and held and not readings:
        held = _read_cache(directory, stamps, texts)  # all of it goes into the new cache
    logs = [held.get(path) or read_columns(path, texts) for path in paths]
    if stale:
        _write_cache(directory, [(stamp, log) for log in logs if (stamp := stamps[log.path])])
    return logs


def _has_pyarrow() -> bool:
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        return False
    return True


def _read_cache(
    directory: Path, stamps: Mapping[Path, Stamp | None], texts: Texts, readings: bool = True
) -> dict[Path, Columns]:
    """Return the cached logs among ``stamps`` that have not changed since."""
    import pyarrow as pa

    path = directory / CACHE
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_uid != os.geteuid():
                return {}
            return dict(_cached(directory, file, stamps, texts, readings))
    except FileNotFoundError:
        pass
    except (OSError, ValueError, KeyError, IndexError, pa.ArrowException, *UNREADABLE) as error:
        warnings.warn(f"{path} is damaged ({error}) and will be rebuilt", SearchlabWarning, stacklevel=2)
    return {}


def _cached(
    directory: Path, file: Any, stamps: Mapping[Path, Stamp | None], texts: Texts, readings: bool
) -> Iterator[tuple[Path, Columns]]:
    import pyarrow.parquet as pq

    cached = pq.ParquetFile(file, page_checksum_verification=True)
    if cached.schema_arrow != _schema() or cached.schema_arrow.metadata != _schema().metadata:
        return  # another version
    headers: dict[bytes, Header] = {}
    columns = [name for name in _schema().names if readings or name not in _READINGS]
    for number in range(cached.num_row_groups):
        group = cached.read_row_group(number, columns, use_threads=False)
        rows = list(zip(*(group[name].to_pylist() for name in ("file", *Stamp._fields)), strict=True))
        paths = [directory / os.fsdecode(row[0]) for row in rows]
        same = [stamps.get(path) == Stamp(*row[1:]) for path, row in zip(paths, rows, strict=True)]
        if any(same):
            unpack = _unpacked(group, texts, headers)
            logs = {path: unpack(at, path) for at, path in enumerate(paths) if same[at]}
            charge(list(logs.values()))
            yield from logs.items()


def _unpacked(group: pa.Table, texts: Texts, headers: dict[bytes, Header]) -> Callable[[int, Path], Columns]:
    """Return a function of a row and a path that returns the log in that row.

    Raises what a damaged table raises. ``headers`` are those that have been decoded; others are added.
    """
    names = [name for name in ("configs", *_ARRAYS) if name in group.column_names]
    lists = {name: group[name].combine_chunks() for name in names}
    ends: dict[str, list[int]] = {
        name: lists[name].offsets.to_numpy().tolist() for name in ("costs", "rounds", "readings") if name in names
    }
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


def _write_cache(directory: Path, logs: Sequence[tuple[Stamp, Columns]]) -> None:
    """Replace the cache; a directory that cannot be written to is left as it is."""
    import pyarrow.parquet as pq

    with suppress(OSError):
        handle, part = mkstemp(dir=directory, prefix=f"{CACHE}.", suffix=".part")
        try:
            with (
                open(handle, "wb") as file,
                pq.ParquetWriter(file, _schema(), compression="zstd", write_page_checksum=True) as writer,
            ):
                for start in range(0, len(logs), _GROUP):
                    writer.write_table(_packed(directory, logs[start : start + _GROUP]))
            os.replace(part, directory / CACHE)
        finally:
            with suppress(FileNotFoundError):  # it has its final name now
                os.unlink(part)


def _packed(directory: Path, group: Sequence[tuple[Stamp, Columns]]) -> pa.Table:
    import pyarrow as pa

    def lists(lengths: Sequence[int], values: pa.Array) -> pa.ListArray:
        return pa.ListArray.from_arrays(pa.array(np.cumsum([0, *lengths]), pa.int32()), values)

    def binary(values: Sequence[Any]) -> pa.Array:
        return pa.array(list(map(msgspec.json.encode, values)), pa.binary())

    logs = [log for _, log in group]
    headers = [log.header for log in logs]
    texts = np.concatenate([log.configs for log in logs]).tolist()
    places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
    indices = np.fromiter(map(places.__getitem__, texts), np.int32, len(texts))
    configs = pa.DictionaryArray.from_arrays(indices, pa.array(list(places), pa.binary()))
    columns = [
        pa.array([os.fsencode(log.path.relative_to(directory)) for log in logs], pa.binary()),
        *(pa.array(values) for values in zip(*(stamp for stamp, _ in group), strict=True)),
        binary([msgspec.structs.replace(header, seed=0, created=0.0, machine={}) for header in headers]),
        binary([_Own(header.seed, header.created, header.machine) for header in headers]),
        binary([log.final for log in logs]),
        binary([log.ended for log in logs]),
        lists([len(log.configs) for log in logs], configs),
    ]
    for name, kind in _ARRAYS.items():
        arrays = [getattr(log, name).astype(kind, copy=False).ravel() for log in logs]
        columns.append(lists(list(map(len, arrays)), pa.array(np.concatenate(arrays))))
    return pa.Table.from_arrays(columns, schema=_schema())


def _schema() -> pa.Schema:
    import pyarrow as pa

    stamp = [(name, pa.binary() if name == "tail" else pa.int64()) for name in Stamp._fields]
    content = [(name, pa.binary()) for name in ("header", "own", "final", "ended")]
    arrays = [(name, pa.list_(pa.from_numpy_dtype(kind))) for name, kind in _ARRAYS.items()]
    configs = ("configs", pa.list_(pa.dictionary(pa.int32(), pa.binary())))
    fields = [("file", pa.binary()), *stamp, *content, configs, *arrays]
    return pa.schema(fields, metadata={b"searchlab_log_cache": _FORMAT})
