"""The tutorial from a question to an answer, as a script; its notebook is the same."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.support.notebooks import TUTORIALS, notebook

from .scripts import printed


def test_the_script_answers_its_questions(tmp_path: Path) -> None:
    text = printed("research", cwd=tmp_path)
    assert re.search(r"^\d+ checks passed$", text, re.MULTILINE)
    assert "others_adjusted_p" in text, "claims on workloads like these"
    out = tmp_path / "results/tutorials/research"
    assert (out / "page" / "report.html").is_file() and f"open {out.relative_to(tmp_path)}/page" in text
    assert len(list((out / "question").rglob("*.jsonl"))) == 20
    assert len(list((out / "wider").rglob("*.jsonl"))) == 12 * 3 * 4


def test_the_notebook_is_the_script() -> None:
    """A notebook that runs as its script does is tested in ``test_compare.py``."""
    data = json.loads((TUTORIALS / "research.ipynb").read_text("utf-8"))
    assert notebook((TUTORIALS / "research.py").read_text("utf-8")) == data, "python -m tests.support.notebooks"
