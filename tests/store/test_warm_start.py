"""Warm starts from a store: equivalent to the logs themselves, and unaffected by later growth of the store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from searchlab import Store, Study, tune
from searchlab.errors import SearchlabError, SearchlabWarning
from searchlab.log.format import read_header, read_log
from tests.support import toys
from tests.support.logs import decided, write_table
from tests.support.stores import searched

pytestmark = pytest.mark.usefixtures("trusting")

SMALL = "tests.support.toys:Small"
TARGET = {"kind": "llvm"}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_table(tmp_path / "table.jsonl", toys.Small(), toys.flaky)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """The default store, with the logs a and b, which searched Small, and one from another space."""
    made = Store(tmp_path / "store.db")
    monkeypatch.setenv("SEARCHLAB_STORE", str(made.path))
    for number, name in enumerate("ab"):
        log = tmp_path / f"{name}.jsonl"
        made.add(searched(log, toys.Small(), toys.flaky, 20 * number, 15, created=1.0 + number))
    made.add(searched(tmp_path / "other.jsonl", toys.Dependent(), toys.flaky, 0, 5))
    return made


def run(table: Path, log: Path, warm_start: Any, trials: int = 16) -> Path:
    tune(
        toys.WORKLOAD, space=SMALL, policy="evolutionary", log=log, trials=trials, target=TARGET,
        measure={"kind": "table", "path": str(table)}, warm_start=warm_start,
    )  # fmt: skip
    return log


def grow(store: Store, folder: Path) -> None:
    """Add another run to the store, and more trials of a run that it holds."""
    store.add(searched(folder / "c.jsonl", toys.Small(), toys.flaky, 50, 20, created=0.5))
    store.add(searched(folder / "a.jsonl", toys.Small(), toys.flaky, 0, 19, created=1.0))


def test_it_starts_as_from_the_logs_themselves(store: Store, table: Path, tmp_path: Path) -> None:
    logs = run(table, tmp_path / "logs.jsonl", [tmp_path / "a.jsonl", tmp_path / "b.jsonl"])
    stored = run(table, tmp_path / "stored.jsonl", store)
    assert decided(stored) == decided(logs) and len(read_header(stored).warm_start) == 2
    run(table, logs, ["store"], trials=24)  # and either can be resumed with the other
    run(table, stored, [tmp_path / "a.jsonl", "store"], trials=24)
    assert decided(stored) == decided(logs)


def test_a_run_goes_on_as_it_began_though_the_store_has_grown(store: Store, table: Path, tmp_path: Path) -> None:
    whole = run(table, tmp_path / "whole.jsonl", "store", trials=20)
    log = run(table, tmp_path / "steps.jsonl", "store", trials=9)
    grow(store, tmp_path)
    run(table, log, "store", trials=20)
    assert decided(log) == decided(whole)
    later = read_header(run(table, tmp_path / "later.jsonl", "store", trials=1))
    assert len(later.warm_start) == 3 and not set(later.warm_start) >= set(read_header(log).warm_start)
    with pytest.raises(SearchlabError, match=r"belongs to a different run: its warm_start is"):
        run(table, log, ["store", tmp_path / "c.jsonl"], trials=24)
    other = Store(tmp_path / "new.db")
    other.add(tmp_path / "c.jsonl")
    with pytest.raises(SearchlabError, match="started from a log that .*new.db does not contain .digest [0-9a-f]{32}"):
        run(table, log, other, trials=24)


def test_all_seeds_of_a_study_start_alike(store: Store, table: Path, tmp_path: Path) -> None:
    study: dict[str, Any] = {
        "workloads": [str(toys.WORKLOAD)], "spaces": [{"name": SMALL, "label": "small"}], "target": TARGET, "trials": 4,
        "policies": ["random", {"name": "evolutionary", "warm_start": []}], "warm_start": ["store:store.db"],
        "measure": {"kind": "table", "path": str(table)},
    }  # fmt: skip

    def headers(seeds: int) -> dict[str, int]:
        results = Study.from_dict({**study, "seeds": seeds}, tmp_path).run(tmp_path / "out")
        return {f"{one.log.header.name} {one.log.header.seed}": len(one.log.header.warm_start) for one in results}

    assert headers(1) == {"random 0": 2, "evolutionary 0": 0}
    grow(store, tmp_path)
    assert headers(2) == {"random 0": 2, "random 1": 2, "evolutionary 0": 0, "evolutionary 1": 0}
    (first, second) = (read_header(path).warm_start for path in sorted((tmp_path / "out").rglob("random/*.jsonl")))
    assert first == second


def test_another_machine_never_counts(table: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "store.db")
    store.add(searched(tmp_path / "there.jsonl", toys.Small(), toys.smooth, 0, 15, host={"cpu": "far away"}))
    said = r"no trials of gemm:64x64x64 in this space for llvm on an unknown machine to start from; .*far away"
    with pytest.warns(SearchlabWarning, match=said):
        log = run(table, tmp_path / "cold.jsonl", store, trials=4)
    assert read_header(log).warm_start == ()
    there = write_table(tmp_path / "there" / "t.jsonl", toys.Small(), toys.flaky)
    first, rest = there.read_text().split("\n", 1)
    there.write_text(first.replace('"host":{}', '"host":{"cpu":"far away"}') + "\n" + rest)
    assert len(read_header(run(there, tmp_path / "warm.jsonl", store, trials=4)).warm_start) == 1
    store.add(searched(tmp_path / "here.jsonl", toys.Small(), toys.smooth, 0, 15, created=9.0))
    run(table, log, store, trials=8)  # it started without trials and resumes without
    assert len(read_log(log).records) == 8 and read_header(log).warm_start == ()


def test_a_directory_called_store_is_not_taken_for_the_store(
    store: Store, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "store").mkdir()
    (tmp_path / "a.jsonl").rename(tmp_path / "store" / "a.jsonl")
    with pytest.raises(SearchlabError, match=r'warm start "store" means .*; use "./store" for .*or "store:" for'):
        run(table, tmp_path / "1.jsonl", "store")
    assert len(read_header(run(table, tmp_path / "2.jsonl", ["./store"], trials=1)).warm_start) == 1
    assert len(read_header(run(table, tmp_path / "3.jsonl", Path("store"), trials=1)).warm_start) == 1
    assert len(read_header(run(table, tmp_path / "4.jsonl", "store:", trials=1)).warm_start) == 2
    with pytest.raises(SearchlabError, match="the store .*absent.db does not exist"):
        run(table, tmp_path / "5.jsonl", "store:absent.db")
