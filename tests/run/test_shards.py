"""Shards of a study: every run is in one of them, and their logs together are those of the study."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from searchlab.errors import SearchlabError
from searchlab.run.plan import Run, parse_shard, select_shard
from tests.support.cli import searchlab
from tests.support.executing import read_deterministic_parts, table_study


@pytest.fixture(scope="module")
def runs_of_study(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    return table_study(tmp_path_factory.mktemp("study")).plan().runs


@given(count=st.integers(0, 40), parts=st.integers(1, 9))
def test_each_run_is_in_one_of_shards_that_are_alike_in_size(runs_of_study: list[Run], count: int, parts: int) -> None:
    runs = [replace(runs_of_study[0], log_path=Path(f"{index}.jsonl")) for index in range(count)]
    shards = [select_shard(runs, part, parts) for part in range(1, parts + 1)]
    assert sorted(run.log_path for shard in shards for run in shard) == sorted(run.log_path for run in runs)
    assert max(map(len, shards)) - min(map(len, shards)) <= 1
    assert select_shard(runs[::-1], 1, parts) == shards[0][::-1]


@pytest.mark.parametrize("text", ["0/2", "3/2", "1/0", "half", "1/2/3", "-1/2", "1"])
def test_a_wrong_shard_is_one_sentence(text: str) -> None:
    with pytest.raises(SearchlabError, match=f"the shard must be i/n.*{text}"):
        select_shard([], *parse_shard(text))


def test_shards_in_two_directories_are_the_study_together(tmp_path: Path) -> None:
    study = table_study(tmp_path, seeds=3)
    study.run(tmp_path / "whole")
    counts = [len(study.run(tmp_path / f"part{part}", shard=(part, 2))) for part in (1, 2)]
    assert counts == [3, 3]
    for part in (1, 2):
        shutil.copytree(tmp_path / f"part{part}", tmp_path / "merged", dirs_exist_ok=True)
    assert read_deterministic_parts(tmp_path / "merged") == read_deterministic_parts(tmp_path / "whole")
    assert len(study.run(tmp_path / "none", shard=(7, 7))) == 0


def test_a_shard_on_the_command_line(tmp_path: Path) -> None:
    table_study(tmp_path)
    (tmp_path / "study.toml").write_text(
        "workloads = ['gemm:64x64x64']\nspaces = ['searchlab.conformance.toys:Small']\nseeds = 4\ntrials = 12\n"
        "policies = ['grid']\ntarget = { kind = 'llvm' }\nmeasure = { kind = 'table', path = 'table.jsonl' }\n"
    )
    result = searchlab("run", tmp_path / "study.toml", "--out", tmp_path / "out", "--shard", "2/2")
    assert result.returncode == 0 and "all 2 runs of shard 2 of 2 are complete" in " ".join(result.stdout.split())
    assert len(read_deterministic_parts(tmp_path / "out")) == 2 and "2 of 4 runs finished" in result.stdout
    result = searchlab("run", tmp_path / "study.toml", "--out", tmp_path / "out", "--shard", "1/2")
    assert f"So are those of the other shards: run `searchlab report {tmp_path / 'out'}`" in " ".join(
        result.stdout.split()
    )
