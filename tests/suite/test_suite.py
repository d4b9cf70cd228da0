"""Suites from the command line, their cards and manifests, and the trajectories of baselines."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st

from searchlab.analysis import Comparison, summarize
from searchlab.analysis import compare as searchlab_compare
from searchlab.conformance import toys
from searchlab.errors import SearchlabError
from searchlab.log.columns import LogColumns
from searchlab.log.format import Passes
from searchlab.log.read import RESULT_FILE_NAME, read_log
from searchlab.log.writer import compress_log, encode_log, write_log
from searchlab.measure.suite import find_suite
from searchlab.plugins import trust_plugins
from searchlab.space import SPACES
from searchlab.stats.random_search import count_draws_needed, expected_draws, parse_difficulty
from searchlab.suite import replay
from searchlab.suite.cards import TableCard
from searchlab.suite.compare import against_baselines, compute_dev_areas, group_suite_runs
from searchlab.suite.seal import seal
from searchlab.suite.trajectories import (
    Trajectories,
    collect_trajectories,
    make_trajectories_path,
    read_baselines,
    read_trajectories,
    write_trajectories,
)
from searchlab.suite.verify import verify_result, verify_suite
from tests.log.test_columns import are_equal
from tests.support.cli import imported_packages, searchlab
from tests.support.logs import write_table
from tests.support.suites import TABLES

SUITE = Path(__file__).parents[2] / "studies" / "suite" / "v1"
TOY = """
from searchlab import NeverTwice


class HillClimb(NeverTwice):
    def __init__(self, space, *, seed, restart=0.2):
        super().__init__(space, seed=seed)
        self.restart = restart

    def propose(self, n, rng):
        best = min(self.trials, key=lambda trial: trial.cost, default=None)
        for _ in range(n):
            if best is not None and rng.random() >= self.restart:
                yield self.space.mutate(best.config, rng)
"""


def problems(directory: Path, seconds: float | None = 0) -> list[str]:
    messages: list[str] = []
    right = verify_suite(find_suite(directory), lambda _, step_problems: messages.extend(step_problems), seconds)
    assert right == (not messages)
    return messages


# --- random draws -------------------------------------------------------------------------------------


@given(st.integers(1, 60), st.data())
def test_random_draws_to_a_good_config(configs: int, data: st.DataObject) -> None:
    good = data.draw(st.integers(1, configs))
    missed = [1.0]  # after t draws, by multiplication
    for t in range(configs):
        missed.append(missed[-1] * max(configs - good - t, 0) / (configs - t))
    assert expected_draws(configs, good) == pytest.approx(sum(missed[:-1])), "the sum over t of P(more than t draws)"
    enough = count_draws_needed(configs, good)
    assert missed[enough] <= 0.05 + 1e-12 and (enough == 1 or missed[enough - 1] > 0.05)


# --- cards and manifest -------------------------------------------------------------------------------


def test_a_card_holds_the_facts_of_its_table(bare: Path) -> None:
    table = find_suite(bare).table("gemm-4x6x5-knob-1t")
    card = TableCard(table)
    costs = table.log.costs
    assert (card.info.config_count, card.info.failure_count) == (
        216,
        int(np.isinf(costs).sum()),
    ) and card.info.failure_count > 0
    assert card.info.count_near_best(0.05) == int((costs <= costs.min() / 0.95).sum())
    draws = np.random.default_rng(0).permuted(np.tile(costs, (4000, 1)), axis=1)
    worst = costs[np.isfinite(costs)].max()
    sampled = np.minimum(draws[:, :10], worst).min(axis=1).mean() / costs.min() - 1
    assert card.expected_distances[10] == pytest.approx(sampled, abs=0.01)
    text = card.to_markdown()
    for fact in ("216, all of the space", "`gemm:4x6x5`", table.digest, "made up", "crash"):
        assert fact in text


def test_a_table_in_which_all_fail_has_a_card(copy: Path) -> None:
    path = copy / "tables" / "gemm-4x5x6-knob-1t.parquet"
    log = read_log(path)
    failed = (msgspec.structs.replace(record, seconds=(), failure="crash") for record in log.records)
    write_log(path, replace(log, records=tuple(failed)))
    text = TableCard(find_suite(copy).table("gemm-4x5x6-knob-1t")).to_markdown()
    assert "no config runs" in text and "144 (100.0 %)" in text


def test_a_sealed_suite_is_right_and_sealing_is_idempotent(copy: Path) -> None:
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    assert problems(copy, None) == []
    seal(find_suite(copy))
    assert before == {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}


def test_a_sealed_suite_is_a_data_set_that_other_tools_open(sealed: Path) -> None:
    croissant = json.loads((sealed / "croissant.json").read_text())
    files = {file["@id"]: file for file in croissant["distribution"]}
    for record_set in croissant["recordSet"]:
        (file,) = {field["source"]["fileObject"]["@id"] for field in record_set["field"]}
        frame = pandas.read_parquet(sealed / files[file]["contentUrl"])
        assert [field["source"]["extract"]["column"] for field in record_set["field"]] == list(frame.columns)
        assert files[file]["sha256"] == find_suite(sealed).table(record_set["name"]).digest
    assert {record_set["name"] for record_set in croissant["recordSet"]} == set(TABLES)
    card = (sealed / "README.md").read_text()
    assert card.startswith("---\nlicense: cc0-1.0\n") and "These 4 tables contain 424 measured configs" in card
    for name, (split, *_) in TABLES.items():
        assert f"- config_name: {name}\n  data_files:\n  - split: {split}\n    path: tables/{name}.parquet\n" in card


def test_every_kind_of_damage_is_named(copy: Path, sealed: Path) -> None:
    def spoilt(name: str, data: bytes | None) -> list[str]:
        path = copy / name
        old = path.read_bytes() if path.exists() else None
        path.unlink() if data is None else path.write_bytes(data)
        messages = problems(copy)
        path.unlink(missing_ok=True)
        if old is not None:
            path.write_bytes(old)
        return messages

    table = "tables/gemm-4x5x6-knob-1t.parquet"
    assert any("is missing; fetch it again" in messages for messages in spoilt(table, None))
    assert spoilt("more.txt", b"x") == ["more.txt is not in manifest.json; remove it"]
    card = "cards/gemm-4x5x6-knob-1t.md"
    changed, anew = spoilt(card, (sealed / card).read_bytes() + b"x")
    assert changed.startswith(f"{card} has changed: its SHA-256 is") and "does not match its table" in anew
    log = read_log(copy / table)
    messages = spoilt(table, encode_log(log.path, replace(log, records=log.records[:-1])))
    assert any("contains only 143 of the 144 configs in its space" in message for message in messages)
    assert any(
        "was run on a different version of mini/gemm-4x5x6-knob-1t: its SHA-256 was" in message for message in messages
    )
    toml = (copy / "suite.toml").read_text()
    messages = spoilt("suite.toml", toml.replace('split = "dev"', 'split = "test"').encode())
    assert "gemm-4x5x6-knob-1t is in the split test, but was in dev when the split was frozen" in messages
    messages = spoilt("suite.toml", toml.replace("threads = 2", "threads = 3").encode())
    assert any("was measured with 2 threads instead of 3" in message for message in messages)
    messages = spoilt("suite.toml", toml.replace('workload = "gemm:4x5x6"', 'workload = "gemm:4x5x7"').encode())
    assert any("was not measured in the space that suite.toml specifies" in message for message in messages)
    assert any("there are no trajectories" not in message for message in spoilt("baselines/xgb.runs.parquet", b"x"))
    assert problems(copy) == []


@pytest.mark.parametrize("builds_programs", [False, True])
def test_a_table_with_duplicate_configs_is_refused(
    copy: Path, builds_programs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = copy / "tables" / "gemm-4x5x6-knob-1t.parquet"
    log = read_log(path)
    duplicates = [msgspec.structs.replace(log.records[0], index=index) for index in range(10, len(log.records))]
    write_log(path, replace(log, records=(*log.records[:10], *duplicates)))
    monkeypatch.setattr(SPACES.load(log.header.space.name), "builds_programs", builds_programs)
    assert any("contains 134 duplicate configs" in message for message in problems(copy))


def test_a_table_that_holds_drift_of_its_machine_is_refused(copy: Path) -> None:
    path = copy / "tables" / "gemm-4x5x6-knob-1t.parquet"
    log, passes = (
        read_log(path),
        Passes(count=2, block_size=32, sentinel_readings=((0.0, 1e-6), (1.0, 1e-6), (2.0, 1.3e-6))),
    )
    write_log(path, replace(log, header=msgspec.structs.replace(log.header, passes=passes)))
    assert any(
        "is not steady" in message and "1.30 times as long as usual at 2 s" in message for message in problems(copy)
    )
    with pytest.raises(SearchlabError, match="cannot be sealed: .*rebuild this table"):
        seal(find_suite(copy))
    passes = msgspec.structs.replace(passes, sentinel_readings=((0.0, 1e-6),))
    write_log(path, replace(log, header=msgspec.structs.replace(log.header, passes=passes)))
    assert "in 2 passes, each in another order" in TableCard(find_suite(copy).tables[0]).to_markdown()


def test_the_split_is_frozen_once_it_is_sealed(copy: Path) -> None:
    toml = (copy / "suite.toml").read_text()
    (copy / "suite.toml").write_text(toml.replace('split = "dev"', 'split = "test"'))
    with pytest.raises(
        SearchlabError, match="the split of mini is frozen, but gemm-4x5x6-knob-1t would move to the other side"
    ):
        seal(find_suite(copy))


def test_a_manifest_that_is_absent_or_damaged_is_one_sentence(copy: Path) -> None:
    (copy / "manifest.json").write_text("{}")
    with pytest.raises(SearchlabError, match="the manifest .* is damaged"):
        problems(copy)
    (copy / "manifest.json").unlink()
    with pytest.raises(SearchlabError, match="cannot read the manifest .*searchlab suite seal"):
        problems(copy)


# --- baselines ----------------------------------------------------------------------------------------


def test_a_trajectory_and_its_table_give_the_log_again(sealed: Path, results: Path) -> None:
    suite = find_suite(sealed)
    unlike = ("path", "header", "run_end")
    for baseline in read_baselines(suite):
        assert baseline.own_seconds > 0 and baseline.host
        for name in baseline.tables:
            for run in baseline.tables[name].runs:
                log = read_log(results / name / baseline.strategy / f"seed{run.seed}.jsonl")
                columns = baseline.make_columns(suite.table(name), run)
                assert columns.header == msgspec.structs.replace(
                    log.header, created_at=0.0, code_digests={}, default_options={}
                )
                unlogged = {
                    "propose_seconds": 0.0,
                    "train_seconds": 0.0,
                    "feature_seconds": 0.0,
                    "model_quality": None,
                    "fill_in": False,
                }
                records = tuple(msgspec.structs.replace(record, **unlogged) for record in log.records)
                expected = LogColumns.from_log(replace(log, records=records))
                assert bool(columns.run_end) == bool(log.run_end)
                assert are_equal(columns, replace(expected, **{name: getattr(columns, name) for name in unlike}))


def test_trajectories_are_small_and_always_the_same_bytes(sealed: Path, tmp_path: Path) -> None:
    (baseline, *_) = read_baselines(find_suite(sealed), ["random"])
    for name in ("a", "b"):
        write_trajectories(tmp_path / name, baseline)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert read_trajectories(tmp_path / "a") == baseline


def test_a_baseline_that_does_not_replay_is_named(copy: Path) -> None:
    suite = find_suite(copy)
    (baseline,) = read_baselines(suite, ["random"])
    name = "gemm-4x5x6-knob-1t"
    first, *later_runs = baseline.tables[name].runs
    changed = msgspec.structs.replace(first, configs=(*first.configs[:5], *first.configs[:4:-1]))
    runs = msgspec.structs.replace(baseline.tables[name], runs=(changed, *later_runs))
    spoilt = msgspec.structs.replace(baseline, tables={**baseline.tables, name: runs}, versions={"xgboost": "0.1"})
    write_trajectories(make_trajectories_path(copy / "baselines", "random"), spoilt)
    seal(suite)
    (message,) = problems(copy, None)
    assert message.startswith(f"random over mini/{name} with seed 0: trial 5 was config ")
    assert "these versions have changed since: xgboost 0.1 -> " in message


@pytest.mark.filterwarnings("ignore:.*NPY_DISABLE_CPU_FEATURES")
def test_a_run_that_depends_on_a_last_bit_replays_elsewhere(sealed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "list_avx512_features", lambda: ["AVX512_SKX"])
    real = replay.Replayer.describe_difference
    answers = iter(["random differs", "random differs, too"])
    monkeypatch.setattr(replay.Replayer, "describe_difference", lambda *case: next(answers, "") or real(*case))
    steps: list[tuple[str, list[str]]] = []
    assert verify_suite(find_suite(sealed), lambda *step: steps.append(step), None)
    assert steps[-1][0].endswith("runs of baselines, replayed, 2 of them without numpy's code for AVX-512")
    assert steps[-1][1] == []


def test_logs_that_are_no_runs_over_the_suite_are_refused(sealed: Path, results: Path, tmp_path: Path) -> None:
    suite = find_suite(sealed)
    logs = sorted(results.rglob("random/*.jsonl"))
    log = tmp_path / "other.jsonl"
    shutil.copy(logs[0], log)
    with pytest.raises(SearchlabError, match=r"other.jsonl: another log has the same strategy, 'random', and seed, 0"):
        collect_trajectories(suite, [*logs, log])
    log.write_text(logs[0].read_text().replace('"digest":"', '"digest":"0', 1))
    with pytest.raises(SearchlabError, match=r"was not recorded with the current version of mini/"):
        collect_trajectories(suite, [log])
    log.write_text(logs[0].read_text().replace('"name":"mini/', '"nick":"mini/', 1))
    with pytest.raises(SearchlabError, match="has no table"):
        collect_trajectories(suite, [log])


# --- the command line ---------------------------------------------------------------------------------


def test_a_users_policy_is_compared_and_replayed_by_others(
    sealed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "mine.py").write_text(TOY)
    words = ("suite", "run", sealed, "--policy", "mine:HillClimb", "--option", "restart=0.5", "--out", tmp_path / "out")
    completed = searchlab(*words, "--against", "random,xgb", "--split", "test", cwd=tmp_path)
    assert completed.returncode == 0, completed.stderr
    text = " ".join(completed.stdout.split())
    assert re.search(r"HillClimb is \S.* random \(.*\), \S.* xgb \(.*\)\. Differences in mean area", text)
    assert "across 3 tables of mini/test, 3 seeds" in text and "HillClimb less" not in text
    lines = completed.stdout.splitlines()
    assert len(lines) <= 30 and all(len(line) <= 100 or str(tmp_path) in line for line in lines)
    result = read_trajectories(tmp_path / "out" / RESULT_FILE_NAME)
    assert result.contrasts == (("HillClimb", "random"), ("HillClimb", "xgb")), "registered as the runs began"
    assert (tmp_path / "out" / "report" / "report.html").exists()
    summary = json.loads((tmp_path / "out" / "report" / "summary.json").read_text())
    assert {row["strategy"] for row in summary["overall"]["strategies"]} >= {"evolutionary", "xgb", "HillClimb"}
    assert [answer["second"] for answer in summary["answers"]] == ["random", "xgb"]
    report = searchlab("report", tmp_path / "out", "--suite", sealed, "--json", cwd=tmp_path)
    assert report.returncode == 0, report.stderr
    names = {row["strategy"] for row in json.loads(report.stdout)["overall"]["strategies"]}
    assert names >= {"evolutionary", "random", "xgb", "HillClimb"}
    verdict = Comparison(against_baselines(tmp_path / "out", str(sealed))[0]).verdict
    assert verdict.startswith("HillClimb is ")
    only_report = searchlab("report", tmp_path / "out", "--all", "--full", cwd=tmp_path).stdout
    assert " ".join(only_report.split()).count("HillClimb is the only strategy here") == 1
    assert len(searchlab_compare(tmp_path / "out").verdict.splitlines()) == 1
    refused = searchlab("suite", "verify", tmp_path / "out", "--suite", sealed, cwd=tmp_path)
    assert refused.returncode == 2 and "pass --policy mine:HillClimb if you trust it" in refused.stderr
    trusting = ("suite", "verify", tmp_path / "out", "--suite", sealed, "--policy", "mine:HillClimb")
    right = searchlab(*trusting, cwd=tmp_path)
    assert right.returncode == 0 and "9 of 9 runs, replayed" in right.stdout, right.stdout + right.stderr
    site = tmp_path / "site"
    published = searchlab("report", "--publish", site, tmp_path / "out", "--suite", sealed, cwd=tmp_path)
    assert published.returncode == 0 and f"the site is {site / 'index.html'}, with 1 result" in published.stdout
    assert "HillClimb is " in (site / "index.html").read_text()
    assert "searchlab suite verify . --policy mine:HillClimb" in (site / "HillClimb-on-mini" / "index.html").read_text()
    (tmp_path / "mine.py").write_text(TOY.replace("min(", "max("))
    wrong = searchlab(*trusting, cwd=tmp_path)
    assert wrong.returncode == 1 and "HillClimb over mini/" in wrong.stdout


def test_the_test_split_is_opt_in_and_its_uses_are_counted(
    sealed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "mine.py").write_text(TOY)
    test = [name for name, (split, *_) in TABLES.items() if split == "test"]

    def run(suite: object, restart: float, *more: str) -> tuple[str, Trajectories]:
        out = tmp_path / "out"
        shutil.rmtree(out, ignore_errors=True)
        words = ("suite", "run", suite, "--policy", "mine:HillClimb", "--seeds", "1", "--against", "random")
        process = searchlab(*words, "--option", f"restart={restart}", "--out", out, *more, cwd=tmp_path)
        assert process.returncode == 0, process.stderr
        return " ".join(process.stdout.split()), read_trajectories(out / RESULT_FILE_NAME)

    text, result = run(sealed, 0.4)
    assert not set(result.tables) & set(test) and result.test_uses is msgspec.UNSET
    assert not (tmp_path / "data").exists()
    for restart, uses in ((0.4, 1), (0.4, 1), (0.5, 2)):
        text, result = run(sealed, restart, "--split", "test")
        assert set(result.tables) == set(test) and result.test_uses == uses
        assert (f"you have run {uses} variants of mine:HillClimb on the test split" in text) == (uses > 1)
    text, result = run(f"{sealed}/{test[0]}", 0.6)
    assert set(result.tables) == {test[0]} and result.test_uses == 3, "one table of the test split is a use as well"
    (tmp_path / "other.py").write_text(TOY)
    process = searchlab(
        "suite", "run", f"{sealed}/{test[0]}", "--policy", "other:HillClimb", "--seeds", "1", cwd=tmp_path
    )
    assert process.returncode == 0 and "variants" not in process.stdout, "another policy is no variant"
    refused = searchlab("suite", "run", f"{sealed}/dev", "--policy", "random", "--split", "test")
    assert refused.returncode == 2 and "omit --split test" in refused.stderr


def test_a_script_asks_whether_a_policy_is_better(sealed: Path, tmp_path: Path) -> None:
    """By default against random, the best of the dev split and the ancestor; the exit code is for scripts."""
    (tmp_path / "mine.py").write_text("from searchlab_policies.xgb import Xgb\n\n\nclass Mine(Xgb):\n    pass\n")
    words = ("suite", "run", sealed, "--seeds", "2", "--json", "--require-better", "--policy")
    result = searchlab(*words, "mine:Mine", cwd=tmp_path)
    assert result.returncode == 3, result.stderr
    answer = json.loads(result.stdout)
    assert [row["baseline"] for row in answer["against"]] == list(
        dict.fromkeys(["random", max((areas := compute_dev_areas(find_suite(sealed))), key=areas.__getitem__), "xgb"])
    )
    assert (
        answer["strategy"] == "Mine"
        and {"strategy": "Mine"}.items() <= next(row for row in answer["ranking"] if row["strategy"] == "Mine").items()
    )
    assert all(row["verdict"] != "better" for row in answer["against"] if row["baseline"] == "xgb")
    assert sum(family["tables"] for family in answer["families"]) == 1


def test_a_policy_that_refuses_a_space_is_compared_elsewhere(sealed: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from searchlab.errors import UnsupportedSpace\nfrom searchlab_policies.random import Random\n\n\n"
        "class Picky(Random):\n    def __init__(self, space, *, seed):\n        super().__init__(space, seed=seed)\n"
        "        if 'guided' in type(space).__module__:\n"
        "            raise UnsupportedSpace('Picky takes no guided space')\n"
    )
    words = ("suite", "run", f"{sealed}/test", "--policy", "mine:Picky", "--against", "random", "--json")
    result = searchlab(*words, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    answer = json.loads(result.stdout)
    assert "Picky takes no guided space" in " ".join(result.stderr.split())
    assert [(row["space"], row["tables"]) for row in answer["families"]] == [("knob-template", 1)]
    assert {"random", "Picky"} <= {row["strategy"] for row in answer["ranking"]} and len(answer["against"]) == 1


def test_a_comparison_registered_after_its_runs_is_named(sealed: Path, tmp_path: Path) -> None:
    words = ("suite", "run", sealed, "--policy", "evolutionary", "--label", "mine", "--seeds", "2", "--out", tmp_path)
    assert searchlab(*words, "--against", "random").returncode == 0
    repeated = searchlab(*words, "--against", "random,xgb")
    assert repeated.returncode == 0, repeated.stderr
    text = " ".join(repeated.stdout.split())
    assert "began before the comparison with xgb was registered; use a different --out" in text
    assert "random (" in text and "xgb (" not in text.partition("By mean area")[0]


def test_a_suite_without_baselines_has_nothing_to_compare_with(copy: Path) -> None:
    shutil.rmtree(copy / "baselines")
    result = searchlab("suite", "run", f"{copy}/test", "--policy", "random", "--seeds", "1")
    assert result.returncode == 0, result.stderr
    text = " ".join(result.stdout.split())
    assert "random has no registered comparison with a baseline" in text and "number 1 of 1" in text


def test_baselines_by_area_on_dev_are_those_of_a_report(sealed: Path) -> None:
    suite = find_suite(sealed)
    part = suite.select_split("dev")
    summary = summarize(group_suite_runs(part, [], read_baselines(suite), range(suite.spec.seeds)))
    for name, area in compute_dev_areas(suite).items():
        rows = [item.by_strategy[name] for item in summary.workloads]
        assert area == pytest.approx(np.mean([np.mean(row.area.by_seed) for row in rows]), abs=1e-9)


def test_a_report_compares_the_first_trials_of_runs(sealed: Path, tmp_path: Path) -> None:
    suite = find_suite(sealed)
    complete = group_suite_runs(suite, [], read_baselines(suite), [0])
    for trials in (5, "0.5 difficulty"):
        shortened = group_suite_runs(suite, [], read_baselines(suite), [0], trials)
        for workload, item in shortened.items():
            for run, original in zip(item.runs, complete[workload].runs, strict=True):
                costs = read_log(suite.table(run.log.header.table).path).costs
                limit = trials if isinstance(trials, int) else parse_difficulty(trials, costs)
                assert list(run.curve) == list(original.curve[:limit])
    words = ("suite", "report", sealed, "--out", tmp_path / "report")
    result = searchlab(*words, "--trials", "5")
    assert result.returncode == 0, result.stderr
    assert pandas.read_csv(tmp_path / "report" / "runs.csv.gz")["trials"].max() == 5
    refused = searchlab(*words, "--trials", "hard")
    assert refused.returncode == 2 and "'hard' is not a number of trials" in refused.stderr


def test_the_power_of_a_policy_against_the_baselines(sealed: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ("suite", "run", sealed, "--policy", "evolutionary", "--label", "mine", "--option", "population=4")
    result = searchlab(*words, "--seeds", "3", "--out", out)
    assert result.returncode == 0, result.stderr
    power = searchlab("power", out, "--suite", sealed, "--json")
    assert power.returncode == 0, power.stderr
    pairs = [{need["first"], need["second"]} for need in json.loads(power.stdout)["needs"]]
    assert len(pairs) > 1 and all("mine" in pair for pair in pairs)
    assert "cannot find the suite 'mini'" in searchlab("power", out).stderr
    refused = searchlab("power", out, out)
    assert refused.returncode == 2 and "pass only the directory from `suite run --out`" in refused.stderr


def test_runs_over_another_table_are_not_compared(copy: Path, tmp_path: Path) -> None:
    (baseline,) = read_baselines(find_suite(copy), ["random"])
    name, runs = next(iter(baseline.tables.items()))
    tables = {**baseline.tables, name: msgspec.structs.replace(runs, digest="0")}
    write_trajectories(tmp_path / "out" / RESULT_FILE_NAME, msgspec.structs.replace(baseline, tables=tables))
    messages: list[str] = []
    assert not verify_result(
        tmp_path / "out", lambda _, step_problems: messages.extend(step_problems), suite_path=str(copy)
    )
    assert len(messages) == 1 and "was run on a different version of mini/" in messages[0]


def test_suite_commands_describe_verify_and_compare(copy: Path, tmp_path: Path, results: Path) -> None:
    assert searchlab("suite", "list").returncode == 0
    info = searchlab("suite", "info", f"{copy}/test")
    assert info.returncode == 0 and "gemm-16x16x16-guided-2t" in info.stdout and "4x5x6" not in info.stdout
    rows = json.loads(searchlab("suite", "info", copy, "--json").stdout)
    assert [row["name"] for row in rows] == list(TABLES) and rows[0]["configs"] == 144
    card = searchlab("suite", "info", copy, "gemm-4x6x5-knob-1t")
    assert card.returncode == 0 and "in 95 of 100 runs" in card.stdout
    wrong = searchlab("suite", "info", copy, "gemm-4x6x5-knob-2t")
    assert wrong.returncode == 2 and "did you mean 'gemm-4x6x5-knob-1t'" in wrong.stderr
    shutil.rmtree(copy / "baselines")
    baselines_command = searchlab("suite", "baselines", copy, results)
    assert baselines_command.returncode == 0 and "12 runs of random" in baselines_command.stdout, (
        baselines_command.stderr
    )
    assert searchlab("suite", "seal", copy).returncode == 0
    report = searchlab("suite", "report", copy, "--baselines", "random,xgb", "--out", tmp_path / "page")
    assert report.returncode == 0 and "across 4 workloads" in " ".join(report.stdout.split()), report.stderr
    assert (tmp_path / "page" / "report.html").exists()
    (copy / "baselines" / "random.runs.parquet").unlink()
    incomplete = searchlab("suite", "verify", copy)
    assert incomplete.returncode == 1 and "baselines/random.runs.parquet is missing" in incomplete.stdout
    unknown = searchlab("suite", "run", copy, "--policy", "random", "--against", "evolutionry")
    assert unknown.returncode == 2 and "no baseline 'evolutionry'; did you mean 'evolutionary'" in unknown.stderr


def test_results_are_compared_with_each_other_and_with_baselines(sealed: Path, results: Path, tmp_path: Path) -> None:
    directory = tmp_path / "kept"
    baselines_command = searchlab("suite", "baselines", sealed, results, "--out", directory)
    assert baselines_command.returncode == 0 and len(list(directory.iterdir())) == 3 and problems(sealed) == []
    words = ("suite", "report", f"{sealed}/test", directory, "--baselines", "random", "--out", tmp_path / "page")
    twice = searchlab(*words)
    assert twice.returncode == 2 and "two results are called 'random'; omit one" in twice.stderr
    (directory / "random.runs.parquet").unlink()
    report = searchlab(*words)
    assert report.returncode == 0, report.stderr
    rows = json.loads((tmp_path / "page" / "summary.json").read_text())["overall"]["strategies"]
    assert sorted(row["strategy"] for row in rows) == ["evolutionary", "random", "xgb"]
    (tmp_path / "none").mkdir()
    none = searchlab("suite", "report", sealed, tmp_path / "none")
    assert none.returncode == 2 and "contains no runs (*.runs.parquet)" in none.stderr


def test_a_suite_is_described_without_tvm(copy: Path) -> None:
    assert not imported_packages("-m", "searchlab", "suite", "info", copy) & {"tvm", "xgboost", "lightgbm", "optuna"}


def test_a_replay_in_another_process_trusts_what_this_one_does(tmp_path: Path) -> None:
    directory = tmp_path / "toys"
    (directory / "tables").mkdir(parents=True)
    (directory / "suite.toml").write_text(
        'version = "toys"\ntitle = "toys"\nlicence = "CC0-1.0"\ntrials = 8\nseeds = 1\n[[tables]]\nname = "small"\n'
        'split = "dev"\nworkload = "gemm:64x64x64"\nspace = { name = "searchlab.conformance.toys:Small" }\n'
    )
    log = write_table(directory / "tables" / "small.jsonl", toys.Small(), toys.simulate_smooth, counted=True)
    compress_log(log, log.with_name("small.parquet"))
    with trust_plugins():
        assert searchlab("suite", "run", directory, "--policy", "random", "--out", tmp_path / "out").returncode == 0
        result = read_trajectories(tmp_path / "out" / RESULT_FILE_NAME)
        (run,) = result.tables["small"].runs
        replayer = replay.Replayer(find_suite(directory))
        assert replayer.replay_without_avx512([(result, "small", run)], []) == [""]
    assert replayer.replay_without_avx512([(result, "small", run)], []) is None
