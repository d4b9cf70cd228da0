"""Published claims in a study: the verdict follows from the runs, and reports show it everywhere."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest

import searchlab
from searchlab.analysis import read_runs, report, summarize
from searchlab.analysis.claims import ClaimVerdict, judge_claims
from searchlab.errors import SearchlabError
from searchlab.log.plan import Claim, write_plan
from searchlab.run.study import Study
from tests.support.analysis.logs import write

SEEDS = range(4)
Curve = Callable[[int, int], Sequence[Any]]
"""workload and seed -> the GFLOPS of each trial"""


def study(directory: Path, workloads: int = 12, **strategies: Curve) -> Path:
    for name, curve in strategies.items():
        for workload in range(workloads):
            for seed in SEEDS:
                write(directory, name, seed, curve(workload, seed), workload=f"gemm:100x100x{50 + workload}")
    return directory


def claim(strategy: str = "a", against: str | list[str] = "b", **more: Any) -> Claim:
    return Claim(text="a is better than b.", source="A et al., figure 1", strategy=strategy, against=against, **more)


def noise(workload: int, seed: int, stream: int) -> float:
    return float(np.random.default_rng([workload, seed, stream]).normal())


def curve_near(level: float, spread: float, stream: int = 0, trials: int = 4) -> Curve:
    """Return curves that reach ``level`` at once, times a random factor for each run and another for each workload."""

    def curve(workload: int, seed: int) -> list[float]:
        factor = spread * (noise(workload, seed, stream) / 3 + noise(workload, 1000, stream))
        return [level * math.exp(factor)] * trials

    return curve


def only_verdict(verdicts: list[ClaimVerdict]) -> ClaimVerdict:
    (verdict,) = verdicts
    return verdict


@pytest.mark.parametrize(
    ("curve", "measure", "verdict"),
    [
        *((curve_near(1.2, 0.01), measure, "holds") for measure in ("best_gflops", "area")),
        *((curve_near(0.8, 0.01), measure, "fails") for measure in ("best_gflops", "area")),
        *((curve_near(1.0, 0.0005), measure, "fails") for measure in ("best_gflops", "area")),  # nothing that matters
        *((curve_near(1.2, 0.5), measure, "undecided") for measure in ("best_gflops", "area")),
    ],
)
def test_a_claim_holds_fails_or_is_undecided(curve: Curve, measure: Any, verdict: str, tmp_path: Path) -> None:
    study(tmp_path, a=curve, b=curve_near(1.0, 0.0005, 1))
    result = only_verdict(judge_claims(read_runs(tmp_path), [claim(measure=measure)]))
    assert result.verdict == verdict, result.sentence
    (pair,) = result.comparands
    assert (pair.workloads, pair.seeds, pair.scope) == (12, len(SEEDS), "workloads like these")
    assert pair.lower is not None and pair.upper is not None and pair.lower <= pair.value <= pair.upper


@pytest.mark.parametrize(
    ("level", "spread", "relation", "verdict"),
    [
        (1.0, 0.0005, "level", "holds"),
        (1.2, 0.01, "level", "fails"),
        (1.01, 0.05, "level", "undecided"),
        (1.0, 0.0005, "no worse", "holds"),
        (1.2, 0.01, "no worse", "holds"),
        (0.8, 0.01, "no worse", "fails"),
        (1.01, 0.05, "no worse", "undecided"),
    ],
)
def test_claims_of_equality(level: float, spread: float, relation: Any, verdict: str, tmp_path: Path) -> None:
    study(tmp_path, a=curve_near(level, spread), b=curve_near(1.0, 0.0005, 1))
    equality = claim(measure="best_gflops", relation=relation)
    assert only_verdict(judge_claims(read_runs(tmp_path), [equality])).verdict == verdict


@pytest.mark.parametrize(
    ("options", "margin"),
    [({"measure": "best_gflops"}, "1 %"), ({"measure": "best_gflops", "margin": 0.025}, "2.5 %"), ({}, "0.01")],
)
def test_a_verdict_names_the_margin(options: dict[str, Any], margin: str, tmp_path: Path) -> None:
    study(tmp_path, a=curve_near(1.0, 0.0005), b=curve_near(1.0, 0.0005, 1))
    assert f" (margin {margin}); p" in only_verdict(judge_claims(read_runs(tmp_path), [claim(**options)])).sentence


def test_a_ratio_is_the_geometric_mean_of_what_the_runs_found(tmp_path: Path) -> None:
    study(tmp_path, 3, a=curve_near(1.1, 0.1), b=curve_near(1.0, 0.1, 1))
    pair = only_verdict(judge_claims(read_runs(tmp_path), [claim(measure="best_gflops")])).comparands[0]
    logs = [
        math.log(curve_near(1.1, 0.1)(workload, seed)[0] / curve_near(1.0, 0.1, 1)(workload, seed)[0])
        for workload in range(3)
        for seed in SEEDS
    ]
    assert pair.value == pytest.approx(math.exp(np.mean(logs))) and pair.scope == "these 3 workloads"
    reverse = only_verdict(judge_claims(read_runs(tmp_path), [claim("b", "a", measure="best_gflops")])).comparands[0]
    assert pair.lower is not None and reverse.upper == pytest.approx(1 / pair.lower)
    assert (reverse.ahead, reverse.behind) == (pair.behind, pair.ahead)


def test_a_run_that_misses_the_target_counts_with_its_budget(
    tmp_path: Path,
) -> None:
    def reaching(at: int) -> Curve:
        return lambda workload, seed: [1.0] * (at + seed % 2 - 1) + [2.0] * (20 - at - seed % 2 + 1)

    study(tmp_path, 3, a=reaching(4), b=lambda workload, seed: [1.0] * 20)
    result = only_verdict(judge_claims(read_runs(tmp_path), [claim(measure="trials_to_target")]))
    pair = result.comparands[0]
    assert result.verdict == "holds" and pair.value == pytest.approx(math.sqrt(4 / 20 * 5 / 20))
    assert pair.unreached == 0.5 and "50 % of the runs did not reach the target" in result.sentence
    opposite = only_verdict(judge_claims(read_runs(tmp_path), [claim("b", "a", measure="trials_to_target")]))
    assert opposite.verdict == "fails" and opposite.comparands[0].value == pytest.approx(1 / pair.value)


def test_a_claim_is_about_its_own_trials(tmp_path: Path) -> None:
    def crossing(early: float, later: float, stream: int) -> Curve:
        return lambda workload, seed: (
            [early + 0.01 * noise(workload, seed, stream)] * 4
            + [later * (1 + 0.01 * noise(workload, seed, stream))] * 4
        )

    study(tmp_path, 3, a=crossing(2, 2.5, 0), b=crossing(1, 3, 1))
    claims = [claim(measure="best_gflops", trials=trials) for trials in (4, 8, 9)]
    early, later, beyond = judge_claims(read_runs(tmp_path), claims)
    assert early.verdict == "holds" and "after 4 trials" in early.sentence
    assert later.verdict == "fails" and later.comparands[0].value == pytest.approx(2.5 / 3, rel=0.01)
    assert beyond.verdict == "untested" and "no workload has runs of both with enough trials" in beyond.sentence


def test_a_claim_in_seconds(tmp_path: Path) -> None:
    def slow(directory: Path, name: str, spent: float, level: float) -> None:
        for seed in SEEDS:
            curve = [level * (1 + 0.01 * noise(0, seed, int(spent)))] * 3 + [level * 10] * 7
            write(directory, name, seed, curve, spent=(0, 0, 0, spent))

    slow(tmp_path, "a", 1.0, 1.0)
    slow(tmp_path, "b", 4.0, 1.5)
    quick, later = judge_claims(
        read_runs(tmp_path), [claim(measure="best_gflops", seconds=seconds) for seconds in (5.0, 11.0)]
    )
    assert quick.verdict == "holds", "a is in its fifth trial, b in its second"
    assert later.verdict == "untested", "a ended after 10 seconds"


def test_each_opponent_must_be_beaten(tmp_path: Path) -> None:
    study(
        tmp_path,
        a=curve_near(1.2, 0.01),
        b=curve_near(1.0, 0.01, 1),
        c=curve_near(1.5, 0.01, 2),
        d=curve_near(1.2, 0.5, 3),
    )
    claims = [claim(against=against, measure="best_gflops") for against in ("b", ["b", "d"], ["b", "d", "c"])]
    results = judge_claims(read_runs(tmp_path), claims)
    assert [result.verdict for result in results] == ["holds", "undecided", "fails"]
    assert [result.sentence.split(":")[0] for result in results] == ["a against b", "a against d", "a against c"]


def test_many_claims_are_corrected_together(tmp_path: Path) -> None:
    study(tmp_path, a=curve_near(1.02, 0.03), b=curve_near(1.0, 0.0005, 1))
    runs, faster = read_runs(tmp_path), claim(measure="best_gflops")
    single, among = judge_claims(runs, [faster])[0], judge_claims(runs, [faster] * 3)[0]
    assert single.comparands[0].p and among.comparands[0].p == pytest.approx(3 * single.comparands[0].p)
    assert among.comparands[0].lower == single.comparands[0].lower


def test_equal_runs_from_every_seed_can_support_a_claim(tmp_path: Path) -> None:
    for workload in range(12):
        for seed in SEEDS:
            where = f"gemm:100x100x{50 + workload}"
            shared = [f"{index}" for index in range(8)]
            write(tmp_path, "a", seed, [1.2 + workload / 1000] * 8, workload=where, shared=shared)
            write(tmp_path, "b", seed, curve_near(1.0, 0.01)(workload, seed), workload=where)
    result = only_verdict(judge_claims(read_runs(tmp_path), [claim(measure="best_gflops")]))
    assert result.verdict == "holds" and result.comparands[0].seeds == len(SEEDS)


def test_runs_without_success_count_as_the_slowest(tmp_path: Path) -> None:
    def failing(workload: int, seed: int) -> list[Any]:
        return ["run_error"] * 4 if seed == 0 else [1.0 + 0.01 * seed] * 4

    study(tmp_path, 2, a=failing, b=lambda workload, seed: [0.5 + 0.01 * seed] * 4)
    pair = only_verdict(judge_claims(read_runs(tmp_path), [claim(measure="best_gflops")])).comparands[0]
    expected = [0.0, *(math.log((1 + 0.01 * seed) / (0.5 + 0.01 * seed)) for seed in SEEDS[1:])]
    assert pair.value == pytest.approx(math.exp(np.mean(expected)))


def test_a_strategy_without_runs_is_untested(tmp_path: Path) -> None:
    study(tmp_path, 2, a=curve_near(1.0, 0.1))
    result = only_verdict(judge_claims(read_runs(tmp_path), [claim()]))
    assert result.verdict == "untested" and result.sentence == "a against b: there are no runs of b here."


def test_every_measure_of_claims_has_a_number_for_each_seed(tmp_path: Path) -> None:
    study(tmp_path, 1, a=curve_near(1.0, 0.1))
    row = summarize(read_runs(tmp_path)).workloads[0].strategies[0]
    for measure in get_args(get_type_hints(Claim)["measure"]):
        assert len(getattr(row, measure).by_seed) == len(SEEDS)


def test_reports_show_claims_everywhere(tmp_path: Path) -> None:
    study(tmp_path, 2, a=curve_near(1.2, 0.01), b=curve_near(1.0, 0.01, 1))
    published = claim(measure="best_gflops", published="1.3 times <faster>")
    write_plan(tmp_path, [], [published])
    summary = report(tmp_path, everything=True)
    assert [verdict.verdict for verdict in summary.claims] == ["holds"] and summary.claims[0].claim == published
    out = tmp_path / "report"
    verdicts = json.loads((out / "summary.json").read_text())["claims"]
    assert verdicts[0]["verdict"] == "holds" and verdicts[0]["claim"]["source"] == "A et al., figure 1"
    with (out / "published_claims.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert (row["claim"], row["against"], row["claim_verdict"], row["verdict"]) == ("1", "b", "holds", "holds")
    assert float(row["value"]) == summary.claims[0].comparands[0].value
    page = (out / "report.html").read_text()
    assert "holds: a is better than b." in page and "Published: 1.3 times &lt;faster&gt;" in page
    frame = searchlab.compare(tmp_path / "gemm-100x100x50-knob-a-0.jsonl").published_claims_frame()
    assert frame.empty, "claims belong to a study's directory"


STUDY = {
    "workloads": ["gemm:64x64x64"],
    "spaces": [{"name": "searchlab.conformance.toys:Small", "label": "small"}],
    "policies": ["random", "grid"],
    "target": {"kind": "llvm"},
}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"against": "grit"}, "claims refer to the strategy 'grit', which is not in the study; did you mean 'grid'"),
        (
            {"against": "random"},
            "a claim must compare a strategy with one or more other strategies, not 'random' with 'random'",
        ),
        ({"against": []}, "a claim must compare a strategy with one or more"),
        ({"measure": "speed"}, "speed"),
        ({"margin": 0.0}, "margin"),
        ({"trials": 0}, "trials"),
        ({"published_by": "me"}, "published_by"),
    ],
)
def test_wrong_claims_are_refused(wrong: dict[str, Any], message: str) -> None:
    entry = {"text": "t", "source": "s", "strategy": "random", "against": "grid", **wrong}
    with pytest.raises(SearchlabError, match=message):
        Study.from_dict({**STUDY, "claims": [entry]}).plan()


def test_options_tuned_on_a_test_split_are_refused() -> None:
    def study(tuned_on: str) -> Study:
        entry = {"name": "random", "label": "tuned", "tuned_on": tuned_on}
        return Study.from_dict({**STUDY, "policies": ["grid", entry]})

    assert study("v1/dev").plan().runs
    with pytest.raises(SearchlabError, match="must not be tuned on a test split, such as v1/test"):
        study("v1/test")
