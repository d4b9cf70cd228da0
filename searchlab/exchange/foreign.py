"""The contents of another tuner's file, in any format: tasks, and the trials of each.

Reading one executes nothing that is in it: lines are JSON, checked for their types as they are decoded.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, NoReturn, Protocol, TypeVar

import msgspec

from ..errors import SearchlabError
from ..log.format import Header, Record, read_bytes
from ..plugins import Plugin
from ..records import Failure, Statistic
from ..space import Config, Space, Value
from ..workload import Workload

T = TypeVar("T")

Seconds = Annotated[float, msgspec.Meta(ge=0)]
Measured = tuple[list[Any], int, Seconds, Seconds]
"""The result of a trial in AutoTVM and Ansor: its times, MeasureErrorNo, seconds to measure, seconds since 1970."""

ERRORS: dict[int, tuple[str, Failure]] = {
    1: ("INSTANTIATION_ERROR", "invalid"),
    2: ("COMPILE_HOST", "build_error"),
    3: ("COMPILE_DEVICE", "build_error"),
    4: ("RUNTIME_DEVICE", "run_error"),
    5: ("WRONG_ANSWER", "wrong_answer"),
    6: ("BUILD_TIMEOUT", "build_timeout"),
    7: ("RUN_TIMEOUT", "run_timeout"),
    8: ("UNKNOWN_ERROR", "crash"),
}
"""``MeasureErrorNo`` of AutoTVM and Ansor, which number them alike (TVM 0.17), and the failure that each is here."""

NAMED = ("kind", "mtriple", "mcpu", "mattr", "num-cores", "vector-width", "arch")
"""The fields of a target that decide which programs there are; the others only inform MetaSchedule."""


@dataclass(frozen=True)
class ForeignTrial:
    """A record of another tuner.

    line: where it is in the file, from 1. config: what it chose, as the file spells it, for analysis.
    source: what a space reads a config of its own from; its form is the format's.
    run_seconds: all that measuring it took, where the format does not tell building from running.
    propose_seconds, train_seconds: what the tuner itself took, where the format says.
    time: seconds since 1970 when it was measured, 0 where it is not recorded.
    record: the trial as a log of searchlab had it, where it was exported from one; nothing else but ``line`` and
    ``source`` is set then.
    """

    line: int
    config: dict[str, Value]
    source: Any
    seconds: tuple[float, ...] = ()
    failure: Failure | None = None
    message: str = ""
    build_seconds: float = 0.0
    run_seconds: float = 0.0
    propose_seconds: float = 0.0
    train_seconds: float = 0.0
    time: float = 0.0
    record: Record | None = None


@dataclass(frozen=True)
class ForeignTask:
    """All records of one computation for one target.

    name: what the file calls it. workload: which of ours it is; None where that cannot be told, and then ``why`` not.
    source: of the computation, what a space needs to read a config; its form is the format's.
    native: the header of the log that it was exported from, where searchlab wrote it.
    space: the space that the file itself lists the configs of; None where it lists none. statistic: of its repeats, the
    cost of a trial. host: facts on the machine. left_out: what of the file is not in ``trials``, in words.
    """

    format: str
    name: str
    workload: Workload | None
    why: str
    target: dict[str, Any]
    trials: list[ForeignTrial]
    versions: dict[str, str] = field(default_factory=dict)
    source: Any = None
    native: Header | None = None
    space: Plugin | None = None
    statistic: Statistic = "median"
    host: dict[str, Any] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()

    @property
    def fingerprint(self) -> str:
        """Of the task as the file has it: the same for two files of one task, and never that of a space of ours."""
        told = msgspec.json.encode([self.name, self.target], order="deterministic")
        return f"{self.format}:{hashlib.sha256(told).hexdigest()[:16]}"


class Reader(Protocol):
    """The functions of the module of a format."""

    def read(self, path: Path) -> list[ForeignTask]:
        """The tasks in the file at ``path``, in order. Raises SearchlabError, naming the line."""

    def config_in(self, space: Space, task: ForeignTask, trial: ForeignTrial) -> Config:
        """The config of ``space`` that ``trial`` is.

        Raises InvalidConfig where it is none, and SearchlabError where ``space`` cannot read this format at all.
        """


def moment(seconds: float) -> datetime:
    """The moment ``seconds`` after 1970. Raises SearchlabError if there is no such day."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, OSError, ValueError):
        raise SearchlabError(
            f"a trial's time is {seconds:g} seconds after 1970, which is not a date; the log is damaged"
        ) from None


@dataclass(frozen=True)
class Line:
    """A line of a file, with its number from 1. What its methods refuse, they refuse with SearchlabError, naming it."""

    path: Path
    number: int
    text: bytes

    def damaged(self, why: object) -> NoReturn:
        raise SearchlabError(f"{self.path}, line {self.number} is damaged: {why}") from None

    def decode(self, decoder: msgspec.json.Decoder[T]) -> T:
        """The record that the line holds."""
        try:
            return decoder.decode(self.text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self.damaged(error)

    def target(self, given: str | Mapping[str, Any]) -> dict[str, Any]:
        """The target of the record, as :func:`parse_target` reads it."""
        try:
            return parse_target(given)
        except ValueError as error:
            self.damaged(error)

    def seconds(self, values: list[Any]) -> tuple[float, ...]:
        """The times of a record that succeeded."""
        for value in values:
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not is_number or not 0 < value <= sys.float_info.max:  # JSON's whole numbers are of any size
                self.damaged(f"{value!r} is no time of a run in seconds")
        if not values:
            self.damaged("it succeeded, and has no time")
        return tuple(float(value) for value in values)

    def trial(self, config: dict[str, Value], source: Any, measured: Measured) -> ForeignTrial:
        """The trial of a record of AutoTVM or Ansor."""
        costs, error, run_seconds, time = measured
        trial = ForeignTrial(self.number, config, source, run_seconds=run_seconds, time=time)
        if error == 0:
            return replace(trial, seconds=self.seconds(costs))
        if error not in ERRORS:
            self.damaged(f"there is no MeasureErrorNo {error}")
        name, failure = ERRORS[error]
        told = [text for text in costs if isinstance(text, str)]  # AutoTVM keeps an error's text there, or 1e9
        return replace(trial, failure=failure, message=": ".join([f"MeasureErrorNo.{name}", *told]))


def lines(path: Path) -> Iterator[Line]:
    """The lines of ``path`` that are not empty. Raises SearchlabError if there is none."""
    empty = True
    for number, text in enumerate(read_bytes(path).splitlines(), 1):
        if text.strip():
            empty = False
            yield Line(path, number, text)
    if empty:
        raise SearchlabError(f"{path} is empty; it holds no record to import")


def value_of(given: Any) -> Value:
    """A choice as a config holds it: a list of whole numbers is a tile, and any other structure its JSON."""
    if isinstance(given, bool | int | float | str):
        return given
    if isinstance(given, list) and all(type(item) is int for item in given):
        return tuple(given)
    return msgspec.json.encode(given).decode()


def parse_target(text: str | Mapping[str, Any]) -> dict[str, Any]:
    """A target in TVM's JSON form, from that or from the command line of older versions, ``llvm -mcpu=znver4``.

    Raises ValueError where it is neither.
    """
    if isinstance(text, str) and text.lstrip().startswith("{"):
        try:
            text = msgspec.json.decode(text, type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError) as error:
            raise ValueError(f"target {text!r} is not valid JSON: {error}") from None
    if not isinstance(text, str):
        if not isinstance(text.get("kind"), str):
            raise ValueError(f'target {dict(text)!r} has no "kind"')
        return {name: value for name, value in sorted(text.items()) if value not in ("", None)}
    kind, *options = text.split() or [""]
    if not kind or kind.startswith("-"):
        raise ValueError(f"target {text!r} does not start with its kind")
    target: dict[str, Any] = {"kind": kind}
    for option in options:
        name, equals, value = option.lstrip("-").partition("=")
        if not option.startswith("-") or not name:
            raise ValueError(f"target {text!r}: {option!r} is no option")
        if name in ("keys", "libs", "mattr"):
            target[name] = value.split(",")
        else:
            target[name] = int(value) if value.isdecimal() else value if equals else True
    return dict(sorted(target.items()))
