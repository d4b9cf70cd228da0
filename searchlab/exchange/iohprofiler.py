"""Exporting logs to IOHprofiler: each strategy and workload gets a JSON file and a data file with all evaluations.

The format is that of IOHexperimenter 0.3.5 and later, which IOHanalyzer and iohinspector can read. A log is a run, its
workload is the function, and its number of knobs is the dimension. A failed trial is an evaluation with the value
``inf``, which reaches no target. Experiment attributes are omitted, because iohinspector evaluates their values as
Python, and a log may come from an untrusted source.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import SearchlabError
from ..log.format import Log, workload_name

VERSION = "0.3.5"


def export(logs: Sequence[Log], out: Path) -> list[str]:
    """Write logs to a new directory, with a folder for each strategy.

    Returns:
        A sentence for each omitted log.

    Raises:
        SearchlabError: If ``out`` exists, or if no log contains a trial.
    """
    if out.exists():
        raise SearchlabError(f"{out} already exists; choose a different directory as --out")
    numbers: dict[str, int] = {}
    strategies: dict[tuple[str, str], dict[int, list[Log]]] = {}
    notes = []
    for log in logs:
        function = workload_name(log.header)
        numbers.setdefault(function, len(numbers) + 1)
        if not log.records:
            notes.append(f"{log.path} contains no trials and was omitted")
            continue
        dimension = max(len(record.config) for record in log.records)
        algorithm = f"{log.header.name} in {log.header.space_name}"
        strategies.setdefault((algorithm, function), {}).setdefault(dimension, []).append(log)
    if not strategies:
        raise SearchlabError(f"nothing to export: {'; '.join(notes)}")
    folders: dict[str, str] = {}
    for (algorithm, function), by_dimension in strategies.items():
        folder = folders.setdefault(algorithm, f"strategy{len(folders) + 1}")
        _write(out / folder, algorithm, numbers[function], function, by_dimension)
    return notes


def _write(folder: Path, algorithm: str, number: int, function: str, by_dimension: dict[int, list[Log]]) -> None:
    name = function.replace(":", "_")
    data = f"data_f{number}_{name}"
    (folder / data).mkdir(parents=True, exist_ok=True)
    scenarios: list[dict[str, Any]] = []
    for dimension, logs in sorted(by_dimension.items()):
        path = f"{data}/IOHprofiler_f{number}_DIM{dimension}.dat"
        logs = sorted(logs, key=lambda log: log.header.seed)
        (folder / path).write_text("".join(_data(log) for log in logs))
        scenarios.append({"dimension": dimension, "path": path, "runs": [_run(log) for log in logs]})
    header = logs[0].header
    content = {
        "version": VERSION,
        "suite": "searchlab",
        "function_id": number,
        "function_name": name,
        "maximization": False,
        "algorithm": {"name": algorithm, "info": header.cost_model.name if header.cost_model else ""},
        "attributes": ["evaluations", "raw_y", "elapsed"],
        "scenarios": scenarios,
    }
    (folder / f"IOHprofiler_f{number}_{name}.json").write_text(json.dumps(content, indent=1) + "\n")


def _data(log: Log) -> str:
    """Return every evaluation: its number, starting at 1, its time, and the time charged up to its end, in seconds."""
    rows = zip(log.costs.tolist(), log.elapsed.tolist(), strict=True)
    return "evaluations raw_y elapsed\n" + "".join(
        f"{number} {cost!r} {elapsed:.7g}\n" for number, (cost, elapsed) in enumerate(rows, 1)
    )


def _run(log: Log) -> dict[str, Any]:
    """Describe a run by its best evaluation, whose value is the largest float if all evaluations failed.

    ``x`` is empty, because only the space knows each choice's position.
    """
    index = int(log.costs.argmin())
    best = min(float(log.costs[index]), sys.float_info.max)
    return {"instance": log.header.seed, "evals": len(log.costs), "best": {"evals": index + 1, "y": best, "x": []}}
