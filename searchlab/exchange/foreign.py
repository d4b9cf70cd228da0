"""The common parts of the readers for other tuners' files: tasks, trials, lines and targets.

Reading a file does not execute any of its contents: lines are JSON, whose types are checked during decoding.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Protocol, TypeVar, cast

import msgspec

from ..errors import SearchlabError, warn
from ..log.format import Header, Record
from ..log.read import read_log_bytes
from ..plugins import Plugin
from ..records import Statistic
from ..schema import UNREADABLE
from ..space import PARAMETERS, SPACES, Config, Space, Value
from ..target import parse_options
from ..workload import Workload

T = TypeVar("T")

WORKLOAD_HINT = "if it is a searchlab workload, specify it with --workload"


class ForeignTrial(NamedTuple):
    """Another tuner's trial.

    Attributes:
        line_number: The number of its line or record in the file, from 1.
        record: The record, with the config spelled as in the file, unless searchlab wrote the file.
        config_data: The data that find_config reads, whose form depends on the format.
    """

    line_number: int
    record: Record
    config_data: Any = None


@dataclass(frozen=True)
class ForeignTask:
    """All trials of one computation for one target.

    Attributes:
        name: The task's name in the file.
        unknown_reason: Why the workload is None.
        workload_data: The data about the computation that find_config needs, whose form depends on the format.
        original_header: The header of the log from which it was exported, if searchlab wrote it.
        template_name: The name of the template that made the programs, if the file says so.
        space: The space whose configs the file lists, if it lists them.
        steps_space: The space of its transform steps, if they can be applied on request.
        is_partial: Whether the file seems to list only some of the space's configs.
        statistic: The statistic of the repeats that is a trial's cost.
        omissions: A description of each omitted part.
    """

    format: str
    name: str
    workload: Workload | None
    unknown_reason: str
    target: dict[str, Any]
    trials: list[ForeignTrial]
    versions: dict[str, str] = field(default_factory=dict)
    workload_data: Any = None
    original_header: Header | None = None
    template_name: str = ""
    space: Plugin | None = None
    steps_space: Plugin | None = None
    is_partial: bool = False
    statistic: Statistic = "median"
    host: dict[str, Any] = field(default_factory=dict)
    omissions: tuple[str, ...] = ()

    @property
    def fingerprint(self) -> str:
        """A fingerprint that is the same in all files about one task, and different from those of searchlab spaces."""
        identity = msgspec.json.encode([self.name, self.target], order="deterministic")
        return f"{self.format}:{hashlib.sha256(identity).hexdigest()[:16]}"


class ConfigListSpace(Protocol):
    """A class of spaces that are each defined by a list of configs, which the options encode."""

    @classmethod
    def options_for(
        cls, parameters: Mapping[str, Sequence[Value]], configs: Sequence[Mapping[str, Value]]
    ) -> dict[str, Any]: ...


def make_listed_space(
    parameters: Mapping[str, Sequence[Value]], configs: Sequence[Mapping[str, Value]], **options: Any
) -> Plugin:
    """Return the space ``parameters`` with exactly these configs."""
    cls = cast("type[ConfigListSpace]", SPACES.load(PARAMETERS))
    return Plugin(PARAMETERS, {**cls.options_for(parameters, configs), **options})


class Reader(NamedTuple):
    """The functions for importing a format.

    Attributes:
        lost: The parts of the records that a log does not keep.
        read: A function that returns the tasks in a file, in order. It raises SearchlabError, which names the line.
        find_config: A function that returns the space's config that corresponds to a trial. It raises InvalidConfig if
            there is none, and SearchlabError if the space cannot read this format at all.
    """

    lost: str
    read: Callable[[Path], list[ForeignTask]]
    find_config: Callable[[Space, ForeignTask, ForeignTrial], Config]


def to_datetime(seconds: float) -> datetime:
    """Convert a number of seconds since 1970 to a date. Raises SearchlabError if it is out of range."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, OSError, ValueError):
        raise SearchlabError(
            f"a trial's timestamp, {seconds:g} seconds since 1970, is not a valid date; the log is damaged"
        ) from None


@dataclass(frozen=True)
class ForeignLine:
    """A line of a file. Its methods raise SearchlabError, which names the line.

    Attributes:
        number: The line's number, from 1.
    """

    path: Path
    number: int
    content: bytes

    def fail(self, reason: object) -> NoReturn:
        raise SearchlabError(f"{self.path}, line {self.number} is damaged: {reason}") from None

    def decode(self, decoder: msgspec.json.Decoder[T]) -> T:
        try:
            return decoder.decode(self.content)
        except UNREADABLE as error:
            self.fail(error)

    def parse_target(self, spec: str | Mapping[str, Any]) -> dict[str, Any]:
        """Return a target in TVM's JSON form, given in this form or in an older one such as ``llvm -mcpu=znver4``."""
        if isinstance(spec, str) and spec.lstrip().startswith("{"):
            try:
                spec = msgspec.json.decode(spec, type=dict[str, Any])
            except (msgspec.DecodeError, RecursionError) as error:
                self.fail(f"target {spec!r} is not valid JSON: {error}")
        if not isinstance(spec, str):
            if not isinstance(spec.get("kind"), str):
                self.fail(f'target {dict(spec)!r} has no "kind"')
            return {name: value for name, value in sorted(spec.items()) if value not in ("", None)}
        try:
            return dict(sorted(parse_options(spec).items()))
        except SearchlabError as error:
            self.fail(error)

    def parse_times(self, values: list[Any]) -> tuple[float, ...]:
        """Return a successful trial's times as floats."""
        for value in values:
            # Integers in JSON may be larger than any float.
            if not is_number(value) or not 0 < value <= sys.float_info.max:
                self.fail(f"{value!r} is not a time in seconds")
        if not values:
            self.fail("it succeeded but contains no time")
        return tuple(float(value) for value in values)


def read_lines(path: Path) -> Iterator[ForeignLine]:
    """Yield a file's non-empty lines. Raises SearchlabError if there are none."""
    is_empty = True
    for number, content in enumerate(read_log_bytes(path).splitlines(), 1):
        if content.strip():
            is_empty = False
            yield ForeignLine(path, number, content)
    if is_empty:
        raise SearchlabError(f"{path} is empty, so there is nothing to import")


REPEATED_CONFIGS_NOTE = (
    "measurements of configs that had already been measured; only the first one of each config counts"
)


def drop_repeated_configs(task: ForeignTask) -> ForeignTask:
    """Return ``task`` with only the first trial of each config, since tuners append to a file whenever they run."""
    first_trials: dict[Config, ForeignTrial] = {}
    for trial in task.trials:
        first_trials.setdefault(Config(trial.record.config), trial)
    if len(first_trials) == len(task.trials):
        return task
    omission = f"{len(task.trials) - len(first_trials)} {REPEATED_CONFIGS_NOTE}"
    return replace(task, trials=list(first_trials.values()), omissions=(*task.omissions, omission))


def read_json_lines(path: Path) -> Iterator[ForeignLine]:
    """Yield the lines of a file with a JSON value a line, without comments.

    A last line that is incomplete, because its writer was killed, is omitted with a SearchlabWarning. Raises
    SearchlabError if there are no lines.
    """
    lines = [line for line in read_lines(path) if not line.content.lstrip().startswith(b"#")]
    if not lines:
        raise SearchlabError(f"{path} contains only comments, so there is nothing to import")
    last_line = lines[-1]
    if len(lines) > 1 and not _is_json(last_line.content) and not read_log_bytes(path).endswith(b"\n"):
        warn(f"{path}, line {last_line.number} is incomplete: its end is missing, so it is not imported")
        lines.pop()
    yield from lines


def _is_json(content: bytes) -> bool:
    try:
        msgspec.json.decode(content, type=msgspec.Raw)
    except UNREADABLE:
        return False
    return True


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def to_config_value(value: Any) -> Value:
    """Convert a value to the form used in configs: a list of integers becomes a tile; other structures become JSON."""
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list) and all(type(element) is int for element in value):
        return tuple(value)
    return msgspec.json.encode(value).decode()
