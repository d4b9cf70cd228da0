"""The Ansor tutorial: DAG, sketches, a search, its best program checked and shown, and 5 more trials."""

from __future__ import annotations

import json
from pathlib import Path

from searchlab import load_log
from tests.support.spaces.targets import UNOPTIMIZED

from .scripts import printed, refusal


def test_the_tutorial_runs_with_few_trials(tmp_path: Path) -> None:
    text = printed("ansor_conv2d", "--small", "--target", json.dumps(UNOPTIMIZED), "--out", str(tmp_path))
    assert "conv2d(n, f, y, x) += (pad[n, rc, (y+ry), (x+rx)]*weight[f, rc, ry, rx])\n" in text
    assert "relu(i0, i1, i2, i3) = max(bias[i0, i1, i2, i3], 0f)\n" in text
    assert "Sketch 0 of 3:" in text and "Sketch 2 of 3:" in text and "sample_perfect_tile" in text
    assert "The result is what numpy computes." in text

    program = text.partition("\nTensorIR:\n")[2]
    assert "@T.prim_func" in program and " lines of its innermost loop, in assembly:\n.L" in program

    assert "11 trials in the log: 6 as they were, 5 new." in text
    for index in range(11):
        assert text.count(f"\n  trial {index:3d}: ") == 1
    result = load_log(tmp_path / "ansor_conv2d-small-llvm.jsonl")
    assert [trial.index for trial in result.trials] == list(range(11))
    assert f"trial {result.best.trial.index}.\n" in text


def test_cuda_without_a_gpu_is_refused_in_a_sentence(tmp_path: Path) -> None:
    assert "no CUDA device was found" in refusal("ansor_conv2d", "--target", "cuda", "--out", str(tmp_path))
    assert not list(tmp_path.iterdir())
