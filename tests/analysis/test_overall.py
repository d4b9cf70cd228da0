from __future__ import annotations

import csv
import html
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from searchlab.analysis import report
from searchlab.analysis.read import read_runs
from searchlab.analysis.summary import Overall, summarize
from searchlab.analysis.verdict import UNFINISHED_SENTENCE, Outcome, write_answer
from searchlab.run.study import Study
from tests.support.analysis.logs import write

WORKLOADS = ["gemm:100x100x50", "gemm:64x64x64"]


def study(directory: Path) -> Path:
    for workload in WORKLOADS:
        for seed in range(4):
            write(directory, "random", seed, [1, 2, 3 + seed, 4 + seed], workload=workload)
            write(directory, "good", seed, [8, 9, 9 + seed, 16], workload=workload)
    return directory


def summarize_overall(directory: Path) -> Overall | None:
    return summarize(read_runs(directory)).overall


def test_numbers_over_two_workloads(tmp_path: Path) -> None:
    facts = summarize_overall(study(tmp_path))
    assert facts is not None and facts.workloads == WORKLOADS
    good, random = facts.strategies
    assert (good.strategy, random.strategy) == ("good", "random")
    areas = np.array([(8 + 9 + 9 + seed + 16) / 64 for seed in range(4)] * 2)
    assert good.area.value == pytest.approx(areas.mean())
    assert good.area.lower < good.area.value < good.area.upper
    assert good.score is not None and random.score is not None and good.score.value > random.score.value
    (contrast,) = facts.contrasts
    assert (contrast.first, contrast.second, contrast.runs) == ("good", "random", 8)
    assert contrast.test == "paired-t" and contrast.p is not None and contrast.p < 1e-8
    assert contrast.adjusted_p == pytest.approx(contrast.p * 3), "the pair is tested on each workload, too"
    assert contrast.effect == pytest.approx(np.mean([(36 - 10 - seed) / 64 for seed in range(4)]), abs=0.1)
    assert contrast.difference.value == contrast.effect and contrast.difference.ahead == 2
    assert facts.ranks == {"good": 1, "random": 2}
    assert facts.standing.outcome is Outcome.AHEAD and list(facts.standing.behind) == ["random"]
    assert facts.verdict.startswith(
        "good is significantly better than random across 2 workloads by mean area under the curve (p < 0.001). "
        "Mean area under the curve: good 0.6"
    )
    claim = write_answer(contrast, "area under the curve")
    assert claim.startswith("good is better than random: area under the curve +0.") and claim in facts.verdict
    assert "corrected p < 0.001 on these 2 workloads" in claim


def test_one_seed_has_no_interval(tmp_path: Path) -> None:
    for workload in WORKLOADS:
        write(tmp_path, "a", 0, [1, 2], workload=workload)
        write(tmp_path, "b", 0, [1, 1], workload=workload)
    report(tmp_path)
    facts = summarize_overall(tmp_path)
    assert facts is not None and facts.standing.untested == {"b": "one seed in common"}
    assert facts.verdict.startswith(
        "No winner across 2 workloads. There is no test of a against b (one seed in common). "
        "Mean area under the curve: a 0.750, b 0.500. a is not tested against b: area under the curve +0.250"
    )
    assert "[0.750, 0.750]" not in (tmp_path / "report" / "report.html").read_text()


def test_only_strategies_and_seeds_that_all_workloads_have(tmp_path: Path) -> None:
    write(study(tmp_path), "extra", 0, [5.0, 5.0, 5.0, 5.0])
    write(tmp_path, "good", 9, [5.0, 5.0, 5.0, 5.0], workload=WORKLOADS[0])
    facts = summarize_overall(tmp_path)
    assert facts is not None
    assert [row.strategy for row in facts.strategies] == ["good", "random"] and facts.contrasts[0].runs == 8


def test_a_run_that_stopped_early_reaches_the_verdict(tmp_path: Path) -> None:
    write(study(tmp_path), "good", 4, [1.0], workload=WORKLOADS[1])
    facts = summarize_overall(tmp_path)
    assert facts is not None and facts.standing.leader == "good"
    assert " Some runs are not complete, so this may change. " in facts.verdict
    assert facts.contrasts[0].runs == 8


def test_answers_are_provisional_while_runs_are_missing(tmp_path: Path) -> None:
    """Once, an answer in the middle of a study looked final."""
    spec = {"suite": "v1/gemm-255x129x65-guided-1t", "policies": ["random", "grid"], "trials": 4, "seeds": 3}
    Study.from_dict({**spec, "contrasts": [["grid", "random"]]}).run(tmp_path, progress=False)
    [answer] = summarize(read_runs(tmp_path)).answers
    assert UNFINISHED_SENTENCE not in answer.sentence
    next(tmp_path.rglob("seed2.jsonl")).unlink()
    summary = summarize(read_runs(tmp_path))
    assert (
        summary.answers[0].sentence.endswith(UNFINISHED_SENTENCE)
        and UNFINISHED_SENTENCE in summary.workloads[0].verdict
    )


def test_a_strategy_with_few_seeds_costs_the_others_none(tmp_path: Path) -> None:
    study(tmp_path)
    for workload in WORKLOADS:
        write(tmp_path, "thin", 0, [1, 1, 1, 1], workload=workload)
    facts = summarize_overall(tmp_path)
    assert facts is not None
    assert {(c.first, c.second): c.runs for c in facts.contrasts} == {
        ("good", "random"): 8,
        ("good", "thin"): 2,
        ("random", "thin"): 2,
    }


def test_there_is_none_without_two_to_compare(tmp_path: Path) -> None:
    write(tmp_path, "a", 0, [1])
    write(tmp_path, "b", 0, [1])
    assert summarize_overall(tmp_path) is None, "one workload"
    write(tmp_path, "a", 0, [1], workload=WORKLOADS[1])
    assert summarize_overall(tmp_path) is None, "one strategy in common"
    write(tmp_path, "b", 1, [1], workload=WORKLOADS[1])
    assert summarize_overall(tmp_path) is None, "no seed in common"
    for strategy in "ab":
        write(tmp_path, strategy, 3, [1], workload=WORKLOADS[1])
    assert summarize_overall(tmp_path) is not None


def test_eleven_workloads_carry_a_claim_on_others(tmp_path: Path) -> None:
    for number in range(11):
        for name, ahead in (("a", 1.0), ("b", 0.0), ("c", -0.5)):
            for seed in range(2):
                throughputs = [1 + ahead, 4 + ahead * (1 + 0.1 * ((number + 2 * seed) % 5)), 8.0, 10.0]
                write(tmp_path, name, seed, throughputs, workload=f"gemm:100x100x{50 + number}")
    summary = report(tmp_path)
    assert summary.overall is not None
    assert re.search(r"a is better than b: .* 0.0\d* on workloads like these\.", summary.overall.verdict)
    assert len(summary.overall.explanations) == 2
    texts = [text for explanation in summary.overall.explanations for text in (explanation.size, explanation.why)]
    page = html.unescape((tmp_path / "report" / "report.html").read_text())
    assert all(sentence in page for sentence in (*texts, summary.family.description))
    rows = pd.read_csv(tmp_path / "report" / "contrasts.csv.gz")
    assert rows["others_adjusted_p"].notna().tolist() == rows["workload"].isna().tolist()


def test_rows_over_all_workloads_are_written(tmp_path: Path) -> None:
    summary = report(study(tmp_path))
    out = tmp_path / "report"
    assert json.loads((out / "summary.json").read_text())["overall"] == summary.to_json()["overall"]
    best, _ = csv.DictReader((out / "overall.csv").open())
    assert (best["strategy"], best["rank"]) == ("good", "1.0") and float(best["score"]) > 0.5
    rows = pd.read_csv(out / "contrasts.csv.gz", keep_default_na=False).to_dict("records")
    assert [row["workload"] for row in rows] == [*WORKLOADS, ""]
    assert all(row["p"] for row in rows)
    lower, value, upper = (float(rows[-1][name]) for name in ("lower", "difference", "upper"))
    assert 0.3 < lower < value < upper < 0.6
