"""A third-party package: installed like any other, then discovered, used, checked and tested."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from searchlab.conformance import toys
from searchlab.log.read import read_log
from tests.support.logs import write_table

EXAMPLE = Path(__file__).parents[1] / "example_plugin"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the package's source, and ``site`` with the package installed."""
    home = tmp_path_factory.mktemp("acme")
    shutil.copytree(EXAMPLE, home / "source", ignore=shutil.ignore_patterns("__pycache__"))
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    offline = ["--no-index", "--no-deps", "--no-build-isolation", "--target", str(home / "site")]
    subprocess.run([*pip, *offline, str(home / "source")], check=True)
    return home


def python(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(home / "site"), *(path for path in sys.path if path)])}
    return subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, env=env, cwd=home)


def test_the_example_plug_in_is_listed(home: Path) -> None:
    listed = json.loads(python(home, "searchlab", "list", "--json").stdout)
    assert listed["policies"]["acme-bandit"] == "acme_searchlab.bandit:Bandit"
    assert "acme-strips" in listed["spaces"] and "acme-nearest" in listed["costmodels"]


def test_the_example_plug_in_searches(home: Path) -> None:
    table = write_table(home / "table.jsonl", toys.Small(), toys.simulate_flaky)
    measure = json.dumps({"kind": "table", "path": str(table)})
    words = ["tune", "gemm:64x64x64", "--space", "searchlab.conformance.toys:Small", "--measure", measure]
    for policy, options in (("acme-bandit", []), ("xgb", ["--cost-model", "acme-nearest"])):
        log = home / f"{policy}.jsonl"
        result = python(home, "searchlab", *words, "--policy", policy, *options, "--log", str(log), "--trials", "24")
        assert result.returncode == 0, result.stderr
        assert len(read_log(log).records) == 24


def test_the_example_plug_in_passes_searchlab_check(home: Path) -> None:
    result = python(home, "searchlab", "check", "policy", "acme-bandit", "--option", "explore=0.5")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "20 of 20 checks pass" in result.stdout


def test_the_tests_of_the_example_plug_in_pass(home: Path) -> None:
    result = python(home, "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "-q", "source/tests")
    assert result.returncode == 0, result.stdout
    assert "failed" not in result.stdout and " passed" in result.stdout
