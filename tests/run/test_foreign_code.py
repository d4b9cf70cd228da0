"""Plug-ins that misbehave: one sentence that names the plug-in and the method; nothing measured is lost."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import searchlab
from searchlab import Config, SearchlabError
from searchlab.conformance import toys
from searchlab.errors import SearchlabWarning
from searchlab.foreign_code import convert_foreign_errors
from searchlab.log.read import read_log
from searchlab.model.load import load_model
from searchlab.policy import NeverTwice
from searchlab.records import Trial, describe_failures
from tests.support.cli import searchlab as command
from tests.support.logs import write_table


def recurse() -> None:
    recurse()


def exhaust() -> None:
    raise MemoryError


FAULTS: dict[str, Callable[[], Any]] = {
    "exits": lambda: sys.exit(0),
    "recurses": recurse,
    "exhausts": exhaust,
    "asserts": lambda: pytest.importorskip("builtins") and (_ for _ in ()).throw(AssertionError),
}


class Faulty(NeverTwice):
    """Misbehaves in one method, after the first batch."""

    def __init__(self, space: Any, *, seed: int, method: str = "ask", fault: str = "exits") -> None:
        super().__init__(space, seed=seed)
        self.method, self.fault = method, fault

    def propose(self, n: int, rng: Any) -> Sequence[Config]:
        return []

    def ask(self, n: int) -> Sequence[Config]:
        if self.method == "ask" and self.seen:
            FAULTS[self.fault]()
        return super().ask(n)

    def tell(self, trials: Sequence[Trial]) -> None:
        if self.method == "tell" and len(self.trials) >= 4:
            FAULTS[self.fault]()
        super().tell(trials)


@pytest.mark.parametrize("method", ["ask", "tell"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_policy_that_misbehaves_is_named(method: str, fault: str, tmp_path: Path) -> None:
    table = write_table(tmp_path / "table.jsonl", toys.Small(), toys.simulate_flaky)
    log = tmp_path / "run.jsonl"
    with pytest.raises(SearchlabError, match=f"Faulty' failed in {method}"):
        searchlab.tune(
            toys.WORKLOAD,
            space=toys.Small(),
            log=log,
            trials=9,
            batch=4,
            measure={"kind": "table", "path": str(table)},
            policy={"name": Faulty, "options": {"method": method, "fault": fault}},
        )
    assert len(read_log(log).records) >= 4


class Exits(toys.Small):
    """A space that ends the process while it decides."""

    def decide(self, choose: Any) -> Config:
        sys.exit(0)


def test_a_space_that_exits_is_named() -> None:
    with pytest.raises(SearchlabError, match="failed in decide"):
        Exits().probe(1)


@pytest.mark.parametrize("call", ["sys.exit(0)", "raise KeyError(3)"])
@pytest.mark.parametrize("where", ["module", "function"])
def test_a_model_that_exits_ends_with_a_sentence(call: str, where: str, tmp_path: Path) -> None:
    body = f"import sys\n{call}\n" if where == "module" else f"import sys\ndef f():\n    {call}\n"
    (tmp_path / "mine.py").write_text(body)
    with pytest.raises(SearchlabError, match=r"mine\.py"):
        load_model(f"{tmp_path / 'mine.py'}:f")
    result = command("model", "tasks", "mine.py:f", cwd=tmp_path)
    assert result.returncode == 2 and re.search(r"mine\.py:\d", result.stderr) and "Traceback" not in result.stderr


@pytest.mark.parametrize("raised", [RuntimeError, None], ids=["replaced", "swallowed"])
def test_an_interrupt_in_foreign_code_stays_an_interrupt(raised: type[Exception] | None) -> None:
    """TVM replaces a KeyboardInterrupt in a callback by a RuntimeError without text."""
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), convert_foreign_errors(lambda error: SearchlabError(str(error))):
        try:
            os.kill(os.getpid(), signal.SIGINT)
            for _ in range(10**6):
                pass
        except KeyboardInterrupt:
            if raised is not None:
                raise raised from None
    assert signal.getsignal(signal.SIGINT) is before


def test_the_most_frequent_reason_is_quoted() -> None:
    failures: list[Any] = [("build_error", "NameError: x\nmore"), ("build_error", "NameError: x\nmore"), ("crash", "b")]
    text = describe_failures([*failures, (None, ""), ("build_error", "y")])
    assert text.startswith("build_error 3, crash 1") and "NameError: x" in text
    assert describe_failures([(None, "")]) == ""
    assert len(describe_failures([("crash", "a" * 10**4)])) < 400


def test_a_run_in_which_all_trials_fail_says_why(tmp_path: Path) -> None:
    with pytest.warns(SearchlabWarning, match="failed: run_timeout 4") as warned:
        result = searchlab.tune(
            "gemm:8x8x8",
            space="knob-template",
            policy="random",
            log=tmp_path / "run.jsonl",
            trials=4,
            batch=2,
            measure={"kind": "local", "run_timeout": 1e-6, "workers": 1},
        )
    assert sum("failed: run_timeout" in str(warning.message) for warning in warned) == 1
    with pytest.raises(SearchlabError, match="run_timeout 4; most often"):
        print(result.best)
