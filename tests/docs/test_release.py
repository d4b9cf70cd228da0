"""What is released: the wheel works alone, the sdist is complete, and all files name one version."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
from pathlib import Path

import pytest

from .pages import ROOT

VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", str(folder)], cwd=ROOT, check=True)
    return folder


def test_the_wheel_works_in_an_empty_environment(built: Path, tmp_path: Path) -> None:
    """Its dependencies come from the environment of the tests, so nothing is downloaded; searchlab does not."""
    (wheel,) = built.glob("*.whl")
    venv.create(tmp_path / "venv", symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--python", str(python)]
    subprocess.run([*pip, "install", "--no-deps", "--no-index", str(wheel)], check=True)
    (site,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"])

    def run(*words: str) -> str:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        result = subprocess.run(
            [str(python.parent / words[0]), *words[1:]], cwd=tmp_path, env=clean, text=True, capture_output=True
        )
        assert result.returncode == 0, result.stderr
        return result.stdout

    assert Path(run("python", "-c", "import searchlab; print(searchlab.__file__)").strip()).is_relative_to(site)
    assert run("searchlab", "--version") == f"searchlab {VERSION}\n"
    assert "gemm-255x129x65-guided-1t" in run("searchlab", "suite", "info", "v1")
    run(
        "searchlab",
        "tune",
        "gemm:16x16x16",
        "--space",
        "guided-gemm",
        "--policy",
        "random",
        "--trials",
        "2",
        "--log",
        "a.jsonl",
    )
    assert (tmp_path / "a.jsonl").stat().st_size


def test_the_sdist_is_complete(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    required = {"README.md", "CHANGELOG.md", "CITATION.cff", "LICENSE", "Makefile", "pyproject.toml", "docs/conf.py"}
    assert names >= {*required, "searchlab/py.typed", "studies/suite/v1/manifest.json", "tests/docs/test_release.py"}
    assert not [name for name in names if name.startswith(("docs/_build", "docs/generated", ".venv", "results"))]


def test_all_files_name_one_version() -> None:
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    assert re.findall(r"^version: (.*)$", citation, re.MULTILINE) == [VERSION]
    released = re.findall(r"^## \[(.*?)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert VERSION in released[:2]
