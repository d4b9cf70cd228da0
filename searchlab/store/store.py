"""A store: the runs that measured something, of all studies, in one file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec

from ..errors import SearchlabError, did_you_mean
from ..log.format import Log, decode_log, find_logs
from ..log.result import Best, Result, Results
from ..machine.host import host_model
from ..schema import UNREADABLE
from ..target import Target, resolve_target
from ..workload import Workload, parse_workload
from .adding import Added, add_log, values_of
from .database import reading, writing
from .held import Held, Key, in_words, places, spelled_target
from .place import default_path

Row = TypeVar("Row")
TargetSpec = str | Mapping[str, Any] | Target

_HELD = """
SELECT workload, target, machine, space, fingerprint, COUNT(*), SUM(trials),
  (SELECT COUNT(DISTINCT program) FROM lines JOIN runs AS own ON lines.run = own.id WHERE own.workload = runs.workload
    AND own.target = runs.target AND own.machine = runs.machine AND own.space = runs.space
    AND own.fingerprint = runs.fingerprint),
  MIN(seconds), strategy, created, origin  -- SQLite takes the last three from the row of the minimum
FROM runs WHERE ?1 IS NULL OR workload = ?1
GROUP BY workload, target, machine, space, fingerprint ORDER BY workload, target, machine, MIN(seconds) IS NULL, 9
"""
_RUNS = """
SELECT id, lines, seconds FROM runs
WHERE workload = ? AND target = ? AND machine = ? AND space = ? AND fingerprint = ?
ORDER BY seconds IS NULL, seconds, id
"""


_Seconds = Annotated[float, msgspec.Meta(gt=1e-15, lt=1e15)] | None


class _HeldRow(NamedTuple):
    """A row of ``_HELD``."""

    workload: str
    target: str
    machine: str
    space: str
    fingerprint: str
    runs: int
    trials: int
    programs: int
    seconds: _Seconds
    strategy: str
    created: Annotated[float, msgspec.Meta(gt=-6e10, lt=2.5e11)]
    origin: str


class _RunRow(NamedTuple):
    """A run, the number of its lines, and the seconds of its fastest program."""

    run: int
    lines: int
    seconds: _Seconds


class _State(NamedTuple):
    """The digest of a log, the number of its lines then, and its run."""

    digest: str
    lines: int
    run: int


class _Index(NamedTuple):
    """What the store says of the log of a run."""

    workload: str
    target: str
    machine: str
    space: str
    fingerprint: str
    origin: str


class _Line(NamedTuple):
    line: bytes


@dataclass(frozen=True, init=False)
class Store:
    """A database of everything that has been measured, across studies.

    It keeps whole logs, so that it can be rebuilt from them and they from it. Several processes may read and write it
    at the same time, on a local disk (see :mod:`~searchlab.store.database`).

    Attributes:
        path: Its file; by default the store of this user.

    Example:
        >>> import searchlab
        >>> store = searchlab.Store("store.db")
        >>> store.add("gemm.jsonl").runs
        1
        >>> store.best("gemm:32x32x32")
        <Best on gemm:32x32x32: ... GFLOPS in trial ...>
    """

    path: Path

    def __init__(self, path: str | Path | None = None) -> None:
        object.__setattr__(self, "path", default_path() if path is None else Path(path))

    def add(self, *logs: str | Path | Result) -> Added:
        """Add the runs in ``logs``: logs, directories of logs, or results. A run that is there already is not doubled.

        Of a log that has grown, the new trials are added. Logs that cannot be read, or that measured nothing (a table
        answered), are left out. Nothing that a log names is imported. Raises SearchlabError if every
        log is left out, and if the file cannot be written or is no store.
        """
        paths = [one.log.path if isinstance(one, Result) else Path(one) for one in logs]
        found = [path for given in paths for path in find_logs(given)]
        if not found:
            raise SearchlabError(f"there is no log (*.jsonl) in {', '.join(map(str, paths))} to add")
        added = Added()
        with writing(self.path) as database:
            for path in found:
                try:
                    is_new, trials = add_log(database, path)
                except SearchlabError as error:
                    added.left_out[path] = str(error)
                    continue
                added.runs += is_new
                added.trials += trials
                added.known += not trials
        if len(added.left_out) == len(found):
            raise SearchlabError(next(iter(added.left_out.values())))
        return added

    def find(
        self,
        workload: str | Workload | None = None,
        *,
        target: TargetSpec | None = None,
        machine: str | None = None,
        space: str | None = None,
    ) -> list[Held]:
        """What it holds, by workload, target, machine and space; only of those that are given.

        machine: a part of its name. Raises SearchlabError if there is no store.
        """
        wanted = None if target is None else spelled_target(resolve_target(target))
        return [
            one
            for one in self._held(workload)
            if wanted in (None, one.key.target)
            and (machine is None or machine.lower() in one.key.machine.lower())
            and space in (None, one.key.space)
        ]

    def results(
        self,
        workload: str | Workload | None = None,
        *,
        target: TargetSpec | None = None,
        machine: str | None = None,
        space: str | None = None,
    ) -> Results:
        """The runs of what :meth:`find` finds, as they were logged; of each key the fastest first."""
        found = self.find(workload, target=target, machine=machine, space=space)
        return Results(Result(log) for one in found for log in self._logs(one.key))

    def best(
        self,
        workload: str | Workload,
        *,
        target: TargetSpec | None = None,
        machine: str | None = None,
        log: str | Path | None = None,
    ) -> Best:
        """The fastest program of ``workload`` for ``target`` on ``machine``, of any space.

        target: by default this CPU with all its cores. machine: a part of the name of one machine; by default this
        machine. log: a new file for the log of its run, as it was added. Raises SearchlabError if there is none, and
        says where else the workload was measured.
        """
        resolved = resolve_target("native" if target is None else target)
        held = self._held(workload)
        if machine is not None:
            machine = self._machine(machine, [one for one in held if one.key.target == spelled_target(resolved)])
        for run, lines in self._fastest(held, resolved, machine):
            if log is not None:
                _write(Path(log), self._lines(run, lines))
            return Result(self._log(run, lines)).best
        raise SearchlabError(self.nothing(str(parse_workload(workload)), held, resolved, machine))

    def fastest(self, held: list[Held], target: Target, machine: str | None = None) -> Iterator[Result]:
        """The runs of ``held`` for ``target`` on ``machine`` (this one if None) that have a best, the fastest first."""
        for run, lines in self._fastest(held, target, machine):
            yield Result(self._log(run, lines))

    def nothing(self, workload: str, held: list[Held], target: Target, machine: str | None = None) -> str:
        """A sentence for where ``held``, of ``workload``, has nothing for ``target`` on ``machine`` (this if None)."""
        where = in_words(spelled_target(target), this_machine(target) if machine is None else machine)
        said = f"the store {self.path} holds no program of {workload} that runs, for {where}"
        if held:
            return f"{said}; it holds these programs of it: {places(held)}"
        return f"{said}, or for any other target{did_you_mean(workload, {one.key.workload for one in self._held()})}"

    def states(self, keys: Iterable[Key]) -> list[tuple[str, Log]]:
        """Every run of ``keys``, the earliest first: the digest of its log, as warm starts have it, and the log."""
        sql = (
            f"SELECT states.digest, own.lines, own.id FROM ({_RUNS}) AS own "
            f"JOIN states ON states.run = own.id AND states.lines = own.lines"
        )
        rows = [row for key in keys for row in self._rows(sql, values_of(key), _State)]
        runs = [(digest, self._log(run, lines)) for digest, lines, run in rows]
        return sorted(runs, key=lambda run: (run[1].header.created, run[0]))

    def log_of(self, digest: str) -> Log | None:
        """The log whose digest was ``digest`` when it was added, though it may have grown since; None if there is none.

        Raises SearchlabError if the store is no store.
        """
        for _, lines, run in self._rows("SELECT digest, lines, run FROM states WHERE digest = ?", [digest], _State):
            return self._log(run, lines)
        return None

    def _held(self, workload: str | Workload | None = None) -> list[Held]:
        wanted = None if workload is None else str(parse_workload(workload))
        held = []
        for row in self._rows(_HELD, [wanted], _HeldRow):
            key = Key(*row[:5])
            try:
                msgspec.json.decode(key.target, type=dict[str, Any])
            except UNREADABLE as error:
                raise self._damaged(f"it names the target {key.target!r}: {error}") from None
            held.append(Held(key, *row[5:]))
        return held

    def _fastest(self, held: list[Held], target: Target, machine: str | None) -> list[tuple[int, int]]:
        at = spelled_target(target), this_machine(target) if machine is None else machine
        keys = [one.key for one in held if (one.key.target, one.key.machine) == at]
        rows = [row for key in keys for row in self._rows(_RUNS, values_of(key), _RunRow)]
        ran = [(seconds, run, lines) for run, lines, seconds in rows if seconds is not None]
        return [(run, lines) for _, run, lines in sorted(ran)]

    def _machine(self, part: str, held: list[Held]) -> str:
        """The one machine of ``held`` whose name has the ``part``; ``part`` itself if there is none."""
        names = {one.key.machine for one in held if part.lower() in one.key.machine.lower()}
        if part not in names and len(names) > 1:
            raise SearchlabError(f"{part!r} is part of the names of several machines: {'; '.join(sorted(names))}")
        return part if part in names or not names else names.pop()

    def _logs(self, key: Key) -> Iterator[Log]:
        """The runs of ``key``, the fastest first."""
        for run, lines, _ in self._rows(_RUNS, values_of(key), _RunRow):
            yield self._log(run, lines)

    def _log(self, run: int, count: int) -> Log:
        """The log of a run, as it was when it had so many lines."""
        rows = self._rows(
            "SELECT workload, target, machine, space, fingerprint, origin FROM runs WHERE id = ?", [run], _Index
        )
        lines = self._lines(run, count)
        if not rows or len(lines) != count:
            raise self._damaged("lines of a log are lost")
        *key, origin = rows[0]
        log = decode_log(self.path / origin.lstrip("/"), b"".join(line + b"\n" for line in lines))
        if Key.of(log.header) != Key(*key):
            raise self._damaged(f"the log {origin} is not what its index says")
        return log

    def _lines(self, run: int, count: int) -> list[bytes]:
        sql = "SELECT line FROM lines WHERE run = ? AND number < ? ORDER BY number"
        return [line for (line,) in self._rows(sql, [run, count], _Line)]

    def _rows(self, sql: str, values: list[Any], kind: type[Row]) -> list[Row]:
        """The rows that a query gives. Raises SearchlabError if one is not of that ``kind``."""
        with reading(self.path) as database:
            rows = database.execute(sql, values).fetchall()
        try:
            return msgspec.convert(rows, list[kind])  # type: ignore[valid-type]
        except msgspec.ValidationError as error:
            raise self._damaged(str(error)) from None

    def _damaged(self, why: str) -> SearchlabError:
        return SearchlabError(f"the store {self.path} is damaged: {why}; make it anew of the logs")


def _write(path: Path, lines: list[bytes]) -> None:
    try:
        with open(path, "xb") as file:
            file.writelines(line + b"\n" for line in lines)
    except (OSError, ValueError) as error:
        raise SearchlabError(f"cannot write {path}: {getattr(error, 'strerror', None) or error}") from None


def this_machine(target: Target) -> str:
    """This machine, as logs of programs for ``target`` name it."""
    return ", ".join(host_model(target.kind).values())
