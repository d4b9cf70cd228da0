"""Names of code in a stranger's files: whatever reads them, nothing that they name is executed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import msgspec
import pytest

from searchlab.errors import SearchlabError
from searchlab.log.read import RESULT_FILE_NAME
from searchlab.measure.suite import find_suite
from searchlab.plugins import Plugin
from searchlab.suite.replay import replay
from searchlab.suite.trajectories import Trajectories, write_trajectories
from tests.support.cli import searchlab

DATA = Path(__file__).parent / "data"

IMPORTS = ("import-metaschedule-names-a-file", "import-t4-names-a-file")
OPTIONS: dict[str, list[str]] = {
    "alone": [],
    "space": ["--space", "sketch"],
    "workload": ["--workload", "gemm:64x64x64"],
}


def copy_case(case: str, folder: Path) -> Path:
    """Copy a stranger's files to a directory that also contains the code that they name, and return the directory."""
    shutil.copytree(DATA / case, folder / case)
    (folder / case / "evil.py").write_text('open("PWNED", "w").close()\n\n\ndef f(*arguments):\n    pass\n')
    return folder / case


def check_refusal(folder: Path, *words: object, mentions: str = "") -> None:
    """Run a command in ``folder``, where it must fail with one sentence and without executing ``evil.py``."""
    result = searchlab(*words, cwd=folder)
    assert result.returncode == 2, result.stdout + result.stderr
    assert "Traceback" not in result.stderr and mentions in result.stderr
    assert not (folder / "PWNED").exists()


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("case", IMPORTS)
@pytest.mark.parametrize("workload", ["tir:evil.py:f", "evil:Cls:1x1", "tir:./evil.py:f"])
def test_import_executes_nothing(tmp_path: Path, case: str, options: list[str], workload: str) -> None:
    folder = copy_case(case, tmp_path)
    source = "t4.json" if (folder / "t4.json").exists() else "db"
    for path in [folder / source] if source == "t4.json" else sorted((folder / source).iterdir()):
        path.write_text(path.read_text().replace("tir:evil.py:f", workload))
    result = searchlab("import", source, "--out", "o.jsonl", *options, cwd=folder)
    assert result.returncode in (0, 2) and "Traceback" not in result.stderr
    assert not (folder / "PWNED").exists()


SPACES = {
    "trace function": '{ name = "trace", options = { function = "evil:f" } }',
    "template": '{ name = "knob-template", options = { template = "evil:f" } }',
    "class": '{ name = "evil:f" }',
}


@pytest.mark.parametrize("command", ["verify", "run", "info"])
@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_a_suite_executes_nothing(tmp_path: Path, command: str, space: str) -> None:
    folder = copy_case("suite-names-code", tmp_path)
    file = folder / "s" / "suite.toml"
    text = file.read_text()
    file.write_text(text.replace('{ name = "trace", options = { function = "evil:f" } }', space))
    options = ["--policy", "random", "--out", "out"] if command == "run" else []
    result = searchlab("suite", command, "./s", *options, cwd=folder)
    assert result.returncode in ((0, 1, 2) if command != "run" else (2,)) and "Traceback" not in result.stderr
    assert not (folder / "PWNED").exists()


def test_a_suite_may_name_a_workload_but_not_execute_it(tmp_path: Path) -> None:
    folder = copy_case("suite-names-code", tmp_path)
    file = folder / "s" / "suite.toml"
    file.write_text(file.read_text().replace("gemm:64x64x64", "tir:evil.py:f"))
    check_refusal(folder, "suite", "run", "./s", "--policy", "random", "--out", "out", mentions="--trust")


def test_options_of_a_trusted_policy_execute_nothing(tmp_path: Path) -> None:
    policy = Plugin("mine:Chain", {"policies": [{"name": "evil:f"}]})
    runs = Trajectories(suite="x", strategy="chain", policy=policy, batch=1, trial_count=1, tables={})
    suite = find_suite(str(DATA / "suite-names-code" / "s"))
    with pytest.raises(SearchlabError, match="--policy mine:Chain --policy evil:f"):
        replay(suite, [runs], digest="0", seconds=None, trusted=["mine:Chain"])


EVIL: dict[str, dict[str, object]] = {
    "space": {"space": {"name": "evil:f"}},
    "function of a space": {"space": {"name": "trace", "options": {"function": "evil:f"}}},
    "template": {"space": {"name": "knob-template", "options": {"template": "evil:f"}}},
    "core function": {"space": {"name": "searchlab.plugins:execute_file"}},
    "imported module": {"space": {"name": "trace", "options": {"function": "searchlab_spaces.trace.cpu:os"}}},
    "strategy": {
        "policy": {"name": "chain", "options": {"policies": ["evil:f"]}},
        "cost_model": {"name": "evil:f"},
        "measure": {"kind": "evil:f"},
    },
    "workload": {"workload": "evil:f:1x1"},
    "file": {"workload": "tir:evil.py:f"},
}
READERS = (
    "best a.jsonl",
    "best a.jsonl --show tir",
    "log check a.jsonl",
    "table info a.jsonl",
    "verify a.jsonl",
    "export a.jsonl --to metaschedule --out db",
    "export a.jsonl --to kernel-tuner --out t4.json",
    "costmodel eval a.jsonl --model random",
)


@pytest.mark.parametrize("change", EVIL.values(), ids=EVIL)
def test_readers_of_logs_execute_nothing(tmp_path: Path, change: dict[str, object]) -> None:
    (tmp_path / "evil.py").write_text('open("PWNED", "w").close()\n')
    header, *trials = (DATA.parents[1] / "golden" / "data" / "model.jsonl").read_text().splitlines()
    (tmp_path / "a.jsonl").write_text("\n".join([json.dumps(json.loads(header) | change), *trials, ""]))
    for command in READERS:
        result = searchlab(*command.split(), cwd=tmp_path)
        assert result.returncode in (0, 1, 2) and "Traceback" not in result.stderr
        assert not (tmp_path / "PWNED").exists(), command


def write_bundle(folder: Path, tables: dict[str, object]) -> None:
    """Write a bundle of ``suite run`` by a stranger, whose policy is in ``evil.py``."""
    runs = {"trajectories": 1, "suite": "s", "strategy": "evil", "policy": {"name": "evil:f"}, "batch": 1, "trials": 1}
    (folder / "bundle").mkdir()
    trajectories = msgspec.convert(runs | {"tables": tables}, Trajectories)
    write_trajectories(folder / "bundle" / RESULT_FILE_NAME, trajectories)


@pytest.mark.parametrize("tables", [{}, {"y": {"digest": "0", "runs": []}}], ids=["none", "other"])
def test_a_bundle_without_runs_is_refused(tmp_path: Path, tables: dict[str, object]) -> None:
    folder = copy_case("suite-names-code", tmp_path)
    write_bundle(folder, tables)
    check_refusal(folder, "report", "--publish", "site", "bundle", "--suite", "./s")


def test_files_in_the_current_directory_are_no_modules(tmp_path: Path) -> None:
    for name in ("torch", "cuda", "cPickle", "cython", "linkify_it"):
        (tmp_path / f"{name}.py").write_text('open("PWNED", "w").close()\n')
    shutil.copy(Path(__file__).parents[1] / "golden" / "data" / "model.jsonl", tmp_path / "a.jsonl")
    for words in (["best", "a.jsonl", "--show", "tir"], ["report", "a.jsonl", "--out", "report"]):
        result = searchlab(*words, cwd=tmp_path)
        assert result.returncode == 0, result.stderr
    assert not (tmp_path / "PWNED").exists()


def test_measuring_processes_ignore_the_current_directory(tmp_path: Path) -> None:
    for name in ("pickle", "tvm", "numpy"):
        (tmp_path / f"{name}.py").write_text('open("PWNED", "w").close()\n')
    words = [
        "tune",
        "gemm:16x16x16",
        "--space",
        "guided-gemm",
        "--policy",
        "random",
        "--trials",
        "1",
        "--log",
        "a.jsonl",
    ]
    result = searchlab(*words, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert not (tmp_path / "PWNED").exists()


def test_a_plugin_in_the_current_directory_is_found(tmp_path: Path) -> None:
    source = "from searchlab_policies.random import Random\n\n\nclass Mine(Random):\n    pass\n"
    (tmp_path / "own_policy.py").write_text(source)
    table = Path(__file__).parents[1] / "golden" / "data" / "table.jsonl.gz"
    study = tmp_path / "study.toml"
    study.write_text(
        'workloads = ["gemm:64x64x64"]\n'
        'spaces = [{ name = "guided-gemm", options = { pack_a = "knob", pack_b = "knob" } }]\n'
        f'policies = ["own_policy:Mine"]\ntrials = 2\nmeasure = {{ kind = "table", path = "{table}" }}\n'
    )
    result = searchlab("run", "study.toml", "--out", "out", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
