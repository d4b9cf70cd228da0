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

FORMAT_VERSION = "0.3.5"


def export(logs: Sequence[Log], out_path: Path) -> list[str]:
    """Write logs to a new directory, with a folder for each strategy.

    Returns:
        A sentence for each log that was omitted because it contains no trials.

    Raises:
        SearchlabError: If ``out_path`` exists, or if no log contains a trial.
    """
    if out_path.exists():
        raise SearchlabError(f"{out_path} already exists; choose a different directory as --out")
    omissions = [f"{log.path} contains no trials and was omitted" for log in logs if not log.records]
    function_ids: dict[str, int] = {}
    logs_by_strategy: dict[str, dict[str, dict[int, list[Log]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    for log in sorted((log for log in logs if log.records), key=lambda log: log.header.seed):
        function = workload_name(log.header)
        function_ids.setdefault(function, len(function_ids) + 1)
        dimension = max(len(record.config) for record in log.records)
        logs_by_strategy[f"{log.header.name} in {log.header.space_name}"][function][dimension].append(log)
    if not logs_by_strategy:
        raise SearchlabError(f"nothing to export: {'; '.join(omissions)}")
    for strategy_number, (strategy, logs_by_function) in enumerate(sorted(logs_by_strategy.items()), 1):
        for function, logs_by_dimension in logs_by_function.items():
            strategy_dir = out_path / f"strategy{strategy_number}"
            _write_function(strategy_dir, strategy, function_ids[function], function, logs_by_dimension)
    return omissions


def _write_function(
    strategy_dir: Path, strategy: str, function_id: int, function: str, logs_by_dimension: dict[int, list[Log]]
) -> None:
    function_name = function.replace(":", "_").replace("/", "_")
    data_dir = f"data_f{function_id}_{function_name}"
    (strategy_dir / data_dir).mkdir(parents=True, exist_ok=True)
    scenarios = []
    for dimension, logs in sorted(logs_by_dimension.items()):
        data_path = f"{data_dir}/IOHprofiler_f{function_id}_DIM{dimension}.dat"
        (strategy_dir / data_path).write_text("".join(map(_format_evaluations, logs)))
        scenarios.append({"dimension": dimension, "path": data_path, "runs": [_describe_run(log) for log in logs]})
    content = {
        "version": FORMAT_VERSION,
        "suite": "searchlab",
        "function_id": function_id,
        "function_name": function_name,
        "maximization": False,
        "algorithm": {"name": strategy, "info": ""},
        "attributes": ["evaluations", "raw_y", "elapsed"],
        "scenarios": scenarios,
    }
    content_bytes = msgspec.json.format(msgspec.json.encode(content))
    (strategy_dir / f"IOHprofiler_f{function_id}_{function_name}.json").write_bytes(content_bytes)


def _format_evaluations(log: Log) -> str:
    """Return every evaluation: its number, starting at 1, its cost, and the time charged up to its end, in seconds."""
    evaluations = enumerate(zip(log.costs.tolist(), log.elapsed_seconds.tolist(), strict=True), 1)
    lines = [f"{number} {cost!r} {seconds:.7g}\n" for number, (cost, seconds) in evaluations]
    return "evaluations raw_y elapsed\n" + "".join(lines)


def _describe_run(log: Log) -> dict[str, Any]:
    """Describe a run by its best evaluation, whose value is the largest float if all evaluations failed.

    ``x`` is empty, because only the space knows each choice's position.
    """
    best_index = int(log.costs.argmin())
    best_cost = min(float(log.costs[best_index]), sys.float_info.max)
    best = {"evals": best_index + 1, "y": best_cost, "x": []}
    return {"instance": log.header.seed, "evals": len(log.costs), "best": best}
