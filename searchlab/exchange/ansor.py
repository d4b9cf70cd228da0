"""Ansor's records (``tvm.auto_scheduler``), JSON lines of version v0.6.

What is lost: the transform steps have no ``s_tir`` schedule, so a record serves analysis, and neither replay nor warm
start; a config holds each step as a word. Hardware parameters, layout rewrites and the target of the host are dropped.
The one time Ansor gives, of building and running together, is counted as running.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import msgspec

from ..errors import SearchlabError
from ..space import Space, Value
from ..workload import Workload
from .foreign import ForeignTask, ForeignTrial, Line, Measured, lines
from .tasks import GUESS, workload_of

Step = list[Any]


class _Record(msgspec.Struct):
    i: tuple[list[Any], tuple[list[Any], list[Step]]]
    r: Measured
    v: str


def read(path: Path) -> list[ForeignTask]:
    """The tasks in the records at ``path``. Raises SearchlabError, naming the line."""
    decoder = msgspec.json.Decoder(_Record)
    tasks: dict[tuple[str, str], ForeignTask] = {}
    for line in lines(path):
        record = line.decode(decoder)
        task, (_, steps) = record.i
        if len(task) < 2 or not isinstance(task[0], str) or not isinstance(task[1], str):
            line.damaged("its task is not (workload key, target, ...)")
        key = (task[0], task[1])
        if key not in tasks:
            target = line.target(task[1])
            workload, why = _workload(line, task[0])
            tasks[key] = ForeignTask("ansor", task[0], workload, why, target, [])
        tasks[key].trials.append(line.trial(_config(line, steps), None, record.r))
    return list(tasks.values())


def _config(line: Line, steps: list[Step]) -> dict[str, Value]:
    """Each transform step by its position and kind, as ``step3_SP``; its arguments as JSON."""
    config: dict[str, Value] = {}
    for position, step in enumerate(steps):
        if not step or not isinstance(step[0], str):
            line.damaged(f"its transform step {position} has no kind")
        config[f"step{position}_{step[0]}"] = msgspec.json.encode(step[1:]).decode()
    return config


def _workload(line: Line, key: str) -> tuple[Workload | None, str]:
    """The workload of a key, which is a function's name or a hash, with arguments; or None, and the reason."""
    try:
        name, *args = msgspec.json.decode(key, type=list[Any])
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        line.damaged(f"its workload key {key!r} is no JSON list: {error}")
    if not isinstance(name, str):
        line.damaged(f"its workload key {key!r} does not start with a name")
    if len(name) == 32 and all(c in "0123456789abcdef" for c in name):
        return None, f"Ansor names the task by the hash {name} of its computation only; {GUESS}"
    return workload_of(name, args)


def config_in(space: Space, task: ForeignTask, trial: ForeignTrial) -> NoReturn:
    """Always raises SearchlabError."""
    raise SearchlabError(
        "the transform steps of an Ansor record have no schedule in today's TVM, so they are no config of any space; "
        "import it without --space, for analysis"
    )
