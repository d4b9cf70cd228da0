"""``searchlab check`` on plug-ins outside packages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli import searchlab

PLUGINS = """
from searchlab import CostModel, NeverTwice, Space

class Sound(NeverTwice):
    def __init__(self, space, *, seed, share=0.5):
        super().__init__(space, seed=seed)

    def propose(self, n, rng):
        return []

class Stops(NeverTwice):
    def propose(self, n, rng):
        return self.no_such_thing

class Raises(Sound):
    def __init__(self, space, *, seed):
        raise RuntimeError("no licence")

class Picky(NeverTwice):
    def __init__(self, space, *, seed):
        from searchlab import SearchlabError
        raise SearchlabError("it works on sketches only")

    def propose(self, n, rng):
        return []

class Duck:
    def __init__(self, space, *, seed):
        pass

from searchlab import InvalidConfig, Knob, ProductSpace

class Unchecked(ProductSpace):
    def __init__(self, workload, target):
        super().__init__(workload, target, [Knob("width", [2, 4])])

    def schedule(self, config):
        from tvm.s_tir import Schedule
        sch = Schedule(self.workload.module)
        sch.parallel(sch.get_loops(sch.get_sblock("gemm"))[2])
        return sch

class Refusing(Unchecked):
    def schedule(self, config):
        raise InvalidConfig("it is too wide")
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(PLUGINS)
    (tmp_path / "garbled.py").write_text("def f(:\n")
    (tmp_path / "faulty.py").write_text("\nlist_of_what()\n")
    return tmp_path


def check(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return searchlab("check", *words, cwd=home)


def test_a_sound_policy(home: Path) -> None:
    """As the installed command runs it: its own directory is on the path, and not the user's."""
    env = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    code = "import sys; sys.path.pop(0); from searchlab.cli import main; main()"
    words = ["check", "policy", "mine:Sound", "--option", "share=0.25", "--seed", "3"]
    result = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, env=env, cwd=home)
    lines = result.stdout.splitlines()
    assert result.returncode == 0, result.stdout + result.stderr
    assert lines[0] == "pass     signature" and lines[-1] == "20 of 20 checks pass"


def test_a_failure_names_the_line_and_the_status_is_1(home: Path) -> None:
    result = check(home, "policy", "mine:Stops")
    assert result.returncode == 1
    line = PLUGINS.splitlines().index("        return self.no_such_thing") + 1
    assert f"AttributeError: 'Stops' object has no attribute 'no_such_thing', raised at {home}/mine.py:{line}" in (
        result.stdout
    )
    assert "expected: It proposes and learns" in result.stdout and "likely fix: " in result.stdout
    assert "not run  members: it requires 'runs' to pass" in result.stdout
    assert result.stdout.splitlines()[-1] == "2 of 20 checks pass; runs failed"
    assert "Traceback" not in result.stdout + result.stderr


@pytest.mark.parametrize(("name", "kind"), [("mine:Sound", "policy"), ("mine:Unchecked", "space"), ("xgb", "policy")])
def test_the_kind_of_a_plug_in_may_be_omitted(home: Path, name: str, kind: str) -> None:
    result = check(home, name, "--only", "none")
    assert result.returncode == 2 and result.stderr == check(home, kind, name, "--only", "none").stderr
    assert "known: " in result.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["random"], "there is a policy and a costmodel called 'random'; specify its kind"),
        (["polcy", "xgb"], "unknown kind of plug-in 'polcy'; did you mean 'policy'?"),
        (["policy", "xgb", "tpe"], "omit 'tpe'"),
        (["xbg"], "'xbg' is not a known plug-in; specify its kind, as in `searchlab check policy xbg`"),
        (["mine:Duck"], "'mine:Duck' is not a known plug-in"),
    ],
)
def test_a_plug_in_whose_kind_is_unclear(home: Path, words: list[str], message: str) -> None:
    result = check(home, *words)
    assert result.returncode == 2 and message in " ".join(result.stderr.split())


def test_one_check_alone(home: Path) -> None:
    result = check(home, "policy", "mine:Stops", "--only", "starts", "--only", "signature")
    assert result.returncode == 0
    assert result.stdout.splitlines() == ["pass     signature", "pass     starts", "2 of 2 checks pass"]


def test_a_raising_constructor_and_a_foreign_class_fail(home: Path) -> None:
    result = check(home, "policy", "mine:Raises")
    assert result.returncode == 1 and "RuntimeError: no licence, raised at" in result.stdout
    result = check(home, "policy", "mine:Duck")
    assert result.returncode == 1 and "derive the class from searchlab.Policy" in result.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["policy", "nowhere:Bandit"], "policy 'nowhere:Bandit' cannot be loaded"),
        (["policy", "mine:Bandit"], "policy 'mine:Bandit' cannot be loaded"),
        (["policy", "garbled:Bandit"], "garbled.py:1"),
        (["policy", "faulty:Bandit"], "raised NameError: name 'list_of_what' is not defined"),
        (["policy", "evolutionry"], "did you mean 'evolutionary'"),
        (["policy", "mine:Sound", "--option", "shore=0.25"], "did you mean 'share'"),
        (["policy", "mine:Sound", "--only", "same-sead"], "did you mean 'same-seed'"),
        (["policy", "mine:Picky"], "if it supports only certain spaces, specify one"),
        (["costmodel", "ridge", "--workload", "gemm:8x8x8"], "omit --space"),
        (["space", "guided-conv2d", "--workload", "gemm:8x8x8"], "rejected gemm:8x8x8"),
        (["space", "sketch", "--workload", "gem:8x8x8"], "did you mean 'gemm'"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(words: list[str], message: str, home: Path) -> None:
    result = check(home, *words)
    assert result.returncode == 2, result.stdout
    assert message in result.stderr and "Traceback" not in result.stderr


def test_pytest_is_only_imported_by_its_own_module() -> None:
    code = "import sys, searchlab.conformance; print('pytest' in sys.modules, 'tvm' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["False", "False"]


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ("Unchecked", ["for {'width':", "ScheduleError:", '"parallel" cannot be fulfilled', "mine.py:"]),
        ("Refusing", ["none of 2 random configs has a program", "because: it is too wide"]),
    ],
)
def test_a_failing_schedule_is_reported_with_its_config(home: Path, space: str, message: list[str]) -> None:
    result = check(home, "space", f"mine:{space}", "--only", "schedules", "--workload", "gemm:64x64x64")
    assert result.returncode == 1
    for text in message:
        assert text in result.stdout, result.stdout
