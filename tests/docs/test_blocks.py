"""The code blocks of README and the pages are run: Python, study files, and commands that are marked for it."""

from __future__ import annotations

import re
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from searchlab.run.study import Study
from tests.support.cli import run_python, searchlab

from .pages import BLOCKS, PAGES, ROOT, Block

EXECUTED = [
    page for page in PAGES if any(block.page == page and block.language in ("python", "toml") for block in BLOCKS)
]


@pytest.mark.usefixtures("unoptimized")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_blocks_of_a_page(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are run in order, in one empty directory and one namespace."""
    blocks = [block for block in BLOCKS if block.page == page and block.test != "skip"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    names: dict[str, Any] = {"__name__": f"page_{page.stem}"}
    printed: set[str] = set()
    try:
        for block in blocks:
            if block.test == "file":
                Path(block.argument).write_text(block.text, "utf-8")
            if block.language == "toml":
                check_toml(block)
            elif block.language == "python" and block.test != "file":
                exec(compile(block.text, str(block), "exec"), names)
            elif block.language == "console" and block.test == "run":
                monkeypatch.setenv("COLUMNS", "100")
                for _, *words in block.commands:
                    result = searchlab(*words, cwd=tmp_path)
                    assert result.returncode == 0, f"{block}: {words}\n{result.stdout}\n{result.stderr}"
                    printed.update(" ".join(line.split()) for line in result.stdout.splitlines())
            elif block.test == "output":
                for line in block.text.splitlines():
                    parts = (r"\S+" if word in block.argument.split() else re.escape(word) for word in line.split())
                    assert any(map(re.compile(" ".join(parts)).fullmatch, printed)), f"{block}: {line}"
        if tests := sorted(path.name for path in tmp_path.glob("test_*.py")):
            result = run_python("-m", "pytest", "-q", "-p", "no:cacheprovider", *tests)
            assert result.returncode == 0, result.stdout + result.stderr
    finally:
        for name in set(sys.modules) - before:
            if getattr(sys.modules[name], "__file__", "") and str(tmp_path) in str(sys.modules[name].__file__):
                del sys.modules[name]


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++, with which a GPU is emulated, is missing")
def test_the_cuda_kernel_runs_on_an_emulated_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = (block for block in BLOCKS if "__global__" in block.text)
    small = block.text.replace("N = 1024", "N = 128").replace("trials=32", "trials=2")
    (tmp_path / "kernel.py").write_text(f"{small}print(len(result.trials), len(result.best.trial.measurement.seconds))")
    result = run_python("-m", "tests.support.measure.emulated_gpu", "kernel.py")
    assert result.stdout.endswith("\n2 5\n"), result.stdout + result.stderr


def check_toml(block: Block) -> None:
    """Read and plan a study file, of which a fragment is completed, unless its keys are marked to be only read."""
    read = tomllib.loads(block.text)
    if read.keys() <= {"project", "tool"}:  # of a pyproject.toml
        return
    if block.test in ("fragment", "keys"):
        rest = {"policies": ["random", "xgb"]}
        read = rest | ({} if "suite" in read else {"workloads": ["gemm:64x64x64"], "spaces": ["knob-template"]}) | read
    study = Study.from_dict(read)
    assert block.test == "keys" or study.plan().runs or study.spec.claims, block


def test_every_link_has_a_text() -> None:
    """Sphinx would insert the title of the page, but readers of the files would see nothing."""
    assert [str(page.relative_to(ROOT)) for page in PAGES if "[](" in page.read_text("utf-8")] == []
