"""Small surrogates of toy spaces."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec

from searchlab.log.format import Record
from searchlab.log.header import Header
from searchlab.log.writer import LogWriter
from searchlab.measure.surrogate.manifest import Fit, Gate, ModelSettings, PolicyFit
from searchlab.plugins import Plugin
from searchlab.records import Measurement, Trial
from searchlab.space import Config, Space
from tests.support import toys

SMALL = ModelSettings(members=2, rounds=60, num_leaves=15)
SPACE = "tests.support.toys:Small"


def noisy(config: Config) -> Measurement:
    """A smooth cost; about a tenth of the configs fail, those with two choices of knobs."""
    if config["order"] == "jki" and config["unroll"] == 512:
        return Measurement(failure="run_timeout", message="made up", build_seconds=0.5, run_seconds=3.0)
    seconds = toys.smooth(config).seconds[0]
    return Measurement((seconds, 1.02 * seconds, 1.04 * seconds), build_seconds=0.25, run_seconds=20 * seconds)


def write_log(path: Path, space: Space | None = None, cost: toys.Cost = noisy, **changes: Any) -> Path:
    """A log of all configs of a toy space, as a table of it that random search made."""
    space = space or toys.Small()
    configs = list(space.enumerate())
    fields: dict[str, Any] = {
        "workload": str(space.workload), "space": Plugin(SPACE), "fingerprint": space.fingerprint,
        "policy": Plugin("random"), "seed": 0, "batch": 1, "target": space.target.to_json(),
        "measure": {"kind": "local"}, "workers": 2, "space_size": len(configs),
    }  # fmt: skip
    writer = LogWriter(path, Header(**{**fields, **changes}))
    for index, config in enumerate(configs):
        writer.append(Record.of(Trial(index, config, cost(config)), 0.0, 0.0))
    writer.close()
    return path


def passed_gate(settings: ModelSettings = SMALL, **changes: Any) -> Gate:
    """A gate that a surrogate of toys.Small passed."""
    fit = Fit(trained_on=50, tested_on=70, r2=0.95, tau=0.9, outcomes=1.0, spread=0.01)
    policies = [PolicyFit(policy="random", table=0.8, surrogate=0.81, left_out=None, error=0.01)]
    gate = Gate(
        table="small.jsonl", digest="0" * 64, workload="gemm:64x64x64", space=Plugin(SPACE), configs=120,
        settings=settings, fit=fit, seeds=3, trials=20, policies=policies, spearman=0.97, area_error=0.01,
        spearman_left_out=0.95, area_error_left_out=0.015,
    )  # fmt: skip
    return msgspec.structs.replace(gate, **changes)


def log_seconds(measurement: Measurement) -> float:
    return math.log(measurement.cost)
