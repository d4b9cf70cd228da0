"""Small logs made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from searchlab.log.format import Header, Record, RunEnd
from searchlab.log.writer import LogWriter
from searchlab.plugins import Plugin
from searchlab.records import Failure

WORKLOAD = "gemm:100x100x50"
"""One million FLOP: a run of one millisecond is 1 GFLOPS."""


def header(strategy: str, seed: int = 0, **changes: Any) -> Header:
    fields: dict[str, Any] = {
        "workload": WORKLOAD,
        "space": Plugin("knob"),
        "fingerprint": "f",
        "policy": Plugin(strategy),
        "seed": seed,
        "batch": 1,
        "target": {"kind": "llvm"},
        "measure": {"repeats": 1},
    }
    return Header(**{**fields, **changes})


def write(
    directory: Path,
    strategy: str,
    seed: int,
    gflops: Sequence[float | Failure],
    *,
    spent: Sequence[float] = (0.0, 0.0, 0.0, 1.0),
    ended: bool | float = False,
    shared: Sequence[str] = (),
    **changes: Any,
) -> Path:
    """A log of a run that found ``gflops``, or failed; ``spent``: seconds to propose, train, build, run each trial.

    ended: whether the run then ended by itself, or the seconds that limited it. shared: names of its first configs,
    which other runs may have too; the others are those of this run alone.
    """
    new_header = header(strategy, seed, **changes)
    path = directory / f"{new_header.workload.replace(':', '-')}-{new_header.space.name}-{new_header.name}-{seed}.jsonl"
    writer = LogWriter(path, new_header)
    propose, train, build, run = spent
    for index, value in enumerate(gflops):
        failure = value if isinstance(value, str) else None
        writer.append(
            Record(
                index=index,
                config={"of": shared[index]}
                if index < len(shared)
                else {"tile": [index, 1], "of": f"{new_header.name} {seed}"},
                seconds=() if isinstance(value, str) else (1e-3 / value,),
                failure=failure,
                propose_seconds=propose,
                train_seconds=train,
                build_seconds=build,
                run_seconds=run,
            )
        )
    if ended:
        writer.append(RunEnd(trial_count=len(gflops), seconds=None if ended is True else ended))
    writer.close()
    return path
