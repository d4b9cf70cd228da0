"""Logs that measured something, with made-up times, for a store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from searchlab.log.format import Final, Finalist, Record
from searchlab.log.writer import LogWriter
from searchlab.plugins import Plugin
from searchlab.records import Measurement, Trial
from searchlab.space import Config, Space
from tests.support.logs import HEADER
from tests.support.toys import Cost


def logged(path: Path, seconds: Sequence[float | None], again: Sequence[int] = (), **header: Any) -> Path:
    """A log of a trial for each of ``seconds``, None for one that failed; resumed if it is there.

    again: trials that were measured again at the end, the last of them the fastest then. Trials of equal times are of
    one program.
    """
    with LogWriter(path, msgspec.structs.replace(HEADER, **header), durable=False) as writer:
        for index, one in list(enumerate(seconds))[len(writer.records) :]:
            failed = Measurement(failure="build_error", message="made up", program="never ran")
            measured = failed if one is None else Measurement((one, one, 2 * one), program=f"program {one}")
            writer.append(Record.of(Trial(index, Config({"tile": index}), measured), 0.0, 0.0))
        if again:
            finalists = [Finalist(trial, (1e-3 / place,) * 3) for place, trial in enumerate(again, 1)]
            writer.append(Final(trials=len(seconds), finalists=tuple(finalists)))
    return path


def searched(path: Path, space: Space, cost: Cost, first: int, count: int, **header: Any) -> Path:
    """A log of ``count`` configs of a toy space from the ``first`` on, in order, at their made-up costs."""
    facts = {
        "workload": str(space.workload), "space": Plugin(f"{type(space).__module__}:{type(space).__name__}"),
        "fingerprint": space.fingerprint, "target": space.target.to_json(), "measure": {}, "host": {}, **header,
    }  # fmt: skip
    with LogWriter(path, msgspec.structs.replace(HEADER, **facts), durable=False) as writer:
        for index, config in enumerate(list(space.enumerate())[first : first + count]):
            if index >= len(writer.records):
                writer.append(Record.of(Trial(index, config, cost(config)), 0.0, 0.0))
    return path
