"""Surrogates that answer in place of the machine."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import searchlab
from searchlab.analysis import report, summary_table
from searchlab.errors import SearchlabError
from searchlab.log.format import read_header, read_log
from searchlab.measure.surrogate.measurer import SurrogateMeasurer
from searchlab.measure.surrogate.trees import Trees
from searchlab.measure.table import TableMeasurer
from searchlab.run.tune import tune
from searchlab.tables.surrogate.train import train
from tests.support import toys
from tests.support.logs import decided
from tests.support.surrogates import SMALL, SPACE, log_seconds, noisy, passed_gate, write_log

pytestmark = pytest.mark.usefixtures("trusting")


@pytest.fixture(scope="module")
def passed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("surrogates")
    with searchlab.trusting():
        train([write_log(folder / "a.jsonl")], folder / "small", SMALL, [passed_gate()])
    return folder / "small"


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("surrogates")
    with searchlab.trusting():
        train([write_log(folder / "a.jsonl")], folder / "small", SMALL)
    return folder / "small"


def run(log: Path, path: Path, **more: Any) -> Path:
    options = {"policy": "evolutionary", "trials": 40, "batch": 7, "seed": 1}
    given_options = {**options, **{name: more.pop(name) for name in list(more) if name in options}}
    measure = {"kind": "surrogate", "path": str(path), **more}
    tune("gemm:64x64x64", space=SPACE, log=log, measure=measure, **given_options)
    return log


def test_it_answers_much_as_the_machine_did(passed: Path) -> None:
    space = toys.Small()
    configs = list(space.enumerate())
    with SurrogateMeasurer([passed]) as measurer:
        answers = list(measurer.measure(space, configs))
        assert answers == [next(iter(measurer.measure(space, [config]))) for config in configs]
        assert measurer.workers == 2
    truth = [noisy(config) for config in configs]
    assert [one.failure for one in answers] == [one.failure for one in truth]
    fine = [(a, b) for a, b in zip(answers, truth, strict=True) if b.failure is None]
    errors = [log_seconds(a) - log_seconds(b) for a, b in fine]
    assert np.std(errors) < 0.3 * np.std([log_seconds(b) for _, b in fine])
    assert all(a.build_seconds == pytest.approx(0.25, rel=0.01) for a, _ in fine)
    assert all(a.run_seconds == pytest.approx(20 * a.cost, rel=0.5) for a, _ in fine)
    assert next(a for a in answers if a.failure).run_seconds == 3.0


def test_noise_is_drawn_from_the_seed_and_resuming_gives_the_same_log(passed: Path, tmp_path: Path) -> None:
    whole = run(tmp_path / "whole.jsonl", passed, noise=True)
    for trials in (3, 21, 40):
        run(tmp_path / "steps.jsonl", passed, noise=True, trials=trials)
    assert decided(tmp_path / "steps.jsonl") == decided(whole)
    other = run(tmp_path / "other.jsonl", passed, noise=True, seed=2)
    seen = {trial.config: trial.measurement for trial in read_log(whole).trials}
    both = [
        (seen[t.config], t.measurement)
        for t in read_log(other).trials
        if t.config in seen and not t.measurement.failure
    ]
    assert both and all(len(a.seconds) == 3 and a.seconds != b.seconds for a, b in both)
    spreads = [np.std(np.log(one.seconds), ddof=1) for one in seen.values() if not one.failure]
    assert 0.01 < np.median(spreads) < 0.04  # recorded: repeats 2 % apart


def test_a_failed_gate_is_refused_or_accepted_and_then_said_on_top(failed: Path, passed: Path, tmp_path: Path) -> None:
    with pytest.raises(SearchlabError, match='failed its gate: no gate was measured .* set accept = "failed gate"'):
        run(tmp_path / "a.jsonl", failed)
    log = run(tmp_path / "logs" / "a.jsonl", failed, accept="failed gate")
    header = read_header(log)
    assert header.surrogate is not None and len(header.surrogate.failed) == 1
    summary = report(tmp_path / "logs")
    (caveat,) = summary.caveats
    assert "failed its gate (no gate was measured" in caveat
    assert caveat in str(summary_table(summary)[0])
    page = (tmp_path / "logs" / "report" / "report.html").read_text()
    assert page.index(caveat) < page.index('id="verdict"')
    run(tmp_path / "good" / "a.jsonl", passed)
    fine = report(tmp_path / "good")
    assert fine.caveats == [] and any("passed its gate" in note for note in fine.workloads[0].notes)


def test_a_log_belongs_to_one_surrogate_and_is_no_table(passed: Path, failed: Path, tmp_path: Path) -> None:
    log = run(tmp_path / "logs" / "a.jsonl", passed, accept="failed gate")
    with pytest.raises(SearchlabError, match="a.jsonl is the log of another run"):
        run(log, failed, accept="failed gate")
    with pytest.raises(SearchlabError, match="are predictions of a surrogate, and no measurements"):
        TableMeasurer([log])


def test_another_space_and_two_of_one_space_are_refused(passed: Path, failed: Path, tmp_path: Path) -> None:
    space = toys.Dependent()
    with pytest.raises(SearchlabError, match="no surrogate in .* is of this space"):
        SurrogateMeasurer([passed]).measure(space, [])
    with pytest.raises(SearchlabError, match="are surrogates of the same space"):
        SurrogateMeasurer([passed, failed], accept_failed=True)
    with pytest.raises(SearchlabError, match="there is no surrogate"):
        SurrogateMeasurer([tmp_path])


@pytest.mark.parametrize("damage", ["cut", "other", "absent", "digest", "outside"])
def test_damage_is_one_sentence(damage: str, tmp_path: Path) -> None:
    train([write_log(tmp_path / "a.jsonl")], tmp_path / "small", SMALL, [passed_gate()])
    model = tmp_path / "small" / "models" / "seconds-0.npz"
    manifest = tmp_path / "small" / "surrogate.json"
    if damage == "cut":
        manifest.write_bytes(manifest.read_bytes()[:-9])
    elif damage == "other":
        model.write_bytes(model.read_bytes()[:-1] + b"x")
    elif damage == "absent":
        model.unlink()
    elif damage == "digest":
        manifest.write_text(manifest.read_text().replace('"models/seconds-0.npz"', '"models/x.npz"'))
    else:
        manifest.write_text(manifest.read_text().replace('"models/seconds-0.npz"', '"../x.npz"'))
    with pytest.raises(SearchlabError, match=r"small"):
        list(SurrogateMeasurer([tmp_path / "small"]).measure(toys.Small(), list(toys.Small().enumerate())[:3]))


# --- trees ------------------------------------------------------------------------------------------


def booster(seed: int, classes: int = 1) -> tuple[lightgbm.Booster, np.ndarray]:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(120, 4)).round(1)
    rows[:, 1:][rng.random((120, 3)) < 0.2] = np.nan
    total = np.nansum(rows, axis=1)
    labels = total if classes == 1 else np.digitize(total, [-1.0, 1.0])
    objective = {"objective": "regression"} if classes == 1 else {"objective": "multiclass", "num_class": classes}
    parameters = {**objective, "verbosity": -1, "num_threads": 1, "min_data_in_leaf": 3}
    return lightgbm.train(parameters, lightgbm.Dataset(rows, labels), 15), rows


@settings(max_examples=10)
@given(st.integers(0, 10_000), st.sampled_from([1, 3]))
def test_trees_predict_as_lightgbm_does(seed: int, classes: int) -> None:
    trained, rows = booster(seed, classes)
    rows = np.vstack([rows, np.full((1, 4), np.nan), np.random.default_rng(seed).normal(size=(600, 4))])
    trees = Trees.from_bytes(Trees.of(trained).to_bytes(), 4, classes)
    assert trees.predict(rows) == pytest.approx(trained.predict(rows, raw_score=True), abs=1e-9)


@pytest.mark.parametrize(
    ("name", "value"),
    [("left", 0), ("right", 1 << 20), ("feature", 4), ("roots", -1), ("value", math.nan), ("classes", 2)],
)
def test_trees_that_would_not_end_or_reach_outside_are_refused(name: str, value: float) -> None:
    arrays = {key: np.array(array) for key, array in vars(Trees.of(booster(0)[0])).items()}
    arrays[name][...] = value
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    for data in (file.getvalue(), file.getvalue()[:50], b""):
        with pytest.raises(SearchlabError):
            Trees.from_bytes(data, 4, 1)
