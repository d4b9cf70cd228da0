"""A plug-in that fails ends its run with one sentence that names it; the log stays whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from searchlab.errors import SearchlabError
from searchlab.log.format import read_log
from searchlab.log.repair import examine
from searchlab.run.study import Study
from searchlab.run.tune import tune
from tests.support import toys
from tests.support.cli import searchlab
from tests.support.failing import MODEL_FAULTS
from tests.support.logs import write_table

FILE = "tests/support/failing.py"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_table(tmp_path / "table.jsonl", toys.Small(), toys.smooth)


def run(table: Path, log: Path, policy: str | dict[str, Any], **given: Any) -> None:
    tune(
        toys.WORKLOAD, space=toys.Small(), policy=policy, log=log, trials=16, batch=4,
        measure={"kind": "table", "path": str(table)}, **given,
    )  # fmt: skip


@pytest.mark.parametrize("how", MODEL_FAULTS)
@pytest.mark.parametrize("policy", ["xgb", "evolutionary-model", "autotvm-xgb"])
def test_a_cost_model_that_breaks_its_contract_is_named(table: Path, tmp_path: Path, policy: str, how: str) -> None:
    log = tmp_path / "a.jsonl"
    model = {"name": "tests.support.failing:BadModel", "options": {"how": how}}
    options = {"plan_size": 4} if policy == "autotvm-xgb" else {"n_startup": 4}
    with pytest.raises(SearchlabError, match="cost model 'tests.support.failing:BadModel'") as caught:
        run(table, log, {"name": policy, "options": options}, cost_model=model)
    assert "\n" not in str(caught.value)
    if how.startswith("raises") or how == "words":
        assert f"failed in {how.split()[-1] if how != 'words' else 'predict'}" in str(caught.value)
        assert (FILE in str(caught.value)) == (how != "words")
    else:
        assert "broke its contract" in str(caught.value)
    assert not examine(log).problems and len(read_log(log).records) == 4


@pytest.mark.parametrize(
    ("how", "where", "trials"),
    [
        ("constructor", "its constructor: KeyError: 'no such thing'", 0),
        ("ask", "ask: ValueError", 4),
        ("exit", "ask: SystemExit", 4),
        ("tell", "tell: IndexError", 4),
        ("none", "a list of configs and gave None", 4),
        ("numbers", r"a list of configs and gave \[1, 2\]", 4),
    ],
)
def test_a_policy_that_fails_is_named_with_the_line(
    table: Path, tmp_path: Path, how: str, where: str, trials: int
) -> None:
    log = tmp_path / "a.jsonl"
    with pytest.raises(SearchlabError, match=f"'tests.support.failing:BadPolicy'.*{where}") as caught:
        run(table, log, {"name": "tests.support.failing:BadPolicy", "options": {"how": how}})
    assert "\n" not in str(caught.value)
    if "gave" not in where:
        assert f"{FILE}, line " in str(caught.value)
    assert log.exists() == bool(trials)
    if trials:
        assert not examine(log).problems and len(read_log(log).records) == trials


def test_a_policy_that_fails_in_a_job_is_named_too(table: Path, tmp_path: Path) -> None:
    study = Study.from_dict(
        {
            "workloads": ["gemm:64x64x64"], "spaces": [{"name": "tests.support.toys:Small"}],
            "policies": [{"name": "tests.support.failing:BadPolicy", "options": {"how": "ask"}}], "seeds": 2,
            "trials": 12, "target": {"kind": "llvm"}, "measure": {"kind": "table", "path": str(table)},
        }
    )  # fmt: skip
    with pytest.raises(SearchlabError, match=f"failed in ask: ValueError.*{FILE}, line ") as caught:
        study.run(tmp_path / "out", jobs=2)
    assert "in ask" in str(caught.value.__cause__) and "Traceback" in str(caught.value.__cause__)


def test_the_command_line_shows_one_sentence_and_the_traceback_where_it_is_asked_for(
    table: Path, tmp_path: Path
) -> None:
    words = [
        "tune", "gemm:64x64x64", "--space", "tests.support.toys:Small", "--policy",
        "tests.support.failing:BadPolicy,how=tell", "--log", tmp_path / "a.jsonl", "--target", '{"kind": "llvm"}',
        "--measure", json.dumps({"kind": "table", "path": str(table)}),
    ]  # fmt: skip
    short = searchlab(*words)
    assert short.returncode == 2
    (line,) = short.stderr.splitlines()
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
