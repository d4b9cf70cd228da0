"""Export of logs to IOHprofiler: for each strategy and workload, a JSON file and data files with all evaluations.

The format is that of IOHexperimenter 0.3.5 and later, which IOHanalyzer and iohinspector read. A log is a run, its
workload the function, its seed the instance, its number of knobs the dimension. A failed trial is an evaluation with
the value ``inf``, which reaches no target. Experiment attributes are omitted, because iohinspector evaluates their
values as Python, and a log may come from an untrusted source.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from ..errors import SearchlabError
from ..log.format import Log, workload_name

VERSION = "0.3.5"


def export(logs: Sequence[Log], out: Path) -> list[str]:
    """Write logs to a new directory, with a folder for each strategy.

    Returns:
        A sentence for each log that was omitted because it contains no trials.

    Raises:
        SearchlabError: If ``out`` exists, or if no log contains a trial.
    """
    if out.exists():
        raise SearchlabError(f"{out} already exists; choose a different directory as --out")
    notes = [f"{log.path} contains no trials and was omitted" for log in logs if not log.records]
    functions: dict[str, int] = {}
    runs: dict[str, dict[str, dict[int, list[Log]]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for log in sorted((log for log in logs if log.records), key=lambda log: log.header.seed):
        function = workload_name(log.header)
        functions.setdefault(function, len(functions) + 1)
        dimension = max(len(record.config) for record in log.records)
        runs[f"{log.header.name} in {log.header.space_name}"][function][dimension].append(log)
    if not runs:
        raise SearchlabError(f"nothing to export: {'; '.join(notes)}")
    for index, (strategy, by_function) in enumerate(sorted(runs.items()), 1):
        for function, by_dimension in by_function.items():
            _write(out / f"strategy{index}", strategy, functions[function], function, by_dimension)
    return notes


def _write(folder: Path, strategy: str, number: int, function: str, by_dimension: dict[int, list[Log]]) -> None:
    name = function.replace(":", "_").replace("/", "_")
    data = f"data_f{number}_{name}"
    (folder / data).mkdir(parents=True, exist_ok=True)
    scenarios = []
    for dimension, logs in sorted(by_dimension.items()):
        path = f"{data}/IOHprofiler_f{number}_DIM{dimension}.dat"
        (folder / path).write_text("".join(map(_data, logs)))
        scenarios.append({"dimension": dimension, "path": path, "runs": [_run(log) for log in logs]})
    content = {
        "version": VERSION,
        "suite": "searchlab",
        "function_id": number,
        "function_name": name,
        "maximization": False,
        "algorithm": {"name": strategy, "info": ""},
        "attributes": ["evaluations", "raw_y", "elapsed"],
        "scenarios": scenarios,
    }
    (folder / f"IOHprofiler_f{number}_{name}.json").write_bytes(msgspec.json.format(msgspec.json.encode(content)))


def _data(log: Log) -> str:
    """Return every evaluation: its number, starting at 1, its cost, and the time charged up to its end, in seconds."""
    rows = enumerate(zip(log.costs.tolist(), log.elapsed_seconds.tolist(), strict=True), 1)
    return "evaluations raw_y elapsed\n" + "".join(f"{index} {cost!r} {at:.7g}\n" for index, (cost, at) in rows)


def _run(log: Log) -> dict[str, Any]:
    """Describe a run by its best evaluation, whose value is the largest float if all evaluations failed.

    ``x`` is empty, because only the space knows each choice's position.
    """
    index = int(log.costs.argmin())
    best = min(float(log.costs[index]), sys.float_info.max)
    return {"instance": log.header.seed, "evals": len(log.costs), "best": {"evals": index + 1, "y": best, "x": []}}
