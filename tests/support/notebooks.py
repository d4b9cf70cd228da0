"""A tutorial as a notebook: the cells of its script, without outputs.

``python -m tests.support.notebooks NAME`` writes ``studies/tutorials/NAME.ipynb`` anew.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path
from typing import Any

TUTORIALS = Path(__file__).parents[2] / "studies" / "tutorials"


def notebook(script: str) -> dict[str, Any]:
    """The notebook of a script whose cells begin with ``# %%``, or ``# %% [markdown]`` for text in comments.

    What comes before the first cell, the docstring, is left out.
    """
    ast.parse(script)
    cells: list[dict[str, Any]] = []
    for number, (kind, text) in enumerate(re.findall(r"^# %%( \[markdown\])?\n(.*?)(?=^# %%|\Z)", script, re.M | re.S)):
        source = re.sub(r"^# ?", "", text, flags=re.M) if kind else text
        cell: dict[str, Any] = {"cell_type": "markdown" if kind else "code", "id": f"cell-{number}", "metadata": {}}
        if not kind:
            cell |= {"execution_count": None, "outputs": []}
        cells.append({**cell, "source": source.strip().splitlines(keepends=True)})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    about = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": cells, "metadata": about, "nbformat": 4, "nbformat_minor": 5}


def main(name: str) -> None:
    content = notebook((TUTORIALS / f"{name}.py").read_text("utf-8"))
    (TUTORIALS / f"{name}.ipynb").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
