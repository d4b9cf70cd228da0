"""The small suite, once without and once with baselines, cards and a manifest; tests copy what they change."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from searchlab.measure.suite import find_suite
from searchlab.run.study import Study
from searchlab.suite.seal import seal
from searchlab.suite.trajectories import collect_trajectories, make_trajectories_path, write_trajectories
from tests.support.suites import write_suite

POLICIES = [
    "random",
    {"name": "evolutionary", "batch": 6, "options": {"population": 6}},
    {"name": "xgb", "options": {"n_startup": 6}},
]


@pytest.fixture(scope="session")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_suite(tmp_path_factory.mktemp("bare") / "mini")


@pytest.fixture(scope="session")
def results(bare: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The logs of a study over all tables."""
    out = tmp_path_factory.mktemp("results")
    Study.from_dict({"suite": str(bare), "policies": POLICIES, "batch": 3}).run(out)
    return out


@pytest.fixture(scope="session")
def sealed(bare: Path, results: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("sealed") / "mini"
    shutil.copytree(bare, directory)
    suite = find_suite(directory)
    for trajectories in collect_trajectories(suite, sorted(results.rglob("*.jsonl"))):
        write_trajectories(make_trajectories_path(directory / "baselines", trajectories.strategy), trajectories)
    seal(suite)
    return directory


@pytest.fixture
def copy(sealed: Path, tmp_path: Path) -> Path:
    """A sealed suite to spoil."""
    shutil.copytree(sealed, tmp_path / "mini")
    return tmp_path / "mini"
