"""Writing a log: appending to it by one process alone, and only to the log of the same run."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any, Self

import msgspec

from ..costmodel import COST_MODELS
from ..errors import SearchlabError
from ..plugins import PluginKind
from ..policy import POLICIES
from ..space import SPACES
from .format import IDENTITY, Final, Header, Log, Record, in_todays_words, read_held


class LogWriter:
    """A log open for appending by this process alone; made where it does not exist.

    ``records`` and ``final`` are what it held already; ``held``, where given, is the log as it was read before, which
    is read again only if it has changed since. Each record is written as it is appended, and forced to the disk by
    :meth:`sync`; unless ``durable``, it is written by ``sync`` or :meth:`close`, and forced nowhere. Raises
    SearchlabError for a foreign or damaged log, for one that another process writes, and for the log of a run that
    differs from ``header`` in anything of ``IDENTITY``.
    """

    def __init__(self, path: str | Path, header: Header, durable: bool = True, held: Log | None = None) -> None:
        self.path = Path(path)
        self._durable = durable
        self._lines: list[bytes] = []
        self._added: list[Record] = []
        if self.path.suffix == ".gz":
            raise SearchlabError(
                f"cannot write the log {self.path}: a compressed log is only read; write one that ends in .jsonl "
                f"(gunzip unpacks this one, if it is there)"
            )
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.fdopen(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666), "r+b", buffering=0)
        except OSError as error:
            raise SearchlabError(f"cannot write the log {self.path}: {error.strerror}") from None
        try:
            self._open(header, held)
        except BaseException:
            self._file.close()
            raise

    def _open(self, header: Header, held: Log | None) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise SearchlabError(f"another process is writing {self.path}; wait for it or choose another log") from None
        if held is None or held.size != os.fstat(self._file.fileno()).st_size:
            held = read_held(self.path)
        if held is not None:
            check_identity(self.path, held.header, header)
            self.header, self.records, self.final = held.header, held.records, held.final
            self._file.truncate(held.size)
            self._end = held.size
        else:
            self._file.truncate(0)
            self._end = 0
            self.header, self.records, self.final = header, (), None
            self._lines.append(msgspec.json.encode(header))
            self.sync()

    @property
    def log(self) -> Log:
        """What the log holds, with all that was appended."""
        return Log(self.path, self.header, (*self.records, *self._added), self.final, self._end)

    def append(self, record: Record | Final) -> None:
        self._lines.append(msgspec.json.encode(record))
        if isinstance(record, Final):
            self.final = record
        else:
            self.final = None
            self._added.append(record)
        if self._durable:
            self._write()

    def _write(self) -> None:
        data = b"".join(line + b"\n" for line in self._lines)
        try:
            # Whatever interrupts this, and wherever, writing the same to the same place again does no harm.
            written = 0
            while written < len(data):
                written += os.pwrite(self._file.fileno(), data[written:], self._end + written)
        except OSError as error:
            raise SearchlabError(
                f"cannot write the log {self.path}: {error.strerror}; free space and run again"
            ) from None
        self._end, self._lines = self._end + len(data), []

    def sync(self) -> None:
        """Write what was appended, and force it to the disk if durable: called once a batch."""
        self._write()
        if self._durable:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        try:
            self._write()
        finally:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def check_identity(path: Path, old: Header, new: Header) -> None:
    """Raise SearchlabError where the log at ``path``, whose header is ``old``, is not of the run that ``new`` is of."""
    for name in IDENTITY:
        before, now = (msgspec.to_builtins(getattr(header, name)) for header in (old, new))
        if name == "measure":
            before = in_todays_words(before)
        if before != now and not _same_plugin(name, getattr(old, name), getattr(new, name)):
            raise SearchlabError(
                f"{path} is the log of another run: its {name} is {_shown(before)}, not {_shown(now)}; "
                f"choose another log file, or ask for the run that this log is of"
            )


def _same_plugin(name: str, old: Any, new: Any) -> bool:
    """Whether two plug-ins in a header are one, spelled as of different versions."""
    kinds: dict[str, PluginKind[Any]] = {"space": SPACES, "policy": POLICIES, "cost_model": COST_MODELS}
    return name in kinds and bool(old and new) and kinds[name].same(old, new)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
