"""Measures, for each strategy, the CPU seconds of a run over recorded tables: the cost of a study over tables.

    python studies/benchmarks/cpu.py TABLE... [--study FILE] [--seeds 3] [--out DIR] [--compare DIR] [--json FILE]

Each strategy of the study (by default, the suite's baselines) searches each table from each seed, one run after another
in this process. The CPU seconds include all threads. They exclude planning, reading the table, and a first run of each
strategy over each table, which imports its libraries. ``--out`` keeps the logs. With ``--compare DIR``, the new logs
are compared with those kept earlier in DIR, and those that differ in anything but clock times are reported: optimising
a strategy must not change any trial.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from searchlab.log.read import read_header, read_log
from searchlab.run.loop import search
from searchlab.run.study import Study

CLOCKS = {"propose_seconds": 0.0, "train_seconds": 0.0, "feature_seconds": 0.0, "recorded_at": 0.0}


def study_of(table: Path, path: Path, seeds: int, trials: int, only: Sequence[str]) -> Study:
    """Return a study of one table with the strategies in the study file ``path``."""
    header = read_header(table)
    data = tomllib.loads(path.read_text())
    settings: dict[str, Any] = {key: data[key] for key in ("policies", "cost_models", "batch") if key in data}
    entries = [(entry if isinstance(entry, dict) else {"name": entry}) for entry in settings["policies"]]
    settings["policies"] = [entry for entry in entries if not only or entry["name"] in only]
    return Study.from_dict(
        {
            **settings,
            "workloads": [header.workload],
            "spaces": [{"name": header.space.name, "options": header.space.options}],
            "seeds": seeds,
            "trials": trials,
            "measure": {"kind": "table", "path": str(table.resolve())},
        }
    )


def cpu_seconds(study: Study, out: Path) -> Iterator[tuple[str, float]]:
    """Yield each run's strategy and CPU seconds."""
    runs = study.plan().runs
    warm: set[str] = set()
    with tempfile.TemporaryDirectory() as scratch, runs[0].settings.make(runs[0].space.target, {}) as measurer:
        for run in runs:
            if run.strategy.name not in warm:
                search(replace(run, log_path=Path(scratch) / run.log_path), measurer)
                warm.add(run.strategy.name)
            start = time.process_time()
            search(replace(run, log_path=out / run.log_path), measurer)
            yield run.strategy.name, time.process_time() - start


def difference(old: Path, new: Path) -> str:
    """Return the first trial in which two logs differ in anything but clock times, or "" if there is none."""
    before, after = read_log(old).records, read_log(new).records
    for old_record, new_record in zip(before, after, strict=False):
        if _timeless(old_record) != _timeless(new_record):
            return f"trial {old_record.index}"
    return "" if len(before) == len(after) else f"{len(before)} and {len(after)} trials"


def _timeless(record: Any) -> Any:
    model = record.model_quality
    if model is not None:
        model = msgspec.structs.replace(model, train_seconds=0.0, predict_seconds=0.0)
    return msgspec.json.encode(msgspec.structs.replace(record, **CLOCKS, model_quality=model))


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="+", type=Path, metavar="TABLE")
    parser.add_argument("--study", type=Path, default=Path(__file__).parents[1] / "suite" / "baselines.toml")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--trials", type=int, default=128)
    parser.add_argument(
        "--policies", nargs="+", default=[], metavar="P", help="the study's policies to use (default: all)"
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="directory in which to keep the logs; it must not contain any yet"
    )
    parser.add_argument(
        "--compare", type=Path, metavar="DIR", help="directory of logs that may differ only in clock times"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="file to which the seconds are also written")
    options = parser.parse_args(argv)
    seconds_by_strategy: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        out = options.out or Path(scratch)
        for table in options.tables:
            study = study_of(table, options.study, options.seeds, options.trials, options.policies)
            for strategy, seconds in cpu_seconds(study, out / table.name.split(".")[0]):
                seconds_by_strategy.setdefault(strategy, []).append(seconds)
        print(f"{'strategy':32} CPU s per run  least     most")
        for strategy, times in seconds_by_strategy.items():
            print(f"{strategy:32} {statistics.mean(times):11.3f} {min(times):8.3f} {max(times):8.3f}")
        print(f"{'all of them':32} {sum(map(statistics.mean, seconds_by_strategy.values())):11.3f}")
        logs = sorted(log.relative_to(out) for log in out.rglob("*.jsonl"))
        if options.compare:
            common = [log for log in logs if (options.compare / log).exists()]
            differing = {log: difference(options.compare / log, out / log) for log in common}
            for log in common:
                if differing[log]:
                    print(f"{log} differs: {differing[log]}")
            same = sum(not differing[log] for log in common)
            print(f"{same} of {len(logs)} logs agree except for clock times, {len(logs) - len(common)} are new")
    if options.json:
        options.json.write_text(json.dumps(seconds_by_strategy, indent=1) + "\n")


if __name__ == "__main__":
    main()
