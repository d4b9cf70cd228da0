"""What is read from a log: by searchlab, and by a reader that was written from docs/design/log-format.md alone."""

from __future__ import annotations

import gzip
import json
import math
import statistics
from collections import Counter
from pathlib import Path
from typing import Any

from pyarrow import parquet

from searchlab.log.format import Log


def seen(log: Log) -> dict[str, Any]:
    """By searchlab."""
    return {
        "workload": log.header.workload,
        "policy": log.header.policy.name,
        "costs": [cost if math.isfinite(cost) else None for cost in log.costs.tolist()],
        "failures": [record.failure for record in log.records],
        "starts": log.batch_starts,
        "charged": log.charged_seconds.sum(axis=1).tolist(),
        "finalists": [finalist.index for finalist in log.finalist_times.finalists] if log.finalist_times else [],
        "ended": log.run_end is not None,
    }


def read(path: Path) -> dict[str, Any]:
    """By a program that knows the specification only."""
    if path.suffix == ".parquet":
        header = json.loads(parquet.read_metadata(path).metadata[b"searchlab"])
        rows = parquet.read_table(path).to_pylist()
        lines = [{"kind": "trial", "index": index, **row} for index, row in enumerate(rows)]
    else:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        header, *lines = [json.loads(line) for line in data.decode().split("\n")[:-1]]
    assert header["searchlab_log"] in ("1.0", "1.2") and header["kind"] == "header"
    trials = [line for line in lines if line["kind"] == "trial"]
    assert [trial["index"] for trial in trials] == list(range(len(trials)))
    batches = [trial["batch"] for trial in trials]
    sizes = Counter(batches)
    last = [line for line in lines if line["kind"] != "trial" and line["trials"] == len(trials)]
    return {
        "workload": header["workload"],
        "policy": header["policy"]["name"],
        "costs": [_cost(trial) for trial in trials],
        "failures": [trial.get("failure") for trial in trials],
        "starts": [at for at, batch in enumerate(batches) if at == 0 or batch != batches[at - 1]],
        "charged": [
            sum(trial.get(f"{part}_seconds", 0.0) for part in ("propose", "train", "run"))
            + trial.get("build_seconds", 0.0) / min(header.get("workers", 1), sizes[batch])
            for trial, batch in zip(trials, batches, strict=True)
        ],
        "finalists": [
            finalist["index"] for line in last if line["kind"] == "finalists" for finalist in line["finalists"]
        ],
        "ended": any(line["kind"] == "ended" for line in last),
    }


def _cost(trial: dict[str, Any]) -> float | None:
    if trial.get("failure") or not trial.get("seconds"):
        return None
    return (statistics.fmean if trial.get("statistic") == "mean" else statistics.median)(trial["seconds"])
