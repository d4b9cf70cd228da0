"""The pages that ``make docs`` generates from the code."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

from searchlab.policy import POLICIES

from .pages import ROOT


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_catalogue_has_every_policy_with_its_options(generate: ModuleType) -> None:
    page = generate.describe_policies(generate.read_suite_areas())
    sections = dict(re.findall(r"^## (\S+)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    assert set(sections) >= {"random", "xgb", "ansor", "metaschedule"}
    for name, text in sections.items():
        for option in POLICIES.options_of(POLICIES.load(name)):
            assert f"\n`{option}`" in text, (name, option)
    assert "0.911 (0.907 to 0.915)" in sections["xgb"].replace("\N{NO-BREAK SPACE}", " ")


@pytest.mark.parametrize("name", ["guided_gemm", "autotvm_conv2d", "ansor_conv2d", "metaschedule", "mlp", "resnet18"])
def test_a_script_is_also_a_notebook_with_the_same_code(generate: ModuleType, name: str) -> None:
    nbformat = pytest.importorskip("nbformat")
    notebook = json.loads(generate.make_script_notebook(name))
    nbformat.validate(notebook)
    script = (ROOT / "studies" / "tutorials" / f"{name}.py").read_text("utf-8")
    code = [cell["source"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(code) == script.count("\n# %% ")
    lines = {line.strip() for line in script.splitlines()}
    assert all(line.strip() in lines or line.endswith(".show()") for cell in code for line in cell.splitlines())
    assert not any(".script())" in cell for cell in code)


def test_a_notebook_highlights_programs(generate: ModuleType, tmp_path: Path) -> None:
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    notebook = nbformat.reads(generate.make_script_notebook("metaschedule"), as_version=4)
    is_shown = [cell.cell_type == "code" and "workload.module.show()" in cell.source for cell in notebook.cells]
    notebook.cells = notebook.cells[: is_shown.index(True) + 1]
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    output = notebook.cells[-1].outputs[-1]
    assert output.output_type == "display_data" and 'class="highlight"' in output.data["text/html"]


def test_every_option_and_every_key_is_described(generate: ModuleType) -> None:
    kinds = (generate.POLICIES, generate.COST_MODELS, generate.SPACES, generate.EXECUTORS)
    for page in (*map(generate.make_catalogue, kinds), generate.describe_study_file()):
        assert not re.findall(r"^`\w+`[:;].*\n(?!: )", page, re.MULTILINE)


def test_options_that_a_class_inherits_are_described(generate: ModuleType) -> None:
    page = generate.make_catalogue(generate.POLICIES)
    sections = dict(re.findall(r"^## (\S+)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    assert re.search(r"^`plan_size`.*\n: The number of trials in a plan", sections["autotvm-xgb-rank"], re.MULTILINE)


def test_the_page_of_the_command_line_has_every_command(generate: ModuleType) -> None:
    page = generate.describe_commands()
    assert all(f"# searchlab {name}\n" in page for name in ("run", "suite info", "log check", "costmodel eval"))
    assert "\n`--dry-run`\n: " in page and "\n`--jobs " in page


def test_descriptions_are_found_in_every_style(generate: ModuleType) -> None:
    docstring = """Walks.

    Some more, ``with`` a :class:`~a.b.Role`.

    Args:
        one: The first, which
            goes on.
        two, three: Both.

    - `four`: In a list.

    five: A text. six: Another.
    """
    prose, described = generate.split_docstring(docstring, ["one", "two", "three", "four", "five", "six"])
    assert prose == "Walks.\n\nSome more, `with` a `Role`."
    assert described == {
        "one": "The first, which goes on.",
        "two": "Both.",
        "three": "Both.",
        "four": "In a list.",
        "five": "A text.",
        "six": "Another.",
    }


def test_recordings_of_tutorials_are_of_the_scripts_as_they_are(generate: ModuleType) -> None:
    for name in generate.TUTORIAL_SCRIPTS:
        assert generate.make_tutorial_page(name).count("```text") >= 3, f"python docs/record.py {name}"
