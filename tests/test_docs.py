"""What the README and the documentation show is run."""

from __future__ import annotations

import doctest
import inspect
import re
import shlex
import subprocess
import sys
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import typer

import searchlab
from searchlab.conformance import NotApplicable, cost_model_checks, policy_checks, space_checks
from searchlab.run.study import Study

ROOT = Path(__file__).parent.parent


def blocks(document: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)


def test_the_study_file_of_the_readme() -> None:
    (text,) = blocks("README.md", "toml")
    runs, left_out = Study.from_dict(tomllib.loads(text)).plan()
    assert len(runs) == 2 * 3 * 5 and not left_out


def test_the_python_of_the_readme(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (text,) = blocks("README.md", "python")
    monkeypatch.chdir(tmp_path)
    exec(text, {})
    assert "T.prim_func" in capsys.readouterr().out
    assert (tmp_path / "convergence.png").exists() and (tmp_path / "report" / "report.html").exists()


EXTEND = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs" / "extend").glob("*.md"))


def test_the_plugins_of_the_guide_keep_their_contracts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each page with a plug-in names the file that holds it, and the command that checks it."""
    monkeypatch.syspath_prepend(tmp_path)
    kinds = {"policy": policy_checks, "space": space_checks, "costmodel": cost_model_checks}
    checked = []
    for page in EXTEND:
        text = (ROOT / page).read_text()
        for name, block in re.findall(r"<!-- test: file (\S+) -->\n```python\n(.*?)```", text, re.DOTALL):
            (tmp_path / name).write_text(block)
        for kind, plugin in re.findall(r"^\$ searchlab check (\w+) (acme\S+)", text, re.MULTILINE):
            checked.append(kind)
            for check in kinds[kind](plugin):
                with suppress(NotApplicable):
                    check()
    assert set(checked) == set(kinds)
    scope: dict[str, Any] = {}
    exec((tmp_path / "test_acme_policies.py").read_text(), scope)
    assert scope["TestHillClimb"].plugin == "acme_policies:HillClimb"


def test_the_entry_points_of_the_guide_are_searchlabs() -> None:
    named = "".join((ROOT / page).read_text() for page in EXTEND)
    groups = set(re.findall(r'"(searchlab\.\w+)"\]', named))
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    assert groups and groups <= set(declared)


DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    if "generated" not in path.parts and "_build" not in path.parts
)
OF_THE_SITE = ("catalogue/", "tutorials/", "reference/")
"""Folders of ``docs`` whose pages are generated with the site."""


@pytest.mark.parametrize("document", DOCUMENTS)
def test_what_a_document_links_to_is_there(document: str) -> None:
    folder = (ROOT / document).parent
    for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", (ROOT / document).read_text()):
        assert (
            link.startswith("https://")
            or any(f"../{name}" in link for name in OF_THE_SITE)
            or ((folder / link).exists())
        ), link


@pytest.mark.parametrize("document", DOCUMENTS)
def test_commands_of_a_document_exist(document: str) -> None:
    from searchlab.cli.app import app

    root = typer.main.get_command(app)
    for block in blocks(document, "console"):
        for line in block.replace("\\\n", " ").splitlines():
            if not line.startswith("$ searchlab "):
                continue
            words = shlex.split(line)[2:]
            command: Any = root
            while words and words[0] in getattr(command, "commands", {}):
                command = command.commands[words.pop(0)]
            options = {"--help"} | {option for parameter in command.params for option in parameter.opts}
            assert {word for word in words if word.startswith("--")} <= options, line
            assert not hasattr(command, "commands") or words == ["--version"], line


def test_the_results_hold_the_tables_that_the_code_declares() -> None:
    """What each policy is, and how it agrees with its original: printed from the policies and from kept figures."""
    printed = subprocess.run(
        [sys.executable, "studies/fidelity/agreement.py", "--origins"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    results = (ROOT / "studies" / "RESULTS.md").read_text()
    for table in printed.strip().split("\n\n"):
        assert table in results, "print it anew: python studies/fidelity/agreement.py --origins"


def test_every_public_name_has_an_example_and_all_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example of ``tune`` comes first: it writes the log that others load."""
    monkeypatch.chdir(tmp_path)
    finder = doctest.DocTestFinder(recurse=True)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    names = ["tune", *(name for name in searchlab.__all__ if name not in ("tune", "__version__"))]
    found = {name: finder.find(inspect.unwrap(getattr(searchlab, name)), name) for name in names}
    assert not [name for name, tests in found.items() if not tests or not tests[0].examples]
    said: list[str] = []
    for tests in found.values():
        for test in tests:
            runner.run(test, out=said.append)
    assert not runner.failures, "".join(said)
