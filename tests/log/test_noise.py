"""Noise, drift, and finalists."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from searchlab.conformance import toys
from searchlab.errors import SearchlabError, SearchlabWarning
from searchlab.log.format import Finalist, FinalistTimes, Record
from searchlab.log.read import read_log
from searchlab.log.reliability import (
    ROUNDS,
    describe_disagreement,
    describe_reliability,
    find_largest_drift,
    find_winner,
    measure_drift,
    measure_noise,
)
from searchlab.log.result import load_log
from searchlab.log.writer import LogWriter
from searchlab.machine import host
from searchlab.machine.host import measure_busy_cores, observe_load
from searchlab.measure.contract import CannotMeasure, Remeasurer
from searchlab.records import Measurement, Trial
from searchlab.run.execute import warn_of_doubts
from searchlab.run.loop import measure_finalists
from searchlab.run.tune import tune
from searchlab.space import Config
from searchlab.target import Target
from tests.support.logs import HEADER, write_table


def write_lines(path: Path, *lines: Record | FinalistTimes) -> Path:
    writer = LogWriter(path, HEADER)
    for line in lines:
        writer.append(line)
    writer.close()
    return path


def record(index: int, *seconds: float, sentinel: float | None = None, pruned: bool = False) -> Record:
    measured = Measurement(seconds, None if seconds else "crash", program=f"p{index}", pruned=pruned)
    return Record.from_trial(Trial(index, Config({"x": index}), measured), sentinel_seconds=sentinel)


def test_noise_is_the_median_spread_of_repeats(tmp_path: Path) -> None:
    log = read_log(
        write_lines(
            tmp_path / "a.jsonl",
            record(0, 1.0, 1.1, 1.0),
            record(1),
            record(2, 9.0),
            record(3, 1.0, 1.3, 1.0),
            record(4, 1.0, 1.2, 1.0),
        )
    )
    assert measure_noise(log) == pytest.approx(0.2)
    assert measure_noise(read_log(write_lines(tmp_path / "b.jsonl", record(0, 1.0)))) is None


def test_drift_is_against_the_first_success(tmp_path: Path) -> None:
    log = read_log(
        write_lines(
            tmp_path / "a.jsonl",
            record(0),
            record(1, 2.0, 2.0),
            record(2, 1.0, sentinel=2.2),
            record(3, 1.0, sentinel=1.0),
        )
    )
    assert measure_drift(log) == pytest.approx([1.1, 0.5]) and find_largest_drift(log) == pytest.approx(0.5)
    assert "0.50 to 1.10 times" in " ".join(describe_reliability(log))
    once = read_log(write_lines(tmp_path / "once.jsonl", record(0, 2.0), record(1, 1.0, sentinel=1.0)))
    assert "took 0.50 times as long (1 reading)" in " ".join(describe_reliability(once))
    steady = read_log(write_lines(tmp_path / "b.jsonl", record(0, 1.0)))
    assert measure_drift(steady) == [] and find_largest_drift(steady) is None and describe_reliability(steady) == []


def test_a_best_that_retiming_contradicts_is_doubted(tmp_path: Path) -> None:
    for name, again, doubted in (("same", 1.1, False), ("slower", 4.0, True), ("faster", 0.5, True)):
        final = FinalistTimes(trial_count=2, finalists=(Finalist(1, (again,) * ROUNDS), Finalist(0, (9.0,) * ROUNDS)))
        log = read_log(write_lines(tmp_path / f"{name}.jsonl", record(0, 9.0), record(1, 1.0), final))
        text = describe_disagreement(log)
        assert bool(text) == doubted and (not doubted or text in describe_reliability(log))
        if doubted:
            assert "trial 1, the best, took 1000 ms during the search" in text
            with pytest.warns(SearchlabWarning, match="the machine was busy or unsteady"):
                warn_of_doubts([log])
    assert describe_disagreement(read_log(write_lines(tmp_path / "none.jsonl", record(0, 1.0)))) == ""


def test_a_busy_machine_is_warned_of_before_it_is_measured(
    native: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    assert measure_busy_cores() == 0.0
    monkeypatch.setattr(os, "getloadavg", lambda: (9.0, 0.0, 0.0))
    spinner = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        assert max(measure_busy_cores() for _ in range(20)) > 0.3
    finally:
        spinner.kill()
        spinner.wait()
    monkeypatch.setattr(host, "measure_busy_cores", lambda: 0.1)
    assert observe_load() == ""
    monkeypatch.setattr(host, "measure_busy_cores", lambda: 1.9)
    assert "keep about 1.9 of this machine's" in observe_load()
    write_table(tmp_path / "table.jsonl", toys.Small(), toys.simulate_flaky)
    replay = {"kind": "table", "path": str(tmp_path / "table.jsonl")}
    tune(toys.WORKLOAD, space=toys.Small(), policy="random", log=tmp_path / "a.jsonl", trials=2, measure=replay)
    measure = {"kind": "local", "repeat": 1, "min_repeat_ms": 0, "finalists": 0}
    with pytest.warns(SearchlabWarning, match="so times measured now are unreliable"):
        tune("gemm:8x8x8", space="guided-gemm", policy="random", log=tmp_path / "b.jsonl", trials=1, measure=measure)


# --- finalists ------------------------------------------------------------------------------------------


def final(*times: list[float]) -> FinalistTimes:
    return FinalistTimes(trial_count=9, finalists=tuple(Finalist(i, tuple(seconds)) for i, seconds in enumerate(times)))


def test_a_winner_wins_all_rounds_but_one() -> None:
    steady, slower = [1.0] * ROUNDS, [1.01] * ROUNDS
    first, tied = find_winner(final(slower, steady))
    assert first.index == 1 and not tied
    for lost, expected in ((1, ()), (2, (0,))):
        first, tied = find_winner(final([0.9] * lost + slower[lost:], steady))
        assert (first.index, tuple(finalist.index for finalist in tied)) == (1, expected)
    _, tied = find_winner(final(steady, steady))
    assert [finalist.index for finalist in tied] == [1]
    assert find_winner(final(steady)) == (Finalist(0, tuple(steady)), ())


class Scripted(Remeasurer):
    """Returns given times when it measures again."""

    finalists = 3

    def __init__(self, times: dict[int, float]) -> None:
        self.times = times
        self.requested: list[int] = []

    def measure(self, space, configs, best_cost=math.inf):  # type: ignore[no-untyped-def]
        raise AssertionError

    def remeasure(self, space, trials, rounds):  # type: ignore[no-untyped-def]
        self.requested = [trial.index for trial in trials]
        if missing := set(self.requested) - self.times.keys():
            raise CannotMeasure(f"no {missing}")
        return [(self.times[i],) * rounds for i in self.requested]


def test_finalists_are_distinct_programs_close_to_the_best() -> None:
    costs = [1.0, 1.05, 2.0, 1.02, math.inf, 1.09, 1.01, 1.0]
    trials = [record(i, *([cost] if math.isfinite(cost) else [])).trial for i, cost in enumerate(costs)]
    twin = Trial(7, Config({"x": 7}), Measurement((1.0,), program="p0"))
    hasty = Trial(8, Config({"x": 8}), Measurement((1.0,), program="p8", pruned=True))
    measurer = Scripted({0: 1.0, 6: 0.9, 3: 1.1})
    finalists = measure_finalists(measurer, toys.Small(), [*trials[:7], twin, hasty])
    assert measurer.requested == [0, 6, 3] and finalists is not None and finalists.trial_count == 9
    assert find_winner(finalists)[0].index == 6
    assert measure_finalists(measurer, toys.Small(), [trials[4]]) is None
    with pytest.warns(SearchlabWarning, match="could not be measured again"):
        assert measure_finalists(Scripted({}), toys.Small(), trials) is None


def test_best_is_the_winning_finalist_until_the_run_is_extended(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "a.jsonl",
        record(0, 1.0),
        record(1, 1.1),
        FinalistTimes(trial_count=2, finalists=(Finalist(0, (1.2, 1.2)), Finalist(1, (1.1, 1.1)))),
    )
    best = load_log(path).best
    assert (best.trial.index, best.seconds, best.tied) == (1, 1.1, ())
    assert best.gflops == pytest.approx(2 * 64**3 / 1.1 / 1e9)
    write_lines(path, record(2, 2.0))
    best = load_log(path).best
    assert (best.trial.index, best.seconds, best.tied) == (0, 1.0, None)
    assert not best.retimed and best.gflops == best.gflops_as_trial


def test_throughput_is_given_as_retimed_and_as_searched(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "a.jsonl",
        record(0, 1.0),
        record(1, 1.1),
        record(2, 3.0),
        FinalistTimes(trial_count=3, finalists=(Finalist(0, (1.3, 1.3)), Finalist(1, (1.2, 1.2)))),
    )
    result = load_log(path)
    best, frame = result.best, result.to_frame()
    assert best.retimed and best.trial.index == 1
    assert best.gflops == frame["gflops_retimed"][1] == frame["gflops_retimed"].max()
    assert best.gflops_as_trial == frame["gflops"][1] < frame["gflops"].max() == frame["best_gflops"].max()
    assert frame["gflops_retimed"].isna().tolist() == [False, False, True]
    assert frame["repeats"].tolist() == [record.seconds for record in result.log.records]
    for wrong in (
        FinalistTimes(trial_count=2, finalists=(Finalist(0, (1.0,)),)),
        FinalistTimes(trial_count=3, finalists=(Finalist(7, (1.0,)),)),
        FinalistTimes(trial_count=3, finalists=(Finalist(0, (1.0,)), Finalist(1, (1.0, 2.0)))),
    ):
        damaged = write_lines(tmp_path / "b.jsonl", *read_log(path).records, wrong)
        with pytest.raises(SearchlabError, match="line 5: it is damaged"):
            read_log(damaged)
        damaged.unlink()


def test_a_run_measures_its_sentinel_and_its_finalists_for_real(tmp_path: Path) -> None:
    log = tmp_path / "a.jsonl"
    measure = {"kind": "local", "repeat": 2, "min_repeat_ms": 0, "sentinel": 2, "finalists": 3}

    def run(trials: int) -> list[dict]:  # type: ignore[type-arg]
        tune("gemm:32x32x32", space="knob-template", policy="random", log=log, trials=trials, batch=2, measure=measure)
        return [json.loads(line) for line in log.read_text().splitlines()[1:]]

    lines = run(5)
    finals = [line for line in lines if line["kind"] == "finalists"]
    assert len(finals) == 1 and lines[-1] is finals[0] and finals[0]["trials"] == 5
    assert all(len(finalist["seconds"]) == ROUNDS for finalist in finals[0]["finalists"])
    assert [line["index"] for line in lines if "sentinel" in line] == [4]  # of batches 0, 1, 2 the third
    content = log.read_bytes()
    run(5)
    assert log.read_bytes() == content  # nothing is measured twice
    log.write_bytes(b"".join(content.splitlines(keepends=True)[:-1]))  # killed before the final
    assert run(5)[-1]["kind"] == "finalists"
    lines = run(9)
    assert [line["trials"] for line in lines if line["kind"] == "finalists"] == [5, 9]
    assert [line["index"] for line in lines if "sentinel" in line] == [4, 8]
    result = load_log(log)
    best = result.best
    assert best.tied is not None and best.trial.index in {finalist["index"] for finalist in lines[-1]["finalists"]}
    machine = result.log.header.machine
    assert machine["cores"] >= 1 and machine["memory_mb"] > 0 and "load" in machine
    with pytest.raises(SearchlabError, match="its measure is"):
        measure["prune_factor"] = 0
        run(10)


def test_a_table_has_no_final(tmp_path: Path) -> None:
    table = write_table(tmp_path / "t.jsonl", toys.Small(), toys.simulate_smooth)
    result = tune(
        toys.WORKLOAD,
        space=toys.Small(),
        policy="random",
        log=tmp_path / "a.jsonl",
        measure={"kind": "table", "path": str(table)},
        trials=20,
    )
    assert result.log.finalist_times is None and result.best.tied is None and result.log.header.machine == {}
