"""AutoTVM's logs, JSON lines of versions 0.1 (``i``, ``r``, ``v``) and 0.2 (``input``, ``config``, ``result``).

Its older logs of pickled lines are refused: reading one would run what is in it.
What is lost: the index of a config (a space of ours computes it anew), the code hash of its template, and which tuner
made it and in which batches, which AutoTVM does not record. The one time AutoTVM gives, of building and running
together, is counted as running.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import msgspec

from ..errors import InvalidConfig, SearchlabError
from ..space import Config, Space
from .foreign import ForeignTask, ForeignTrial, Measured, damaged, decode, lines, measured, parse_target, value_of
from .tasks import workload_of

Entity = list[tuple[str, str, Any]]


class _Config(msgspec.Struct):
    entity: Entity


class _OldConfig(msgspec.Struct):
    e: Entity


class _Line(msgspec.Struct):
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
    decoder = msgspec.json.Decoder(_Line)
    tasks: dict[bytes, ForeignTask] = {}
    for number, text in lines(path):
        if not text.lstrip().startswith(b"{"):
            damaged(
                path, number, "it is not JSON; AutoTVM's pickled logs are not read, as that would run what they say"
            )
        line = decode(path, number, text, decoder)
        given, result, entity = _parts(path, number, line)
        target, name, args = _task(path, number, given)
        key = msgspec.json.encode([target, name, args])
        if key not in tasks:
            workload, why = workload_of(name, args)
            versions = {"apache-tvm": line.tvm_version} if line.tvm_version else {}
            shown = f"{name} {msgspec.json.encode(args).decode()}"
            tasks[key] = ForeignTask("autotvm", shown, workload, why, target, [], versions)
        costs, error, seconds, stamp = result
        tasks[key].trials.append(
            ForeignTrial(
                number,
                {knob: value_of(value) for knob, _, value in entity},
                entity,
                **measured(path, number, costs, error),
                run_seconds=seconds,
                time=stamp,
            )
        )
    return list(tasks.values())


def _parts(path: Path, number: int, line: _Line) -> tuple[list[Any], Measured, Entity]:
    """What the task was, what measuring gave, and the config, in either version."""
    if line.config is not None and line.result is not None:
        return line.input, line.result, line.config.entity
    if line.i and line.r is not None:
        try:
            return line.i, line.r, msgspec.convert(line.i[-1], _OldConfig).e
        except msgspec.ValidationError as error:
            damaged(path, number, error)
    damaged(path, number, "it is no record of AutoTVM 0.1 or 0.2")


def _task(path: Path, number: int, given: list[Any]) -> tuple[dict[str, Any], str, list[Any]]:
    if len(given) < 4 or not isinstance(given[1], str) or not isinstance(given[2], list):
        damaged(path, number, "its task is not (target, name, arguments, keyword arguments)")
    if not isinstance(given[0], str | dict):
        damaged(path, number, f"its target is {given[0]!r}")
    try:
        return parse_target(given[0]), given[1], given[2]
    except ValueError as error:
        damaged(path, number, error)


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
        raise InvalidConfig(f"the entity is none of this space: {error}") from None
