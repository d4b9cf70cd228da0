"""Layers of models as workloads: products with any elementwise operations, and convolutions of all kinds."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax

import searchlab
from searchlab.exchange.exports import export_logs
from searchlab.log.result import load_log
from searchlab.model.inputs import inputs_of, random_inputs
from searchlab.model.tasks import Task, lower, tasks_of
from searchlab.space import SPACES
from searchlab.target import Target
from tests.model import models
from tests.support.spaces.programs import assert_right

GEMM, DEPTHWISE, DILATED, GROUPED = (
    "fused-gemm:6x24x16:nt:add_gelu@",
    "fused-conv2d:1x9x9x8x8x3x3:p1:g8:add_relu_minimum@",
    "fused-conv2d:1x9x9x8x8x3x3:p2:d2:silu@",
    "conv2d:1x9x9x12x8x3x3:s2:p1:g2:bias",
)
SCORES, MIXED = "fused-batch-matmul:2x6x6x16:nt:multiply_add@", "batch-matmul:2x6x16x6"
QUICK = {"kind": "local", "repeat": 1, "min_repeat_ms": 1, "finalists": 0}
FOR_ALL = {"sketch", "knob-template", "trace"}


@pytest.fixture(scope="module")
def tasks() -> dict[str, Task]:
    listed = [*tasks_of(models.layers()), *tasks_of(models.attention())]
    return {re.sub("@.*", "@", task.name): task for task in listed}


@pytest.mark.parametrize(
    ("name", "spaces"),
    [
        (GEMM, {*FOR_ALL, "guided-gemm"}),
        (DEPTHWISE, FOR_ALL),
        (DILATED, {*FOR_ALL, "guided-conv2d"}),
        (GROUPED, FOR_ALL),
        (SCORES, {*FOR_ALL, "guided-gemm"}),
        (MIXED, {*FOR_ALL, "guided-gemm"}),
    ],
)
def test_a_layer_is_a_product_with_its_operations(
    name: str, spaces: set[str], tasks: dict[str, Task], native: Target
) -> None:
    assert spaces <= set(tasks[name].spaces(native))


@pytest.mark.parametrize(
    ("name", "space"),
    [
        (GEMM, "guided-gemm"),
        (GEMM, "knob-template"),
        (GEMM, "trace"),
        (DILATED, "guided-conv2d"),
        (DILATED, "knob-template"),
        (DILATED, "trace"),
        (DEPTHWISE, "knob-template"),
        (DEPTHWISE, "trace"),
        (SCORES, "guided-gemm"),
        (SCORES, "knob-template"),
        (SCORES, "trace"),
    ],
)
def test_programs_apply_the_operations(name: str, space: str, tasks: dict[str, Task], native: Target) -> None:
    workload = tasks[name].workload
    assert workload is not None
    program_space = SPACES.load(space)(workload, native)
    assert_right(workload, program_space.schedule(program_space.sample(np.random.default_rng(0))), native)


def test_a_log_contains_the_operations(tasks: dict[str, Task], tmp_path: Path, native: Target) -> None:
    workload = tasks[GEMM].workload
    log = tmp_path / "gemm.jsonl"
    searchlab.tune(workload, space="guided-gemm", policy="random", trials=2, log=log, measure=QUICK)
    assert load_log(log).workload == workload
    export_logs([log], "metaschedule", tmp_path / "db")
    assert len((tmp_path / "db" / "database_workload.json").read_text().splitlines()) == 1  # no form without GELU
    untuned = lower(models.layers())
    tuned = searchlab.apply_history_best(untuned, log)
    arrays = random_inputs(inputs_of(untuned), np.random.default_rng(0))
    inputs = [tvm.runtime.tensor(array) for array in arrays]
    before, after = (
        relax.VirtualMachine(tvm.compile(module, native.tvm), tvm.cpu())["forward"](*inputs)[0].numpy()
        for module in (untuned, tuned)
    )
    np.testing.assert_allclose(after, before, rtol=1e-4, atol=1e-5)
    assert sum(bool(f.attrs and f.attrs.get("tirx.is_scheduled", False)) for f in tuned.functions.values()) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fused-gemm:4x16x8:gelu@0123456789abcdef", "must be a product, then PATH.py:NAME"),
        ("fused-gemm:5x16x8:tests/support/functions.py:squared", r"do not apply to a product of the shape \(5, 16\)"),
        ("fused-gemm:4x16x8:tests/support/functions.py:scaled", "do not apply to a product"),
    ],
)
def test_other_operations_are_refused(text: str, message: str) -> None:
    with pytest.raises(searchlab.SearchlabError, match=message):
        searchlab.parse_workload(text)
