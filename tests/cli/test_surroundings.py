"""In unusual environments, a run works or ends with one sentence."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from searchlab.analysis import report
from searchlab.conformance import toys
from searchlab.errors import SearchlabError
from searchlab.log.read import read_log
from searchlab.log.writer import check_log
from searchlab.run.study import Study
from searchlab.run.tune import tune
from searchlab.tables.info import TableInfo, make_info_table
from tests.support.cli import searchlab
from tests.support.logs import write_table

FEW = 64
"""The limit on open files of a process."""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """Write a study whose names contain spaces and non-ASCII letters."""
    folder = tmp_path / "ä b"
    folder.mkdir()
    write_table(folder / "täble.jsonl", toys.Small(), toys.simulate_flaky, counted=True)
    path = folder / "stüdy 1.toml"
    path.write_text(
        "workloads = ['gemm:64x64x64']\nspaces = [{ name = 'searchlab.conformance.toys:Small', label = 'ü' }]\n"
        "policies = [{ name = 'random', label = 'zufällig' }]\nseeds = 2\ntrials = 8\ntarget = { kind = 'llvm' }\n"
        "measure = { kind = 'table', path = 'täble.jsonl' }\n",
        encoding="utf-8",
    )
    return path


def run_command(
    study: Path, *words: str, few: bool = False, **settings: str | None
) -> subprocess.CompletedProcess[bytes]:
    changed = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)} | settings
    env = {name: value for name, value in (os.environ | changed).items() if value is not None}
    return subprocess.run(
        [sys.executable, "-m", "searchlab", "run", study, "--out", study.parent / "oüt", *words],
        capture_output=True,
        env=env,
        preexec_fn=(lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (FEW, FEW))) if few else None,
    )


@pytest.mark.parametrize(
    "surroundings",
    [
        {"HOME": None, "LC_ALL": "C"},
        {"HOME": "/proc/nowhere", "few": True, "words": ("--jobs", "2")},
    ],
    ids=["no home, C locale", "home that cannot be written, few files, two jobs"],
)
def test_a_study_runs_in_unusual_surroundings(study: Path, surroundings: dict[str, Any]) -> None:
    result = run_command(study, *surroundings.pop("words", ()), **surroundings)
    assert result.returncode == 0, result.stderr
    assert "zufällig" in result.stdout.decode()
    assert (study.parent / "oüt" / "report" / "report.html").is_file()


def test_a_locale_that_cannot_spell_a_name_is_one_sentence(study: Path) -> None:
    result = run_command(study, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    *_, line = result.stderr.splitlines()  # earlier lines report slow steps
    assert result.returncode == 2 and line.startswith(b"error: ") and b"'ascii'" in line


@pytest.mark.parametrize("out, code", [("out", 0), ("", 2)], ids=["absolute path", "relative path"])
def test_a_removed_working_directory_is_one_sentence(out: str, code: int, study: Path) -> None:
    command = [sys.executable, "-m", "searchlab", "run", study, *(["--out", study.parent / out] if out else [])]
    removing = ["sh", "-c", 'mkdir "$0"; cd "$0"; rmdir "$0"; exec "$@"', study.parent / "removed", *command]
    env = os.environ | {"PYTHONPATH": os.pathsep.join([*filter(None, sys.path), os.getcwd()])}
    result = subprocess.run(removing, capture_output=True, text=True, env=env)
    assert result.returncode == code and ("the current directory: No such" in result.stderr) == (code == 2), (
        result.stderr
    )


def test_a_warning_that_python_makes_an_error_is_one_sentence(study: Path) -> None:
    study.write_text(study.read_text(encoding="utf-8").replace("random", "evolutionary"), encoding="utf-8")
    result = run_command(study, PYTHONWARNINGS="error::UserWarning")
    *_, line = result.stderr.splitlines()
    assert result.returncode == 1 and line.startswith(b"error: SearchlabWarning: policy 'evolutionary' does not use")


def test_a_name_that_no_file_can_have_is_one_sentence(tmp_path: Path) -> None:
    data = {
        "workloads": ["gemm:64x64x64"],
        "spaces": [{"name": "searchlab.conformance.toys:Small"}],
        "policies": ["random"],
        "target": {"kind": "llvm"},
        "measure": {"kind": "table", "path": "a\0b.jsonl"},
    }
    with pytest.raises(SearchlabError, match="cannot read the log.*null byte"):
        Study.from_dict(data, tmp_path).run(tmp_path / "out")


def test_a_clock_that_jumps_changes_nothing_but_dates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = write_table(tmp_path / "table.jsonl", toys.Small(), toys.simulate_flaky, counted=True)
    clock = itertools.cycle([1.7e9, -3e7, 4e9, 0.0, 1e10])
    monkeypatch.setattr(time, "time", lambda: next(clock))

    def run(trials: int, log: str) -> list[Any]:
        tune(
            toys.WORKLOAD,
            space=toys.Small(),
            policy="evolutionary",
            log=tmp_path / log,
            trials=trials,
            batch=4,
            measure={"kind": "table", "path": str(table)},
        )
        return [record.config for record in read_log(tmp_path / log).records]

    for trials in (4, 8, 12, 16):
        configs = run(trials, "resumed.jsonl")
    monkeypatch.undo()
    assert configs == run(16, "whole.jsonl") and not check_log(tmp_path / "resumed.jsonl").problems
    charged = read_log(tmp_path / "resumed.jsonl").elapsed_seconds
    assert (charged[1:] >= charged[:-1]).all()
    make_info_table(TableInfo(read_log(tmp_path / "resumed.jsonl")))
    report(tmp_path / "resumed.jsonl", out=tmp_path / "report")
    assert json.loads((tmp_path / "report" / "summary.json").read_text())


# --- what files hold ----------------------------------------------------------------------------------------


HOSTILE = "\x1b]0;owned\x07\x1b[2Jx\x9b31m\u202egnp\r"


def test_no_control_character_of_a_log_reaches_the_terminal(tmp_path: Path) -> None:
    table = write_table(tmp_path / "table.jsonl", toys.Small(), toys.simulate_smooth)
    policies = ", ".join(f"{{ name = 'random', label = {json.dumps(name)} }}" for name in (HOSTILE, "b\nbest of 9: 1"))
    (tmp_path / "study.toml").write_text(
        "workloads = ['gemm:64x64x64']\nspaces = [{ name = 'searchlab.conformance.toys:Small' }]\n"
        f"policies = [{policies}]\n"
        f"seeds = 2\ntrials = 8\ntarget = {{ kind = 'llvm' }}\nmeasure = {{ kind = 'table', path = '{table.name}' }}\n"
    )
    out = tmp_path / "out"
    output = [searchlab("run", tmp_path / "study.toml", "--out", out)]
    log = sorted(out.rglob("*.jsonl"))[0]
    lines = log.read_text().splitlines()
    failed = json.loads(lines[1]) | {"seconds": [], "failure": "crash", "message": HOSTILE, "program": HOSTILE}
    log.write_text("\n".join([lines[0], json.dumps(failed), *lines[2:], json.dumps({"index": HOSTILE}), ""]))
    output += [
        searchlab("report", out),
        searchlab("best", out),
        searchlab("log", "check", log),
        searchlab("report", log),
        searchlab("log", "info", log),
        searchlab("best", log),
        searchlab("tune", HOSTILE),
        searchlab("show", "policy", f"tests.support.failing:{HOSTILE}"),
    ]
    for result in output:
        assert not set(result.stdout + result.stderr) & set(HOSTILE) - set("]0;owned[2Jx31mgnp"), result.args
        assert "\nbest of 9" not in result.stdout
    assert output[0].returncode == 0 and "\\x1b]0;owned" in output[0].stdout


def test_a_gzip_bomb_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = write_table(tmp_path / "table.jsonl", toys.Small(), toys.simulate_smooth)
    bomb = tmp_path / "bomb.jsonl.gz"
    bomb.write_bytes(gzip.compress(log.read_bytes() + b"\n" * (3 << 20)))
    line = tmp_path / "line.jsonl.gz"
    line.write_bytes(gzip.compress(log.read_bytes() + b"x" * (3 << 20)))
    assert len(read_log(line).records) == 120, "a torn line is dropped"
    monkeypatch.setenv("SEARCHLAB_UNPACK_MB", "2")
    with pytest.raises(SearchlabError, match="unpacks to more than 2 MB.*SEARCHLAB_UNPACK_MB"):
        read_log(bomb)
    monkeypatch.setenv("SEARCHLAB_UNPACK_MB", "16")
    with pytest.raises(SearchlabError, match="unpacks to a line of 1 MB"):
        read_log(line)
    monkeypatch.setenv("SEARCHLAB_UNPACK_MB", "all")
    with pytest.raises(SearchlabError, match="SEARCHLAB_UNPACK_MB must be a number of megabytes, not 'all'"):
        read_log(line)


def test_an_interrupt_while_modules_are_imported_is_quiet() -> None:
    for delay in (0.0, 0.05, 0.1, 0.2):
        process = subprocess.Popen(
            [sys.executable, "-c", "import sys; print('on', flush=True); from searchlab.__main__ import main; main()"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            stdin=subprocess.PIPE,
        )
        assert process.stdout and process.stdout.readline()
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        _, output = process.communicate(timeout=60)
        if process.returncode == 0:  # it had finished before the signal
            continue
        assert "from .cli" not in output or process.returncode == 130, output
