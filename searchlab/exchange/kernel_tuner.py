"""Exporting a log to Kernel Tuner: results in the T4 format, or the cache file of its simulation mode.

T4: Tørring et al., "Towards a Benchmarking Suite for Kernel Tuners" (IPDPSW 2023); the schema is version
1.0.0, of kernel_tuner 1.5. Times are in milliseconds, as in Kernel Tuner.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..errors import SearchlabError
from ..log.format import Log, Record
from ..records import Failure
from .foreign import moment

VERSION = "1.0.0"

INVALIDITY: dict[Failure, str] = {
    "invalid": "constraints",
    "build_error": "compile",
    "build_timeout": "timeout",
    "run_error": "runtime",
    "run_timeout": "timeout",
    "crash": "runtime",
    "wrong_answer": "correctness",
}
"""The names of failures in T4."""

FAILED_CONFIG: dict[str, str] = {"constraints": "InvalidConfig", "compile": "CompilationFailedConfig"}
"""Instead of a time, a cache file has these words for failures, and RuntimeFailedConfig for any other failure."""


def export_t4(log: Log, out: Path) -> list[str]:
    """Write the trials of ``log`` to ``out``. Facts about the run are under ``metadata``."""
    header = log.header
    run = {"workload": header.workload, "space": header.space.name, "policy": header.policy.name, "seed": header.seed}
    content = {
        "schema_version": VERSION,
        "metadata": {
            **run,
            "target": header.target,
            "host": header.host,
            "objective_unit": "ms",
            "timeunit": "milliseconds",
        },
        "results": [_result(record) for record in log.records],
    }
    _write(out, content)
    return []


def _result(record: Record) -> dict[str, Any]:
    measured = record.measurement
    failed = measured.failure is not None
    return {
        "timestamp": moment(record.time).isoformat(),
        "configuration": record.config,
        "times": {
            "compilation_time": 1e3 * record.build_seconds,
            "benchmark": 1e3 * record.run_seconds,
            "framework": 1e3 * record.train_seconds,
            "search_algorithm": 1e3 * record.propose_seconds,
            "validation": 0.0,
            "runtimes": [1e3 * second for second in record.seconds],
        },
        "invalidity": INVALIDITY[record.failure] if record.failure else "correct",
        "correctness": 0 if record.failure == "wrong_answer" else 1,
        "measurements": [] if failed else [{"name": "time", "value": 1e3 * measured.cost, "unit": "ms"}],
        "objectives": ["time"],
    }


def export_cache(log: Log, out: Path) -> list[str]:
    """Write ``log`` to ``out`` as a cache file, to be replayed with ``simulation_mode=True``.

    A tile becomes a word, since a parameter is a number or a word there. The values of a parameter are those in the
    trials. Raises SearchlabError if trials have different knobs, since Kernel Tuner has one set of parameters.
    """
    names = list(log.records[0].config) if log.records else []
    entries: dict[str, Any] = {}
    params: dict[str, dict[Any, None]] = {name: {} for name in names}
    for record in log.records:
        if set(record.config) != set(names):
            raise SearchlabError(
                f"{log.path}: trial {record.index} has other knobs than trial 0, but a cache file of Kernel Tuner has "
                f"one set of parameters; export it with --to kernel-tuner"
            )
        choice = {name: _parameter(record.config[name]) for name in names}
        for name, value in choice.items():
            params[name][value] = None
        result = _result(record)
        failed = FAILED_CONFIG.get(result["invalidity"], "RuntimeFailedConfig")
        key = ",".join(map(str, choice.values()))
        if key not in entries:  # the first measurement of a config counts, as in a table
            entries[key] = {
                **choice,
                "time": 1e3 * record.measurement.cost if record.failure is None else failed,
                "times": result["times"]["runtimes"], "compile_time": result["times"]["compilation_time"],
                "verification_time": 0.0, "benchmark_time": result["times"]["benchmark"],
                "strategy_time": result["times"]["search_algorithm"],
                "framework_time": result["times"]["framework"], "timestamp": result["timestamp"],
            }  # fmt: skip
    _write(out, {
        "device_name": str(log.header.host.get("cpu") or log.header.target.get("mcpu", log.header.target["kind"])),
        "kernel_name": log.header.workload, "problem_size": 1, "tune_params_keys": names,
        "tune_params": {name: list(values) for name, values in params.items()}, "objective": "time", "cache": entries,
    })  # fmt: skip
    return []


def _parameter(value: Any) -> Any:
    """A choice as a parameter. Keys of the cache join parameters with commas, so a tile is written without commas."""
    return "x".join(map(str, value)) if isinstance(value, list | tuple) else value


def _write(out: Path, content: dict[str, Any]) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(content, indent=1) + "\n")
