"""Baselines agree with their current code, or are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from searchlab.errors import SearchlabError
from searchlab.measure.suite import find_suite
from searchlab.suite import replay
from searchlab.suite.replay import check_baselines
from searchlab.suite.trajectories import Trajectories, read_baselines


@pytest.fixture(autouse=True)
def replays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The strategies that were replayed, with an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(replay, "BASELINE_CHECK_SECONDS", 0.0)
    replayed: list[str] = []
    real_replay = replay.replay

    def counted(tables: Any, runs: Any, **options: Any) -> Any:
        replayed.extend(run.strategy for run in runs)
        return real_replay(tables, runs, **options)

    monkeypatch.setattr(replay, "replay", counted)
    return replayed


def swap_first_trials(trajectories: Trajectories) -> Trajectories:
    """Return runs whose first two trials are in the other order."""

    def swap(run: Any) -> Any:
        first, second, *rest = run.configs
        return msgspec.structs.replace(run, configs=(second, first, *rest))

    tables = {
        name: msgspec.structs.replace(runs, runs=tuple(map(swap, runs.runs)))
        for name, runs in trajectories.tables.items()
    }
    return msgspec.structs.replace(trajectories, tables=tables)


def test_baselines_of_the_same_code_are_not_replayed(sealed: Path, replays: list[str]) -> None:
    suite = find_suite(sealed)
    baseline_runs = read_baselines(suite)
    assert all(set(baseline.code_digests) >= {"policy"} for baseline in baseline_runs)
    check_baselines(suite, baseline_runs)
    assert not replays


@pytest.mark.parametrize("code", [{}, {"policy": "another"}])
def test_changed_code_is_replayed_once(sealed: Path, replays: list[str], code: dict[str, str]) -> None:
    suite = find_suite(sealed)
    baseline_runs = [
        msgspec.structs.replace(baseline, code_digests=code) for baseline in read_baselines(suite, ["xgb", "random"])
    ]
    check_baselines(suite, baseline_runs)
    assert replays == ["xgb", "random"]
    check_baselines(suite, baseline_runs)
    assert replays == ["xgb", "random"]


def test_baselines_that_their_code_does_not_repeat_are_refused(sealed: Path, replays: list[str]) -> None:
    suite = find_suite(sealed)
    (baseline,) = read_baselines(suite, ["evolutionary"])
    for code in ({}, {"policy": "another"}):
        with pytest.raises(SearchlabError, match="evolutionary .*trial 0 was config .*suite verify"):
            check_baselines(suite, [msgspec.structs.replace(swap_first_trials(baseline), code_digests=code)])


def test_foreign_code_is_not_imported_for_a_check(sealed: Path, replays: list[str]) -> None:
    suite = find_suite(sealed)
    (baseline,) = read_baselines(suite, ["random"])
    foreign = msgspec.structs.replace(baseline, code_digests={}, policy=type(baseline.policy)("evil_module:Policy"))
    check_baselines(suite, [foreign])
    assert not replays
