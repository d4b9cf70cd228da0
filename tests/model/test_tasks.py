"""The tasks of a model: which functions are the same, how often they occur, and which workloads they are."""

from __future__ import annotations

from pathlib import Path

import pytest
import tvm
from tvm_ffi import structural_equal

import searchlab
from searchlab.errors import SearchlabError
from searchlab.model.load import load_model
from searchlab.model.recognise import recognise
from searchlab.model.tasks import lower, tasks_of
from searchlab.target import resolve_target
from searchlab.workload import parse_workload
from tests.model import models

HERE = Path(__file__).parent / "models.py"


def test_tasks_are_distinct_and_counted() -> None:
    tasks = {task.name: task for task in tasks_of(models.convolutions()[0])}
    assert tasks["conv2d:1x8x8x8x8x3x3:p1:bias:relu"].occurs == 2
    assert tasks["conv2d:1x8x8x8x3x3x3:p1:bias:relu"].occurs == 1
    assert tasks["conv2d:1x8x8x16x8x1x1:s2"].occurs == 1
    assert tasks["conv2d:1x8x8x8x8x3x3:p1:bias:relu"].flops >= 2 * 8 * 8 * 8 * 8 * 9


def test_the_heaviest_task_comes_first() -> None:
    tasks = tasks_of(models.convolutions()[0])
    work = [task.flops * task.occurs for task in tasks]
    assert work == sorted(work, reverse=True) and tasks[0].occurs == 2


def test_spaces_say_which_tasks_they_take() -> None:
    tasks = {task.name: task for task in tasks_of(models.mlp())}
    target = resolve_target("native")
    assert {"sketch", "knob-template", "guided-gemm"} <= set(tasks["gemm:2x8x16:nt:bias:relu"].spaces(target))
    assert not {"guided-conv2d", "parameters"} & set(tasks["gemm:2x8x16:nt:bias:relu"].spaces(target))


@pytest.mark.parametrize(
    "name",
    [
        "gemm:5x6x7",
        "gemm:5x6x7:nt",
        "gemm:6x6x6:nt:bias:relu",
        "gemm:5x6x7:bias",
        "gemm:5x6x7:bias:relu",
        "gemm:5x6x7:bias:add",
        "gemm:1x6x7:bias",
        "gemm:1x6x7:float64:relu",
        "batch-matmul:3x5x6x7",
        "batch-matmul:3x6x6x6:nt",
        "batch-matmul:3x5x6x7:bias:add:relu",
        "conv2d:2x9x9x4x3x3x3",
        "conv2d:1x9x7x4x3x3x1:s2x1:p1x0:bias",
        "conv2d:1x9x9x4x3x3x3:s2:p1:relu",
        "conv2d:2x9x9x4x3x3x3:add",
        "conv2d:1x9x9x4x3x3x3:p1:bias:add:relu",
        "conv2d:1x8x8x4x3x3x3:s2:p0x0x1x1:bias:relu",
        "conv2d:1x12x12x4x6x3x3:p4:d4:g2",
        "conv2d:1x16x16x4x3x8x8:s8",
    ],
)
def test_a_workload_is_recognised(name: str) -> None:
    task = recognise(parse_workload(name).prim_func())
    assert str(task) == name


def test_another_computation_is_not_recognised() -> None:
    from tvm import te

    a, b = te.placeholder((5, 7)), te.placeholder((7, 6))
    p = te.reduce_axis((0, 7))
    sums = te.compute((5, 6), lambda i, j: te.sum(a[i, p] + b[p, j], axis=p))
    assert recognise(te.create_prim_func([a, b, sums])) is None


def test_lowering_twice_fuses_nothing_more() -> None:
    once = lower(models.mlp())
    assert tasks_of(once) == tasks_of(models.mlp())
    assert set(lower(once).get_global_vars()) == set(once.get_global_vars())


def test_a_tuned_program_stays_in_the_lowered_module(tmp_path: Path) -> None:
    log = tmp_path / "gemm.jsonl"
    searchlab.tune("gemm:2x8x16:nt:bias:relu", space="knob-template", policy="random", trials=2, log=log)
    tuned = searchlab.apply_history_best(lower(models.mlp()), log)
    scheduled = [v.name_hint for v, f in tuned.functions.items() if f.attrs and f.attrs.get("tirx.is_scheduled", False)]
    assert len(scheduled) == 1
    assert (
        next(task for task in tasks_of(tuned) if task.functions == (scheduled[0],)).reason == "it is already scheduled"
    )


def test_models_are_loaded_by_name() -> None:
    by_module = load_model("tests.model.models:mlp")
    by_file = load_model(f"{HERE}:mlp")
    assert isinstance(by_module, tvm.IRModule) and structural_equal(by_module, by_file)
    assert isinstance(load_model(f"{HERE}:convolutions"), tvm.IRModule)  # with its parameters


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("models.py", "module:function or FILE.py:function"),
        (f"{HERE}:mpl", "did you mean 'mlp'"),
        (f"{HERE}:needs_an_argument", "callable without arguments"),
        (f"{HERE}:no_model", r"must return a Relax module \(tvm.IRModule\), not str"),
        (f"{HERE}:fails", "ValueError: no weights"),
        ("absent.py:mlp", "there is no Python file absent.py"),
        ("no_such_package:mlp", "cannot be loaded"),
    ],
)
def test_an_invalid_model_is_refused_with_the_reason(text: str, message: str) -> None:
    with pytest.raises(SearchlabError, match=message):
        load_model(text)
