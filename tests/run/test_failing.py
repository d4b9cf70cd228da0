"""A plug-in that fails ends its run with one sentence that names it; the log stays intact."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from searchlab.conformance import policy_checks, run_checks, toys
from searchlab.errors import SearchlabError
from searchlab.log.format import Record
from searchlab.log.read import read_log
from searchlab.log.writer import LogWriter, check_log
from searchlab.run.study import Study
from searchlab.run.tune import tune
from searchlab.space import Choose, Config, Knob
from tests.support.cli import run_python, searchlab
from tests.support.failing import MODEL_FAULTS
from tests.support.logs import HEADER, write_table

FILE = "tests/support/failing.py"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_table(tmp_path / "table.jsonl", toys.Small(), toys.simulate_smooth)


def run(table: Path, log: Path, policy: str | dict[str, Any], **options: Any) -> None:
    tune(
        toys.WORKLOAD,
        space=toys.Small(),
        policy=policy,
        log=log,
        trials=16,
        batch=4,
        measure={"kind": "table", "path": str(table)},
        **options,
    )


@pytest.mark.parametrize("how", MODEL_FAULTS)
@pytest.mark.parametrize("policy", ["xgb", "evolutionary-model", "autotvm-xgb"])
def test_a_cost_model_that_breaks_its_contract_is_named(table: Path, tmp_path: Path, policy: str, how: str) -> None:
    log = tmp_path / "a.jsonl"
    model = {"name": "tests.support.failing:BadModel", "options": {"how": how}}
    options = {"plan_size": 4} if policy == "autotvm-xgb" else {"n_startup": 4}
    with pytest.raises(SearchlabError, match="cost model 'tests.support.failing:BadModel'") as caught:
        run(table, log, {"name": policy, "options": options}, cost_model=model)
    assert "\n" not in str(caught.value)
    assert f"{FILE}:" in str(caught.value)
    if how.startswith("raises"):
        assert f"failed in {how.split()[-1]}" in str(caught.value)
    else:
        assert "broke its contract" in str(caught.value)
    assert not check_log(log).problems and len(read_log(log).records) == 4


@pytest.mark.parametrize(
    ("how", "where", "trials"),
    [
        ("constructor", "its constructor: KeyError: 'no such thing'", 0),
        ("ask", "ask: ValueError", 4),
        ("exit", "ask: SystemExit", 4),
        ("own", "ask: NotAnException", 4),
        ("length", "ask: ValueError: __len__", 4),
        ("tell", "tell: IndexError", 4),
        ("none", "a list of configs and returned None", 4),
        ("numbers", r"a list of configs and returned \[1, 2\]", 4),
    ],
)
def test_a_policy_that_fails_is_named_with_the_line(
    table: Path, tmp_path: Path, how: str, where: str, trials: int
) -> None:
    log = tmp_path / "a.jsonl"
    with pytest.raises(SearchlabError, match=f"'tests.support.failing:BadPolicy'.*{where}") as caught:
        run(table, log, {"name": "tests.support.failing:BadPolicy", "options": {"how": how}})
    assert "\n" not in str(caught.value)
    if "returned" not in where:
        assert f"{FILE}:" in str(caught.value)
    assert log.exists() == bool(trials)
    if trials:
        assert not check_log(log).problems and len(read_log(log).records) == trials


def test_a_policy_that_fails_in_a_job_is_named_too(table: Path, tmp_path: Path) -> None:
    study = Study.from_dict(
        {
            "workloads": ["gemm:64x64x64"],
            "spaces": [{"name": "searchlab.conformance.toys:Small"}],
            "policies": [{"name": "tests.support.failing:BadPolicy", "options": {"how": "ask"}}],
            "seeds": 2,
            "trials": 12,
            "target": {"kind": "llvm"},
            "measure": {"kind": "table", "path": str(table)},
        }
    )
    with pytest.raises(SearchlabError, match=f"failed in ask: ValueError.*{FILE}:") as caught:
        study.run(tmp_path / "out", jobs=2)
    traceback = str(caught.value.__cause__.__cause__) if caught.value.__cause__ else ""
    assert "in ask" in traceback and "Traceback" in traceback


def test_the_command_line_shows_tracebacks_on_request(table: Path, tmp_path: Path) -> None:
    words = [
        "tune",
        "gemm:64x64x64",
        "--space",
        "searchlab.conformance.toys:Small",
        "--policy",
        "tests.support.failing:BadPolicy,how=tell",
        "--log",
        tmp_path / "a.jsonl",
        "--target",
        '{"kind": "llvm"}',
        "--measure",
        json.dumps({"kind": "table", "path": str(table)}),
    ]
    short = searchlab(*words)
    assert short.returncode == 2
    *_, line = short.stderr.splitlines()  # earlier lines report slow steps
    assert line.startswith("error: policy 'tests.support.failing:BadPolicy' failed in tell: IndexError")
    long = searchlab(*words, "--traceback")
    assert long.returncode == 2 and long.stderr.splitlines()[-1] == line
    assert "np.zeros(2)[5]" in long.stderr


def test_a_module_that_raises_as_it_is_imported_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: Path
) -> None:
    (tmp_path / "raises_at_import.py").write_text("raise OverflowError('never')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SearchlabError, match="policy 'raises_at_import:Any' cannot be loaded.*OverflowError: never"):
        run(table, tmp_path / "a.jsonl", "raises_at_import:Any")


# --- what a policy may do to its process ------------------------------------------------------------------------


def words(table: Path, log: Path, how: str) -> list[Any]:
    return [
        "tune",
        "gemm:64x64x64",
        "--space",
        "searchlab.conformance.toys:Small",
        "--policy",
        f"tests.support.failing:BadPolicy,how={how}",
        "--log",
        log,
        "--target",
        '{"kind": "llvm"}',
        "--trials",
        "16",
        "--batch",
        "4",
        "--measure",
        json.dumps({"kind": "table", "path": str(table)}),
    ]


def test_only_the_process_that_opened_a_log_writes_it(table: Path, tmp_path: Path) -> None:
    """The forked child of a policy continues as if it were the run."""
    sound, log = tmp_path / "whole.jsonl", tmp_path / "a.jsonl"
    run(table, sound, {"name": "tests.support.failing:BadPolicy", "options": {"how": "sound"}})
    code = (
        "from pathlib import Path\nfrom tests.run.test_failing import run\n"
        f"run(Path({str(table)!r}), Path({str(log)!r}), "
        "{'name': 'tests.support.failing:BadPolicy', 'options': {'how': 'forks'}}, progress=False)"
    )
    result = run_python("-c", code)  # without bars, whose thread a fork would lack
    assert result.returncode == 0 and "this process is a fork" in result.stderr
    assert not check_log(log).problems
    existing = read_log(log)
    assert [record.config for record in existing.records] == [record.config for record in read_log(sound).records]
    assert all(record.propose_seconds >= 0 <= record.train_seconds for record in existing.records)


def test_negative_seconds_are_not_written(tmp_path: Path) -> None:
    with LogWriter(tmp_path / "a.jsonl", HEADER) as writer:
        with pytest.raises(SearchlabError, match=r"trial 0 has an invalid time of -1 s"):
            writer.append(Record(index=0, config={}, propose_seconds=-1.0))
        writer.append(Record(index=0, config={}))


def test_the_check_of_a_policy_that_does_not_answer_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = {"name": "tests.support.failing:BadPolicy", "options": {"how": "endless"}}
    checks = policy_checks(policy, time_limit=0.3)
    failed = [outcome for outcome in run_checks(checks) if outcome.status == "FAIL"]
    assert failed and all("it was still running after 0.3 s, at" in failed[0].text for _ in failed)


# --- spaces ---------------------------------------------------------------------------------------------------


class Raises(toys.Small):
    def decide(self, choose: Choose) -> Config:
        raise ZeroDivisionError("no knobs")


class RaisesLate(toys.Small):
    calls = 0

    def decide(self, choose: Choose) -> Config:
        self.calls += 1
        if self.calls > 40:
            raise ZeroDivisionError("no knobs")
        return super().decide(choose)


class Varies(toys.Small):
    calls = 0

    def decide(self, choose: Choose) -> Config:
        self.calls += 1
        return Config([(f"knob{self.calls}", choose(Knob(f"knob{self.calls}", [1, 2])))])


class VariesLate(Varies):
    def decide(self, choose: Choose) -> Config:
        if self.calls > 40:
            return super().decide(choose)
        self.calls += 1
        return toys.Small.decide(self, choose)


@pytest.mark.parametrize(
    ("space", "match"),
    [
        (Raises, "failed in decide: ZeroDivisionError: no knobs"),
        (RaisesLate, "failed in decide: ZeroDivisionError: no knobs"),
        (Varies, "broke its contract: decide\\(\\) returned the config"),
        (
            VariesLate,
            "broke its contract: decide\\(\\) returned the config|broke its contract: it was asked for configs of",
        ),
    ],
)
def test_a_space_that_raises_or_varies_is_named_with_the_line(
    tmp_path: Path, table: Path, space: type[toys.Small], match: str
) -> None:
    with pytest.raises(SearchlabError, match=match) as caught:
        tune(
            toys.WORKLOAD,
            space=space(),
            policy="random",
            log=tmp_path / "a.jsonl",
            trials=32,
            batch=4,
            measure={"kind": "table", "path": str(table)},
        )
    assert "\n" not in str(caught.value) and f"{space.__name__}'" in str(caught.value)
    assert "test_failing.py:" in str(caught.value)


# --- what is trained where ---------------------------------------------------------------------------------------


def test_training_within_propose_is_charged_as_training(table: Path, tmp_path: Path) -> None:
    shares = {}
    for when in ("tell", "propose"):
        log = tmp_path / f"{when}.jsonl"
        run(
            table,
            log,
            {"name": "tests.support.failing:Trains", "options": {"when": when}},
            cost_model="tests.support.failing:Slow",
        )
        last = read_log(log).records[-1]
        shares[when] = last.train_seconds, last.propose_seconds
    for train, propose in shares.values():
        assert train * 4 > 0.04 and propose < train / 2
