from __future__ import annotations

import gzip
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from searchlab.analysis.contrasts import TestKind
from searchlab.analysis.notes import write_measurement_notes
from searchlab.analysis.read import read_runs
from searchlab.analysis.summary import summarize
from searchlab.errors import SearchlabError, SearchlabWarning
from searchlab.plugins import Plugin
from tests.support.analysis.logs import WORKLOAD, write


def read_error(directory: Path) -> str:
    with pytest.raises(SearchlabError) as caught:
        read_runs(directory)
    return str(caught.value)


def test_a_missing_directory(tmp_path: Path) -> None:
    assert (
        read_error(tmp_path / "none")
        == f"cannot report on {tmp_path / 'none'}: there is no such directory or log; check the path"
    )


def test_a_directory_without_logs(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing")
    assert f"{tmp_path} contains no logs" in read_error(tmp_path)


@pytest.mark.parametrize("text", ["", "hello\n", '{"searchlab_log":1}\n', '{"searchlab_log":99}\n'])
def test_a_file_that_is_no_log_is_named_and_skipped(tmp_path: Path, text: str) -> None:
    good = write(tmp_path, "good", 0, [1])
    bad = tmp_path / "bad.jsonl"
    bad.write_text(text)
    with pytest.warns(SearchlabWarning, match=r"bad\.jsonl"):
        (workload,) = read_runs(tmp_path).values()
    assert [run.log.path for run in workload.runs] == [good]
    with pytest.raises(SearchlabError, match=r"bad\.jsonl"):  # the user named it
        read_runs(good, bad)
    good.unlink()
    assert "bad.jsonl" in read_error(tmp_path)


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, "a", 0, [1, 2, 3])
    lines = path.read_text().splitlines(keepends=True)
    path.write_text(lines[0] + lines[1] + "{]\n" + lines[3])
    assert f"{path}, line 3: it is damaged" in read_error(tmp_path)


def test_an_invalid_time_is_damage(tmp_path: Path) -> None:
    path = write(tmp_path, "a", 0, [1])
    path.write_text(path.read_text().replace('"seconds":[0.001]', '"seconds":[0.0]'))
    assert f"{path}, line 2: it is damaged: Expected `float` > 1e-15" in read_error(tmp_path)


def test_an_unknown_workload_names_the_log(tmp_path: Path) -> None:
    path = write(tmp_path, "a", 0, [1], workload="gemm:oops")
    assert read_error(tmp_path).startswith(f"{path} is damaged: workload 'gemm:oops'")


def test_two_logs_of_one_run(tmp_path: Path) -> None:
    write(tmp_path, "a", 0, [1])
    write(tmp_path / "copy", "a", 0, [1])
    write(tmp_path, "b", 0, [1])
    with pytest.warns(SearchlabWarning, match="are logs of the same run: 'a' on gemm:100x100x50 with seed 0"):
        (workload,) = read_runs(tmp_path).values()
    assert [run.strategy for run in workload.runs] == ["a", "b"]


def test_a_class_has_one_name(tmp_path: Path) -> None:
    """Once, it was called `mine:Top` by `run`, and `Top` by `suite run`."""
    write(tmp_path, "mine:Top", 0, [1])
    write(tmp_path, "mine:Top", 1, [1], label="Top")
    assert list(read_runs(tmp_path)[WORKLOAD].runs_by_strategy) == ["Top"]
    write(tmp_path / "script", "__main__:Top", 0, [1])
    assert list(read_runs(tmp_path)[WORKLOAD].runs_by_strategy) == ["Top", "__main__:Top", "mine:Top"]


@pytest.mark.parametrize(
    "changes",
    [
        {"policy": Plugin("a", {"size": 2})},
        {"cost_model": Plugin("xgb")},
        {"batch": 7},
        {"fingerprint": "g"},
        {"space": Plugin("knob", {"packed": True})},
    ],
)
def test_one_name_for_two_strategies(tmp_path: Path, changes: dict[str, Any]) -> None:
    write(tmp_path, "a", 0, [1])
    write(tmp_path, "a", 1, [1], **changes)
    message = read_error(tmp_path)
    assert f"both called 'a', but their {next(iter(changes))} differs" in message and "its own label" in message


def test_differences_below_the_machines_resolution(tmp_path: Path) -> None:
    for name, best in (("a", 100), ("b", 99), ("c", 40)):
        write(tmp_path, name, 0, [1, best], machine={"resolution": 1.02, "checked": "2026-11-27"})
    (workload,) = summarize(read_runs(tmp_path)).workloads
    (note,) = [note for note in workload.notes if "may differ by" in note]
    assert "may differ by 102 % on this machine. The best times of b (medians" in note and "that of a by less" in note


def test_a_resolution_that_is_no_number_is_ignored(tmp_path: Path) -> None:
    for name in "ab":
        write(tmp_path, name, 0, [1, 2], machine={"resolution": "fine"})
    (workload,) = summarize(read_runs(tmp_path)).workloads
    assert not any("may differ by" in note for note in workload.notes)


@pytest.mark.parametrize("changes", [{"target": {"kind": "cuda"}}, {"measure": {"repeats": 3}}])
def test_logs_that_were_measured_differently(tmp_path: Path, changes: dict[str, Any]) -> None:
    """Such strategies are compared, but not tested, not even if a contrast is registered."""
    for seed in range(9):
        for name, differs in (("a", False), ("b", True), ("c", False)):
            throughputs = [2 + (name == "a") + seed / 100, 1]
            log = changes if differs else {}
            write(tmp_path, name, seed, throughputs, contrasts=(("a", "b"), ("a", "c")), **log)
    with pytest.warns(SearchlabWarning, match=f"in different ways, so .* not tested: {next(iter(changes))}\\."):
        runs = read_runs(tmp_path)
    summary = summarize(runs)
    (workload,) = summary.workloads
    assert any("different ways" in note for note in workload.notes)
    tests = {frozenset((c.first, c.second)): (c.test, c.adjusted_p) for c in workload.contrasts}
    assert {pair: test for pair, (test, _) in tests.items() if "b" in pair} == dict.fromkeys(
        (frozenset("ab"), frozenset("bc")), TestKind.DIFFERENT_MEASUREMENT
    )
    assert [adjusted is None for _, adjusted in tests.values()].count(True) == 2
    assert [answer.verdict for answer in summary.answers] == ["untested", "better"]
    write(tmp_path / "other", "b", 0, [1], workload="gemm:2x2x2", **changes)
    for path in tmp_path.glob("*-b-*.jsonl"):
        path.unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(read_runs(tmp_path)) == 2, "but workloads may differ"


@pytest.mark.parametrize("changes", [{"target": {"kind": "cuda"}}, {"measure": {"repeats": 3}}])
def test_one_strategy_is_measured_in_one_way(tmp_path: Path, changes: dict[str, Any]) -> None:
    write(tmp_path, "a", 0, [1])
    write(tmp_path, "a", 1, [1], **changes)
    assert f"both called 'a', but their {next(iter(changes))} differs" in read_error(tmp_path)


def test_logs_under_a_report_are_not_read(tmp_path: Path) -> None:
    write(tmp_path / "deep" / "deeper", "a", 0, [1])
    for folder in ("report", "study/report/old"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "x.jsonl").write_text("not a log")
    assert [run.log_name for run in read_runs(tmp_path)["gemm:100x100x50"].runs] == [
        "deep/deeper/gemm-100x100x50-knob-a-0.jsonl"
    ]


def test_the_share_of_nearest_answers_is_reported(tmp_path: Path) -> None:
    for strategy, nearest in (("a", 2), ("b", 0), ("c", 1)):
        path = write(tmp_path, strategy, 0, [1, 2, 3, 4])
        path.write_text(path.read_text().replace('"config"', '"nearest":true,"config"', nearest))
    (note,) = write_measurement_notes(read_runs(tmp_path)[WORKLOAD])
    assert note.endswith(" for 50.0 % of the trials of a, 25.0 % of the trials of c.")


def test_drift_is_told_in_one_sentence_for_all_runs(tmp_path: Path) -> None:
    for seed, ratio in enumerate((1.05, 1.2, 0.5, 1.3)):
        path = write(tmp_path, "a", seed, [1, 2, 3 + seed])
        first = 1e-3  # a run of 1 GFLOPS: see logs.WORKLOAD
        path.write_text(path.read_text().replace('"index":2', f'"sentinel":{first * ratio},"index":2'))
    workload_runs = read_runs(tmp_path)[WORKLOAD]
    (note,) = write_measurement_notes(workload_runs)
    assert "during 3 of 4 runs, most of all in gemm-100x100x50-knob-a-2.jsonl" in note and "0.50 times" in note
    (note,) = write_measurement_notes(replace(workload_runs, runs_by_strategy={"a": workload_runs.runs[:2]}))
    assert note.startswith(
        "The machine drifted during gemm-100x100x50-knob-a-1.jsonl, where the first program once took 1.20"
    )
    assert write_measurement_notes(replace(workload_runs, runs_by_strategy={"a": workload_runs.runs[:1]})) == []


def test_compressed_logs_are_compared_as_others_are(tmp_path: Path) -> None:
    path = write(tmp_path, "a", 0, [1, 2])
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    write(tmp_path, "b", 0, [1])
    assert set(read_runs(tmp_path)["gemm:100x100x50"].strategies) == {"a", "b"}
