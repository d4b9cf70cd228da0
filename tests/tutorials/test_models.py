"""The models of the tutorial on tuning a model: their layers are tasks, as often as the papers say."""

from __future__ import annotations

import pytest

from searchlab.model.load import load_model
from searchlab.model.tasks import tasks_of
from searchlab.space import SPACES
from searchlab.target import resolve_target

from .scripts import TUTORIALS


def test_resnet18_is_made_of_convolutions() -> None:
    tasks = tasks_of(load_model(f"{TUTORIALS / 'models.py'}:resnet18"))
    convolutions = [task for task in tasks if any("conv2d" in name for name in task.functions)]
    assert sum(task.occurs for task in convolutions) == 20  # a stem, 16 in blocks, 3 shortcuts
    counted = sum(task.flops * task.occurs for task in tasks)
    assert 3.6e9 < counted < 3.7e9  # 1.8 billion multiply-adds (He et al., table 1)
    target = resolve_target("native")
    assert all("sketch" in task.spaces(target) for task in tasks if task.flops)
    assert all("guided-conv2d" in task.spaces(target) for task in convolutions)  # those with a residual, too


def test_a_transformer_block_is_tunable() -> None:
    tasks = {task.name: task for task in tasks_of(load_model(f"{TUTORIALS / 'models.py'}:transformer"))}
    assert tasks["gemm:128x768x768:nt:bias"].occurs == 3  # query, key and value
    assert {"gemm:128x768x768:nt:bias:add", "gemm:128x768x3072:nt:bias:add"} <= set(tasks)
    assert any(name.startswith("fused-gemm:128x3072x768:nt:add_gelu@") for name in tasks)
    assert any(name.startswith("fused-batch-matmul:12x128x128x64:nt:multiply@") for name in tasks)  # attention's scores
    assert sum(task.occurs for task in tasks.values() if "layer_norm" in task.functions[0]) == 2
    assert "sketch" in SPACES.entry_points_by_name() and all(task.workload is not None for task in tasks.values())


@pytest.mark.parametrize(
    ("name", "gflop"),
    [
        ("resnet50", 8.2),  # 4.1 billion multiply-adds (torchvision, for strides in the 3x3 convolutions)
        ("mobilenet_v2", 0.6),  # 300 million multiply-adds (Sandler et al., table 4)
        ("efficientnet_b0", 0.78),  # 390 million multiply-adds (Tan and Le, table 2)
        ("gpt2", 1.9),
    ],
)
def test_nearly_all_work_of_a_model_is_in_operators(name: str, gflop: float) -> None:
    tasks = tasks_of(load_model(f"{TUTORIALS / 'models.py'}:{name}"))
    total = sum(task.flops * task.occurs for task in tasks)
    assert 1e-9 * total == pytest.approx(gflop, rel=0.06)
    recognised = sum(task.flops * task.occurs for task in tasks if task.workload and task.workload.op != "tir")
    assert recognised > 0.97 * total
