"""Suites with tables that another tuner measured: built from its files, sealed, searched and verified."""

from __future__ import annotations

import gzip
import json
import random
import shutil
from pathlib import Path

import pytest

from searchlab.errors import SearchlabError
from searchlab.measure.suite import find_suite
from searchlab.suite.build import build_suite
from tests.support.cli import searchlab
from tests.support.exchange import DATA

FILES = DATA / "kernel_tuner"
SUITE = """
version = "theirs"
title = "Tables of others"
licence = "MIT"
trials = 12
seeds = 3

[[tables]]
name = "gemm-t4"
split = "dev"
workload = "kernel:gemm@a:1769472flop"
space = { name = "parameters" }
file = "gemm_t4.json.gz"

[[tables]]
name = "gemm-cache"
split = "test"
workload = "kernel:gemm@b:1769472flop"
space = { name = "parameters" }
file = "gemm_cache.json.gz"
"""


@pytest.fixture
def foreign_suite(tmp_path: Path) -> Path:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "suite.toml").write_text(SUITE)
    return tmp_path / "theirs"


def test_a_suite_of_files_of_others(foreign_suite: Path, tmp_path: Path) -> None:
    result = searchlab("suite", "build", foreign_suite, "--from", FILES)
    assert result.returncode == 0 and result.stdout.count("configs") == 2
    tables = {path.name: path.read_bytes() for path in (foreign_suite / "tables").iterdir()}
    assert set(tables) == {"gemm-t4.parquet", "gemm-cache.parquet"}
    assert searchlab("suite", "build", foreign_suite, "--from", FILES).stdout.count("there already") == 2
    shutil.rmtree(foreign_suite / "tables")
    build_suite(find_suite(foreign_suite), FILES)
    assert tables == {
        path.name: path.read_bytes() for path in (foreign_suite / "tables").iterdir()
    }  # the same bytes again

    assert searchlab("suite", "seal", foreign_suite).returncode == 0
    result = searchlab("suite", "run", foreign_suite, "--policy", "evolutionary", "--out", tmp_path / "ran")
    assert result.returncode == 0 and "12 trials" in result.stdout
    for what in ([foreign_suite], [tmp_path / "ran", "--suite", foreign_suite]):
        result = searchlab("suite", "verify", *what)
        assert result.returncode == 0, result.stdout


def test_a_part_of_a_space_is_no_table(foreign_suite: Path, tmp_path: Path) -> None:
    files = tmp_path / "files"
    shutil.copytree(FILES, files)
    content = json.loads(gzip.decompress((FILES / "gemm_t4.json.gz").read_bytes()))
    content["results"] = random.Random(0).sample(content["results"], 80)
    (files / "gemm_t4.json.gz").write_bytes(gzip.compress(json.dumps(content).encode()))
    with pytest.raises(
        SearchlabError, match=r"gemm_t4.json.gz cannot be used as a suite table: about .* only part of the space"
    ):
        build_suite(find_suite(foreign_suite), files)
    assert not list((foreign_suite / "tables").iterdir())


def test_what_cannot_be_built_is_refused(foreign_suite: Path, bare: Path, tmp_path: Path) -> None:
    with pytest.raises(SearchlabError, match=r"theirs/gemm-t4: .* does not contain gemm_t4.json.gz"):
        build_suite(find_suite(foreign_suite), tmp_path)
    suite = find_suite(foreign_suite)
    (tmp_path / "empty").mkdir()
    (foreign_suite / "suite.toml").write_text(SUITE.replace("gemm_t4.json.gz", "../gemm_t4.json.gz"))
    with pytest.raises(SearchlabError, match=r"gemm_t4.json.gz leads to .*, outside .*empty"):
        build_suite(find_suite(foreign_suite), tmp_path / "empty")
    (foreign_suite / "tables").symlink_to(tmp_path / "empty")
    with pytest.raises(SearchlabError, match=r"tables/gemm-t4.parquet leads to .*, outside .*theirs"):
        build_suite(suite, FILES)
    (foreign_suite / "tables").unlink()
    with pytest.raises(SearchlabError, match="specifies no file to import; use `searchlab table build`"):
        build_suite(find_suite(bare), tmp_path)
    with pytest.raises(SearchlabError, match="is missing: .* create it with `searchlab suite build "):
        _ = find_suite(foreign_suite).tables[0].path


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("trials = 12", "trials = 99999999999999999999"),
        ("seeds = 3", "seeds = 1000000"),
        ('split = "test"', 'split = "test"\nthreads = 1000000'),
        ('"gemm-t4"', f'"{300 * "x"}"'),
    ],
)
def test_numbers_and_names_of_a_suite_are_bounded(foreign_suite: Path, old: str, new: str) -> None:
    (foreign_suite / "suite.toml").write_text(SUITE.replace(old, new))
    with pytest.raises(SearchlabError, match=f"{old.split()[0]}|name|threads"):
        find_suite(foreign_suite)
