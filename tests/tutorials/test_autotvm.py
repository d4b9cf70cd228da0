"""The AutoTVM tutorial: AutoTVM's space and index, a search, and a best config that is in the space and right."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

from searchlab import load_log
from tests.spaces.templates.test_space import PAGE
from tests.support.spaces.targets import UNOPTIMIZED

from .scripts import printed, refusal


def test_the_tutorial_runs_with_few_trials(tmp_path: Path) -> None:
    text = printed(
        "autotvm_conv2d", "--small", "--target", json.dumps(UNOPTIMIZED), "--trials", "9", "--out", str(tmp_path)
    )
    assert text.count("ConfigSpace (len=") == 2
    # tile_f, tile_y, tile_x, tile_rc, order, unroll, pack_weight
    assert f"ConfigSpace (len={(size := 5 * 4 * 4 * 5 * 6 * 4 * 2)}, range_length={size}, space_map=" in text
    assert "ConfigSpace (len=10454400, range_length=10454400, space_map=" in text
    assert "('tile_rc', [-1, 4, 1])" in text and ",None,9881539\n" in text
    verdicts = re.findall(
        r"^ *(\d+)  (invalid|build timeout|run error|[\d.]+ GFLOPS) +(valid|invalid: .*)$", text, re.M
    )
    assert [int(index) for index, _, _ in verdicts] == [int(line.rpartition(",")[2]) for line in PAGE]
    recorded = (Path(__file__).parents[2] / "docs/tutorials/recorded/autotvm_conv2d.txt").read_text()
    assert all("  ".join([f"{index:>8}", f"{outcome:13}", verdict]) in recorded for index, outcome, verdict in verdicts)
    outcomes = {(re.sub("[\\d.]+ ", "", outcome), verdict.partition(":")[0]) for _, outcome, verdict in verdicts}
    assert outcomes == {
        ("invalid", "invalid"),
        ("build timeout", "invalid"),
        ("run error", "valid"),
        ("GFLOPS", "valid"),
    }

    for index in range(9):
        assert len(re.findall(rf"^  conv2d:.*, xgb, seed 0, trial {index}: .* \(best .*\) with {{", text, re.M)) == 1

    result = load_log(tmp_path / "autotvm_conv2d-small-llvm.jsonl")
    assert [trial.index for trial in result.trials] == list(range(9))
    (entity, index) = re.findall(r"^(\[.*'pack_weight', .*\]),None,(\d+)$", text, re.MULTILINE)[0]
    config = result.best.config
    assert dict(ast.literal_eval(entity)) == {
        **{name: [-1, *config[name][1:]] for name in config if name.startswith("tile_")},  # type: ignore[index]
        "order": list(config["order"]),  # type: ignore[arg-type]
        "unroll": str(config["unroll"]).split(","),
        "pack_weight": config["pack_weight"],
    }
    assert f"index {index} of 19200, a member: True\n" in text
    assert "The result is what numpy computes." in text and re.search(r"One run takes [\d.]+ ms", text)


def test_cuda_without_a_gpu_is_refused_in_a_sentence(tmp_path: Path) -> None:
    assert "no CUDA device was found" in refusal("autotvm_conv2d", "--target", "cuda", "--out", str(tmp_path))
    assert not list(tmp_path.iterdir())
