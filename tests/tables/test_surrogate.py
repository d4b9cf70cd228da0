"""Training surrogates, their gate, and the commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from searchlab.errors import SearchlabError
from searchlab.log.format import read_log
from searchlab.log.header import StandIn
from searchlab.measure.surrogate.manifest import Gate, ModelSettings, digest_of, read_manifest
from searchlab.tables.surrogate.gate import measure_gate
from searchlab.tables.surrogate.train import train
from tests.support import toys
from tests.support.cli import searchlab
from tests.support.surrogates import SMALL, passed_gate, write_log

pytestmark = pytest.mark.usefixtures("trusting")


def files_of(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def test_equal_logs_and_settings_give_equal_files_and_another_seed_other_models(tmp_path: Path) -> None:
    log = write_log(tmp_path / "a.jsonl")
    manifest = train([log], tmp_path / "one", SMALL, [passed_gate()])
    train([log], tmp_path / "two", SMALL, [passed_gate()])
    one = files_of(tmp_path / "one")
    assert one == files_of(tmp_path / "two")
    assert {name: digest_of(data) for name, data in one.items() if name != "surrogate.json"} == manifest.files
    assert read_manifest(tmp_path / "one") == manifest and manifest.problems == []
    (data,) = (tmp_path / "one" / "data").iterdir()
    assert read_log(data).records == read_log(log).records
    other = train([log], tmp_path / "three", ModelSettings(members=2, rounds=60, num_leaves=15, seed=1))
    assert other.files["models/seconds-0.npz"] != manifest.files["models/seconds-0.npz"]


def test_what_it_says_of_its_own_data(tmp_path: Path) -> None:
    manifest = train([write_log(tmp_path / "a.jsonl")], tmp_path / "one", SMALL)
    held_out = manifest.held_out
    assert (held_out.trained_on, held_out.tested_on, manifest.trials) == (96, 24, 120)
    assert held_out.r2 is not None and held_out.r2 > 0.9 and held_out.tau is not None and held_out.tau > 0.8
    assert manifest.failures == {"run_timeout": (0.5, 3.0)} and manifest.repeats == 3 and manifest.workers == 2
    assert manifest.problems == ["no gate was measured on a complete table of tests.support.toys:Small"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"spearman": 0.85}, "the rank correlation of policies is 0.85 on small.jsonl"),
        ({"spearman": float("nan")}, "the rank correlation of policies is nan"),
        ({"area_error_left_out": 0.03}, "the area of a policy is 0.030 off on small.jsonl, trajectories left out"),
    ],
)
def test_a_gate_of_the_same_space_that_failed_fails_the_surrogate(
    change: dict[str, Any], said: str, tmp_path: Path
) -> None:
    log = write_log(tmp_path / "a.jsonl")
    manifest = train([log], tmp_path / "one", SMALL, [passed_gate(), passed_gate(**change)])
    assert len(manifest.problems) == 1 and said in manifest.problems[0]


def test_a_gate_with_other_settings_is_refused(tmp_path: Path) -> None:
    log = write_log(tmp_path / "a.jsonl")
    with pytest.raises(SearchlabError, match="gate on small.jsonl was measured with other settings"):
        train([log], tmp_path / "one", SMALL, [passed_gate(ModelSettings(rounds=3))])
    train([log], tmp_path / "two", SMALL, [passed_gate(ModelSettings(members=2, rounds=60, num_leaves=15, seed=7))])


def test_logs_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    log = write_log(tmp_path / "a.jsonl")
    other = write_log(tmp_path / "b.jsonl", measure={"kind": "local", "repeat": 7})
    with pytest.raises(SearchlabError, match="differ in their measure"):
        train([log, other], tmp_path / "out", SMALL)
    dependent = write_log(tmp_path / "c.jsonl", toys.Dependent(), toys.smooth)
    with pytest.raises(SearchlabError, match="differ in their fingerprint"):
        train([log, dependent], tmp_path / "out", SMALL)
    predicted = write_log(tmp_path / "d.jsonl", surrogate=StandIn("ab", 3))
    with pytest.raises(SearchlabError, match="are predictions of a surrogate"):
        train([predicted], tmp_path / "out", SMALL)
    failing = write_log(tmp_path / "e.jsonl", cost=toys.all_invalid)
    with pytest.raises(SearchlabError, match="0 different configs that succeeded"):
        train([failing], tmp_path / "out", SMALL)
    with pytest.raises(SearchlabError, match="no log"):
        train([tmp_path / "out"], tmp_path / "out", SMALL) if (tmp_path / "out").mkdir() is None else None
    with pytest.raises(SearchlabError, match="is not empty"):
        train([log], tmp_path, SMALL)


POLICIES = [{"name": "random"}, {"name": "evolutionary", "batch": 4}, {"name": "annealing", "batch": 4}]


def test_the_gate_compares_policies_on_a_table_and_on_its_surrogate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("searchlab.tables.surrogate.gate.TRAINED_BY", ("evolutionary", "annealing"))
    table = write_log(tmp_path / "small.jsonl")
    gate = measure_gate(table, SMALL, seeds=3, trials=20, policies=POLICIES)
    assert gate == measure_gate(table, SMALL, seeds=3, trials=20, policies=POLICIES)
    assert gate.configs == 120 and gate.fit.trained_on == 59
    assert gate.fit.trained_on + gate.fit.tested_on == 120
    assert [one.policy for one in gate.policies] == ["random", "evolutionary", "annealing"]
    assert [one.left_out is None for one in gate.policies] == [True, False, False]
    assert all(0 < one.table <= 1 and 0 < one.surrogate <= 1 for one in gate.policies)
    assert gate.area_error == max(abs(one.table - one.surrogate) for one in gate.policies)


def test_the_gate_needs_a_complete_table(tmp_path: Path) -> None:
    for size in (None, 121):
        table = write_log(tmp_path / f"{size}.jsonl", space_size=size)
        with pytest.raises(SearchlabError, match="the gate is measured on complete tables"):
            measure_gate(table, SMALL)


def test_the_commands(tmp_path: Path) -> None:
    log = write_log(tmp_path / "a.jsonl")
    gate = tmp_path / "gate.json"
    gate.write_text(json.dumps([json.loads(_encoded(passed_gate()))]))
    options = ["--option", "members=2", "--option", "rounds=60", "--option", "num_leaves=15"]
    done = searchlab("--trust", "table", "surrogate", log, "--out", tmp_path / "one", "--gate", gate, *options)
    assert done.returncode == 0, done.stderr
    assert "passed the gate" in " ".join(done.stdout.split())
    wrong = searchlab("--trust", "table", "surrogate", log, "--out", tmp_path / "two", "--option", "round=3")
    assert wrong.returncode == 2 and "did you mean 'rounds'" in wrong.stderr
    gate.write_text("[{}]")
    wrong = searchlab("--trust", "table", "surrogate", log, "--out", tmp_path / "two", "--gate", gate)
    assert wrong.returncode == 2 and "is missing" in wrong.stderr
    wrong = searchlab("--trust", "table", "gate", write_log(tmp_path / "b.jsonl", space_size=500))
    assert wrong.returncode == 2 and "120 of 500 configs" in " ".join(wrong.stderr.split())


def _encoded(gate: Gate) -> bytes:
    import msgspec

    return msgspec.json.encode(gate)
