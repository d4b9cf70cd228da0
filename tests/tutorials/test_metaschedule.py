"""The MetaSchedule chapter: traces by hand and drawn, a table of searches, and the best program back in a model."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from searchlab import load_log
from searchlab.errors import SearchlabError
from searchlab.log.read import find_logs
from tests.support.spaces.targets import UNOPTIMIZED

from .scripts import printed, refusal


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tutorial")


@pytest.fixture(scope="module")
def text(folder: Path) -> str:
    return printed("metaschedule", "--small", "--target", json.dumps(UNOPTIMIZED), "--out", str(folder))


def test_traces_by_hand_and_drawn(text: str) -> None:
    by_hand = text[text.index("\nIts trace:") :].partition("\n\n")[0]
    assert "factors=[None, 4]" in by_hand and "sample_perfect_tile" not in by_hand and "decompose_reduction" in by_hand
    draws = text[text.index("drawn twice:") :].partition("\n\n")[0]
    assert len(set(re.findall(r"decision=\[\d+, \d+\]", draws))) == 2
    after = text[text.index("After sampling, the program is the same.") :].partition("\nAs a space")[0]
    assert re.search(r"range\(\d+\)|T\.grid\(64, \d+, \d+, 64\)", after)
    assert "As a space it has 7 configs, from Config({'tile_j': (1, 64)}) to Config({'tile_j': (64, 1)})" in text


def test_search_by_hand_keeps_the_best(text: str) -> None:
    by_hand = text[text.index("\nRandom search by hand:") :].partition("\n\n")[0]
    speeds = [float(speed) for speed in re.findall(r"^ +(\S+) GFLOPS, Config", by_hand, re.MULTILINE)]
    assert len(speeds) == 4
    assert f"The best: {max(speeds):.2f} GFLOPS" in by_hand


def test_each_search_has_its_row(text: str, folder: Path) -> None:
    table = text[text.index("\nBest GFLOPS after") :].partition("\n\n")[0]
    rows = re.findall(r"^  (.{10}) (\S+) +(\S+) +(\S+) +(\S+) +4$", table, re.MULTILINE)
    assert [(space.strip(), policy) for space, policy, *_ in rows] == [
        (space, policy)
        for space in ("one tile", "all tiles", "automatic")
        for policy in ("random", "evolutionary-model")
    ]
    for _, _, *speeds in rows:
        curve = [float(speed) for speed in speeds]
        assert curve == sorted(curve) and curve[-1] > 0
    assert len(find_logs(folder)) == 6


def test_a_log_of_a_function_of_the_script_says_so_elsewhere(text: str, folder: Path) -> None:
    (log,) = (folder / "metaschedule-small-llvm").rglob("all_tiles/random/seed0.jsonl")
    result = load_log(log)
    assert result.log.header.space.options == {"function": "__main__:tiled"}
    with pytest.raises(SearchlabError, match="'__main__:tiled'}, which .* code that no installed package registers"):
        result.best.schedule()


def test_with_more_trials_it_goes_on(text: str, folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    printed("metaschedule", "--small", "--target", json.dumps(UNOPTIMIZED), "--out", str(tmp_path), "--trials", "5")
    for log in find_logs(folder):
        before, after = (load_log(path).trials for path in (log, tmp_path / log.relative_to(folder)))
        assert len(after) == 5 and after[:4] == before


def test_the_model_runs_the_tuned_function(text: str) -> None:
    functions = text[text.index("\nThe model's functions") :].partition("\n\n")[0]
    states = dict(re.findall(r"^  (\S+) +(tuned|as it was)$", functions, re.MULTILINE))
    assert states == {"matmul": "tuned", "add": "as it was", "relu": "as it was", "matmul1": "as it was"}
    for title in ("as it was", "tuned"):
        assert re.search(rf"^The model {title}: \d+\.\d+ ms, and numpy's result$", text, re.MULTILINE)


def test_cuda_without_a_gpu_is_refused(tmp_path: Path) -> None:
    assert "no CUDA device was found" in refusal("metaschedule", "--target", "cuda", "--out", str(tmp_path))
