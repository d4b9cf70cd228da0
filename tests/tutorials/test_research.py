"""The tutorial from a question to an answer: as a script, and as a notebook, which is the same."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.notebooks import TUTORIALS, notebook

from .scripts import printed


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tutorial")


@pytest.fixture(scope="module")
def text(folder: Path) -> str:
    return printed("research", cwd=folder)


def test_the_script_answers_its_questions(text: str, folder: Path) -> None:
    assert re.search(r"^\d+ checks passed$", text, re.MULTILINE)
    assert len(re.findall(r"^    On workloads like these", text, re.MULTILINE)) == 2
    out = folder / "results/tutorials/research"
    assert (out / "page" / "report.html").is_file() and f"open {out.relative_to(folder)}/page" in text
    assert len(list((out / "question").rglob("*.jsonl"))) == 20
    assert len(list((out / "wider").rglob("*.jsonl"))) == 12 * 3 * 4


def test_the_notebook_is_the_script_and_runs(text: str, folder: Path) -> None:
    data = json.loads((TUTORIALS / "research.ipynb").read_text("utf-8"))
    assert notebook((TUTORIALS / "research.py").read_text("utf-8")) == data, "python -m tests.support.notebooks"
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    made: Any = nbformat.read(TUTORIALS / "research.ipynb", as_version=4)
    nbclient.NotebookClient(made, timeout=300, resources={"metadata": {"path": str(folder)}}).execute()
    outputs = [output for cell in made.cells if cell.cell_type == "code" for output in cell.outputs]
    assert "".join(one.text for one in outputs if one.get("name") == "stdout") == text, "it resumes from the same logs"
    assert sum("vegaEmbed" in one.get("data", {}).get("text/html", "") for one in outputs) == 2
