"""``searchlab model`` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.support.cli import searchlab

MLP = f"{Path(__file__).parent / 'models.py'}:mlp"


def test_tasks_are_listed() -> None:
    result = searchlab("model", "tasks", MLP)
    assert result.returncode == 0, result.stderr
    assert "gemm:2x8x16:nt:bias:relu" in result.stdout and "3 tasks, 3 of which can be tuned" in result.stdout
    assert "guided-conv2d has no programs for 3 tasks: space 'guided-conv2d' has programs for" in result.stdout
    layers = searchlab("model", "tasks", MLP.replace("mlp", "layers")).stdout
    assert layers.count("guided-gemm has no programs for 3 tasks: ") == layers.count("guided-gemm has no programs") == 1
    tasks = {task["task"]: task for task in json.loads(searchlab("model", "tasks", MLP, "--json").stdout)}
    product = tasks["gemm:2x8x16:nt:bias:relu"]
    assert product["occurs"] == 1 and "sketch" in product["spaces"]
    assert "guided-conv2d" in product["refusals"] and "but not for gemm:2x8x16" in str(product["refusals"])


def test_shares_of_the_time_are_measured() -> None:
    tasks = json.loads(searchlab("model", "tasks", MLP, "--time", "--json").stdout)
    assert all(task["seconds"] > 0 for task in tasks)
    shares = [task["share"] for task in tasks]
    assert sum(shares) == pytest.approx(1) and shares == sorted(shares, reverse=True)
    result = searchlab("model", "tasks", MLP, "--time", "--target", '{"kind": "cuda", "arch": "sm_90"}')
    assert result.returncode == 2 and "omit --time" in result.stderr


def test_a_model_is_tuned_and_untuned_functions_are_named(tmp_path: Path) -> None:
    settings = json.dumps({"kind": "local", "repeat": 1, "min_repeat_ms": 1, "finalists": 0})
    result = searchlab(
        "model",
        "tune",
        MLP,
        "--trials",
        4,
        "--batch",
        2,
        "--policy",
        "random",
        "--space",
        "knob-template",
        "--scheduler",
        "gradient,alpha=0.5",
        "--measure",
        settings,
        "--force",
        "--out",
        tmp_path / "mlp",
    )
    assert result.returncode == 0, result.stderr
    assert "not tuned: tir:softmax" in result.stdout
    header, *rows = result.stdout.splitlines()
    assert " ".join(header.split()) == "task occurs MFLOP GFLOPS untuned time total share trials ended"
    assert sum(row.split()[-1] == "2" for row in rows if row.startswith("gemm:")) == 2
    assert "the model takes " in result.stdout and "its outputs differ by at most " in result.stdout
    library = tmp_path / "mlp" / "model.so"
    if not library.exists():
        pytest.skip("no C compiler")
    result = searchlab("model", "run", library, "--outputs", tmp_path / "y.npz")
    assert "random inputs: x: float32[2, 16], hidden.weight: float32[8, 16], " in result.stdout
    assert "one execution takes " in result.stdout and "y.npz contains output_0" in result.stdout
    assert np.load(tmp_path / "y.npz")["output_0"].shape == (2, 4)
    result = searchlab("model", "run", tmp_path / "y.npz")
    assert result.returncode == 2 and "no library that `searchlab model tune` has exported" in result.stderr


def test_mistakes_are_explained(tmp_path: Path) -> None:
    result = searchlab("model", "tune", MLP, "--trials", 4, "--scheduler", "gradeint", "--out", tmp_path / "mlp")
    assert result.returncode == 2 and "did you mean 'gradient'" in result.stderr and not (tmp_path / "mlp").exists()
    result = searchlab("model", "tasks", "models.py")
    assert result.returncode == 2 and "use module:function or FILE.py:function" in result.stderr
    result = searchlab("model", "tasks", MLP.replace("mlp", "partly_symbolic"))
    assert "cannot be exported: the model's input x has the symbolic dimension n; choose a size" in result.stdout
    result = searchlab("model", "tasks", MLP, "--shape", "n=0")
    assert result.returncode == 2 and "the size must be a positive number, as in n=1" in result.stderr
