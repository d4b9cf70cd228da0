"""Logs that tests write and read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from searchlab.conformance.toys import SimulateFunction
from searchlab.log.format import Header, Record
from searchlab.log.writer import LogWriter
from searchlab.plugins import Plugin
from searchlab.records import Measurement, Trial
from searchlab.space import Config, Space

HEADER = Header(
    workload="gemm:64x64x64",
    space=Plugin("toy"),
    fingerprint="f",
    policy=Plugin("random", {"x": 1}),
    seed=0,
    batch=4,
    target={"kind": "llvm"},
    measure={"kind": "local"},
    host={"cpu": "x"},
    versions={"numpy": "2"},
    created_at=1.0,
)


def make_record(index: int, seconds: float = 1e-3) -> Record:
    measured = Measurement((seconds, 2 * seconds, seconds), build_seconds=0.1, run_seconds=0.2, program="ab")
    return Record.from_trial(
        Trial(index, Config({"tile": (4, 2), "order": "ijk"}), measured), propose_seconds=0.01, train_seconds=0.02
    )


def write_trials(path: Path, count: int) -> bytes:
    writer = LogWriter(path, HEADER)
    for index in range(count):
        writer.append(make_record(index))
    writer.sync()
    writer.close()
    return path.read_bytes()


def write_table(path: Path, space: Space, cost: SimulateFunction, *, counted: bool = False) -> Path:
    """Write a log of every config of a toy space. counted: whether the log states that it is complete."""
    header = Header(
        workload=str(space.workload),
        space=Plugin("toy"),
        fingerprint=space.fingerprint,
        policy=Plugin("grid"),
        seed=0,
        batch=1,
        target=space.target.to_json(),
        measure={},
        space_size=space.size() if counted else None,
    )
    writer = LogWriter(path, header)
    for index, config in enumerate(space.enumerate()):
        writer.append(Record.from_trial(Trial(index, config, cost(config))))
    writer.close()
    return path


def read_deterministic_part(log: Path) -> list[dict[str, Any]]:
    """Return the contents of a log except for clock times and the policy's seconds."""
    timing = {"propose_seconds", "train_seconds", "predict_seconds", "feature_seconds", "time", "created"}
    lines: list[dict[str, Any]] = json.loads(
        f"[{','.join(log.read_text().splitlines())}]",
        object_hook=lambda fields: {key: value for key, value in fields.items() if key not in timing},
    )
    return lines


def write_run(path: Path, space: Space, cost: SimulateFunction, first: int, count: int, **header: Any) -> Path:
    """Write a log of ``count`` configs of a toy space, in order, beginning with number ``first``."""
    facts = {
        "workload": str(space.workload),
        "space": Plugin(f"{type(space).__module__}:{type(space).__name__}"),
        "fingerprint": space.fingerprint,
        "target": space.target.to_json(),
        "measure": {},
        "host": {},
        **header,
    }
    with LogWriter(path, msgspec.structs.replace(HEADER, **facts), durable=False) as writer:
        logged_count = len(writer.log.records)
        for index, config in enumerate(list(space.enumerate())[first : first + count]):
            if index >= logged_count:
                writer.append(Record.from_trial(Trial(index, config, cost(config))))
    return path
