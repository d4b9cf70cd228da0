"""The tutorial of a comparison: as a script, and as a notebook, which is the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.notebooks import TUTORIALS, notebook

from .scripts import printed

NOTEBOOK = json.loads((TUTORIALS / "compare.ipynb").read_text("utf-8"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tutorial")


@pytest.fixture(scope="module")
def text(folder: Path) -> str:
    return printed("compare", cwd=folder)


def test_the_script_says_which_policy_is_fastest_and_draws(text: str, folder: Path) -> None:
    assert "by area under the curve" in text.splitlines()[0]
    assert {"random", "evolutionary", "xgb"} <= set(text.split())
    assert len(list(folder.rglob("*.jsonl"))) == 24
    assert (folder / "results/tutorials/compare/differences.png").read_bytes().startswith(b"\x89PNG")


def test_the_script_has_at_most_15_lines() -> None:
    code = [line for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code" for line in cell["source"]]
    assert len([line for line in code if line.strip()]) <= 15


def test_the_notebook_is_the_script_without_outputs() -> None:
    assert notebook((TUTORIALS / "compare.py").read_text("utf-8")) == NOTEBOOK, "python -m tests.support.notebooks"


def test_the_notebook_runs(text: str, folder: Path) -> None:
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    document: Any = nbformat.read(TUTORIALS / "compare.ipynb", as_version=4)
    nbformat.validate(document)
    nbclient.NotebookClient(document, timeout=300, resources={"metadata": {"path": str(folder)}}).execute()
    outputs = [output for cell in document.cells if cell.cell_type == "code" for output in cell.outputs]
    assert "".join(cell_output.text for cell_output in outputs if cell_output.get("name") == "stdout") == text
    printed = "".join(output.text for output in outputs if output.get("name") == "stderr").splitlines()
    printed = [line for line in printed if not line.startswith("the study: ")]  # printed where replaying takes long
    assert printed == ["1,152 trials are already logged; 24 of 24 runs are complete"]  # no bar, and no warning
    assert "vegaEmbed" in outputs[-1].data["text/html"], "the last chart is shown"
