"""What the README and CONTRIBUTING show is run."""

from __future__ import annotations

import doctest
import inspect
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer

import searchlab
from searchlab.conformance import cost_model_checks, policy_checks, space_checks
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
    exec(text.replace("512x512x512", "32x32x32").replace("trials=32", "trials=3"), scope := {})
    assert "T.prim_func" in capsys.readouterr().out
    assert len(scope["frame"]) == 3 and scope["again"].best == scope["result"].best


def test_the_plugins_of_contributing_keep_their_contracts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for text in blocks("CONTRIBUTING.md", "python"):
        (tmp_path / text.splitlines()[0].removeprefix("# ")).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    kinds = {"policy": policy_checks, "space": space_checks, "costmodel": cost_model_checks}
    commands = re.findall(r"^    searchlab check (\w+) (\S+)$", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    assert [kind for kind, _ in commands] == list(kinds)
    for kind, plugin in commands:
        for check in kinds[kind](plugin):
            check()
    scope: dict[str, Any] = {}
    exec((tmp_path / "test_acme.py").read_text(), scope)
    assert scope["TestHillClimb"].plugin == commands[0][1]


def test_the_entry_points_of_contributing_are_searchlabs() -> None:
    groups = set(re.findall(r'"(searchlab\.\w+)"\]', (ROOT / "CONTRIBUTING.md").read_text()))
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    assert groups and groups <= set(declared)


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md"])
def test_what_a_document_links_to_is_there(document: str) -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", (ROOT / document).read_text()):
        assert link.startswith("https://") or (ROOT / link).exists(), link


def test_commands_of_the_readme_exist() -> None:
    from searchlab.cli.app import app

    def names(of: typer.Typer) -> set[str]:
        return {command.name or command.callback.__name__ for command in of.registered_commands if command.callback}

    known = {(name,) for name in names(app)}
    for group in app.registered_groups:
        known |= {(group.name, name) for name in names(group.typer_instance)}
    groups = {group.name for group in app.registered_groups}
    used = re.findall(r"^    searchlab (\w+)(?: (\w+))?", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert used and {(first, second) if first in groups else (first,) for first, second in used} <= known


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
