"""Packages that `searchlab new` writes work at once."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.support.cli import run_python, searchlab


def test_a_new_policy_passes_its_own_tests(tmp_path: Path) -> None:
    result = searchlab("new", "policy", "hill-climb", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    result = run_python("-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path / "hill-climb")
    assert result.returncode == 0 and " passed" in result.stdout, result.stdout


@pytest.mark.parametrize(
    ("kind", "name", "example", "check"),
    [
        ("space", "strips", "", "right-answer"),
        ("costmodel", "near-by", "", "learns"),
        ("workload", "matvec", ":8x16", "right-answer"),
    ],
)
def test_a_new_plugin_is_a_package(kind: str, name: str, example: str, check: str, tmp_path: Path) -> None:
    result = searchlab("new", kind, name, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    directory, module = tmp_path / name, name.replace("-", "_")
    files = {path.name: path.read_text() for path in directory.iterdir()}
    assert set(files) == {"pyproject.toml", f"{module}.py", f"test_{module}.py", "study.toml", "README.md"}
    ((group, points),) = tomllib.loads(files["pyproject.toml"])["project"]["entry-points"].items()
    assert group.startswith("searchlab.") and points[name].startswith(f"{module}:")
    assert f"searchlab check {kind} {points[name]}" in files["README.md"]
    result = searchlab("check", kind, points[name] + example, "--only", check, cwd=directory)
    assert result.returncode == 0, result.stdout + result.stderr
    result = searchlab("run", "--dry-run", "study.toml", cwd=directory)
    assert result.returncode == 0 and " runs, 0 of them complete" in result.stdout, result.stderr


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Hill Climb", "'Hill Climb' cannot be the name of a plug-in and its package"),
        ("class", "'class' cannot be the name"),
        ("numpy", "a Python module numpy already exists here"),
        ("there", "there already exists; choose another directory (--out)"),
    ],
)
def test_a_new_package_replaces_nothing(name: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "notes.txt").write_text("mine")
    result = searchlab("new", "policy", name, cwd=tmp_path)
    assert result.returncode == 2 and says in " ".join(result.stderr.split())
    assert [path.name for path in tmp_path.rglob("*")] == ["there", "notes.txt"]
