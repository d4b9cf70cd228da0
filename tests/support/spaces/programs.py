"""Programs of spaces: build and run them, replay their traces, and compare processes."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import tvm
from tvm.s_tir import Schedule

from searchlab.errors import InvalidConfig
from searchlab.space import Config, Space
from searchlab.target import Target
from searchlab.workload import Workload


def assert_right(workload: Workload, sch: Schedule, target: Target) -> None:
    """Assert that the program of ``sch``, built for this CPU, computes the same as NumPy."""
    module = tvm.compile(sch.mod, target=target.tvm).jit()
    inputs = workload.inputs()
    *_, shape = workload.shapes.values()
    result = tvm.runtime.tensor(np.full(shape, 77, workload.out_dtype))
    module["main"](*[tvm.runtime.tensor(array) for array in inputs.values()], result)
    rtol, atol = workload.tolerance()
    np.testing.assert_allclose(result.numpy(), workload.reference(inputs), rtol=rtol, atol=atol)


def replay_trace(sch: Schedule, workload: Workload) -> Schedule:
    """A fresh schedule of the workload, with the trace of ``sch`` applied."""
    fresh = Schedule(workload.module)
    sch.trace.apply_to_schedule(fresh, remove_postproc=False)
    return fresh


def valid_configs(space: Space, rng: np.random.Generator, count: int) -> list[Config]:
    """Return the first random configs that have programs."""
    configs: list[Config] = []
    for _ in range(500):
        config = space.sample(rng)
        try:
            space.schedule(config)
        except InvalidConfig:
            continue
        configs.append(config)
        if len(configs) == count:
            return configs
    raise AssertionError(f"500 samples hold only {len(configs)} valid configs")


def fingerprints(space: str, workload: str) -> set[str]:
    """Return the fingerprint and samples of a space (``module:Class``) in processes with different hash seeds."""
    module, _, name = space.partition(":")
    program = (
        "import numpy as np\n"
        "from searchlab.target import resolve_target\n"
        "from searchlab.workload import parse_workload\n"
        f"from {module} import {name}\n"
        f"space = {name}(parse_workload({workload!r}), resolve_target('native'))\n"
        "rng = np.random.default_rng(7)\n"
        "print(space.fingerprint, [space.sample(rng).to_json() for _ in range(5)])\n"
    )
    return {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
        ).stdout
        for seed in ("1", "2")
    }
