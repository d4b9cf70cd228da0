"""AutoTVM's logs, JSON lines of versions 0.1 (``i``, ``r``, ``v``) and 0.2 (``input``, ``config``, ``result``).

Its older logs of pickled lines are refused: reading one would run what is in it.
What is lost: the index of a config (searchlab computes its own), the code hash of its template, and which tuner
made it and in which batches, which AutoTVM does not record. The one time AutoTVM gives, of building and running
together, is counted as running.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import msgspec

from ..errors import InvalidConfig, SearchlabError
from ..space import Config, Space
from .foreign import ForeignTask, ForeignTrial, Line, Measured, lines, value_of
from .tasks import workload_of

Entity = list[tuple[str, str, Any]]


class _Config(msgspec.Struct):
    entity: Entity


class _OldConfig(msgspec.Struct):
    e: Entity


class _Record(msgspec.Struct):
    """One record; ``input`` or ``i`` is (target, task, arguments, keyword arguments), version 0.1 appends to it."""

    input: list[Any] = []
    config: _Config | None = None
    result: Measured | None = None
    version: float = 0.1
    tvm_version: str = ""
    i: list[Any] = []
    r: Measured | None = None


@runtime_checkable
class EntitySpace(Protocol):
    """What a space has besides its contract where AutoTVM's configs are its own."""

    def from_entity(self, entity: dict[str, Any]) -> Config:
        """The config that a log of AutoTVM holds as ``entity``. Raises InvalidConfig where it is no member."""


def read(path: Path) -> list[ForeignTask]:
    """The tasks in the log at ``path``. Raises SearchlabError, naming the line."""
    decoder = msgspec.json.Decoder(_Record)
    tasks: dict[bytes, ForeignTask] = {}
    for line in lines(path):
        if not line.text.lstrip().startswith(b"{"):
            line.damaged("it is not JSON; a pickled log of AutoTVM is not read, because that could run any code in it")
        record = line.decode(decoder)
        given, result, entity = _parts(line, record)
        target, name, args = _task(line, given)
        key = msgspec.json.encode([target, name, args])
        if key not in tasks:
            workload, why = workload_of(name, args)
            versions = {"apache-tvm": record.tvm_version} if record.tvm_version else {}
            shown = f"{name} {msgspec.json.encode(args).decode()}"
            tasks[key] = ForeignTask("autotvm", shown, workload, why, target, [], versions)
        config = {knob: value_of(value) for knob, _, value in entity}
        tasks[key].trials.append(line.trial(config, entity, result))
    return list(tasks.values())


def _parts(line: Line, record: _Record) -> tuple[list[Any], Measured, Entity]:
    """The task, the result and the config, in either version."""
    if record.config is not None and record.result is not None:
        return record.input, record.result, record.config.entity
    if record.i and record.r is not None:
        try:
            return record.i, record.r, msgspec.convert(record.i[-1], _OldConfig).e
        except msgspec.ValidationError as error:
            line.damaged(error)
    line.damaged("it is not a record of AutoTVM 0.1 or 0.2")


def _task(line: Line, given: list[Any]) -> tuple[dict[str, Any], str, list[Any]]:
    if len(given) < 4 or not isinstance(given[1], str) or not isinstance(given[2], list):
        line.damaged("its task is not (target, name, arguments, keyword arguments)")
    if not isinstance(given[0], str | dict):
        line.damaged(f"its target is {given[0]!r}")
    return line.target(given[0]), given[1], given[2]


def config_in(space: Space, task: ForeignTask, trial: ForeignTrial) -> Config:
    """See :meth:`.foreign.Reader.config_in`."""
    if not isinstance(space, EntitySpace):
        raise SearchlabError(
            "a config of AutoTVM is the entity of a template; import it into the space knob-template with the template "
            "that it is of (--option template=NAME), or without --space, for analysis"
        )
    try:
        return space.from_entity({"entity": trial.source})
    except (ValueError, TypeError, IndexError) as error:
        raise InvalidConfig(f"the entity is not in this space: {error}") from None
