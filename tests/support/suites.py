"""A small suite: complete tables of real spaces with synthetic times."""

from __future__ import annotations

from pathlib import Path

from searchlab.conformance import toys
from searchlab.conformance.toys import SimulateFunction
from searchlab.log.format import Header, Record
from searchlab.log.writer import LogWriter, compress_log
from searchlab.plugins import Plugin
from searchlab.records import Trial
from searchlab.space import SPACES
from searchlab.target import resolve_target
from searchlab.workload import parse_workload

TABLES: dict[str, tuple[str, str, str, int, SimulateFunction]] = {
    "gemm-4x5x6-knob-1t": ("dev", "gemm:4x5x6", "knob-template", 1, toys.simulate_smooth),
    "gemm-16x16x16-guided-1t": ("test", "gemm:16x16x16", "guided-gemm", 1, toys.simulate_smooth),
    "gemm-16x16x16-guided-2t": ("test", "gemm:16x16x16", "guided-gemm", 2, toys.simulate_smooth),
    "gemm-4x6x5-knob-1t": ("test", "gemm:4x6x5", "knob-template", 1, toys.simulate_flaky),
}
"""Name -> split, workload, space, threads, times. Two tables are of one workload; the last holds failures."""


def write_suite(directory: Path, *, trials: int = 12, seeds: int = 3) -> Path:
    """Write the small suite to ``directory``, without cards, manifest and baselines."""
    (directory / "tables").mkdir(parents=True)
    lines = ['version = "mini"', 'title = "a small suite"', 'licence = "CC0-1.0"']
    lines += [f"trials = {trials}", f"seeds = {seeds}"]
    for name, (split, workload, space, threads, cost) in TABLES.items():
        lines += ["[[tables]]", f'name = "{name}"', f'split = "{split}"', f'workload = "{workload}"']
        lines += [f'space = {{ name = "{space}", options = {{}} }}', f"threads = {threads}"]
        _write_table(directory / "tables" / name, workload, Plugin(space), threads, cost)
    (directory / "suite.toml").write_text("\n".join(lines) + "\n")
    return directory


def _write_table(path: Path, workload: str, plugin: Plugin, threads: int, cost: SimulateFunction) -> None:
    target = resolve_target({"kind": "llvm", "mcpu": "haswell", "num-cores": threads})
    space = SPACES.make(plugin, parse_workload(workload), target)
    log = path.with_name(path.name + ".jsonl")
    header = Header(
        workload=workload,
        space=plugin,
        fingerprint=space.fingerprint,
        policy=Plugin("random"),
        seed=0,
        batch=32,
        target=target.to_json(),
        measure={"kind": "local"},
        label="table",
        space_size=space.size(),
        workers=2,
        host={"cpu": "made up"},
        versions={"searchlab": "0"},
        created_at=1.0,
    )
    writer = LogWriter(log, header, durable=False)
    for index, config in enumerate(space.enumerate()):
        writer.append(Record.from_trial(Trial(index, config, cost(config))))
    writer.close()
    compress_log(log, log.with_suffix(".parquet"))
