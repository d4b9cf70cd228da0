"""Warm starts from a directory of logs: equivalent to the logs themselves, and unaffected by its later growth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from searchlab import Study, tune
from searchlab.conformance import toys
from searchlab.errors import SearchlabError, SearchlabWarning
from searchlab.log.read import read_header, read_log
from tests.support.logs import read_deterministic_part, write_run, write_table

pytestmark = pytest.mark.usefixtures("trusting")

SMALL = "searchlab.conformance.toys:Small"
TARGET = {"kind": "llvm"}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_table(tmp_path / "table.jsonl", toys.Small(), toys.simulate_flaky)


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A directory with the logs a and b, which searched Small, one from another space and one without trials."""
    folder = tmp_path / "logs"
    for number, name in enumerate("ab"):
        write_run(folder / f"{name}.jsonl", toys.Small(), toys.simulate_flaky, 20 * number, 15, created_at=1.0 + number)
    write_run(folder / "deeper" / "other.jsonl", toys.Dependent(), toys.simulate_flaky, 0, 5)
    write_run(folder / "deeper" / "empty.jsonl", toys.Small(), toys.simulate_flaky, 0, 0)
    return folder


def run(table: Path, log: Path, warm_start: Any, trials: int = 16, **changes: Any) -> Path:
    measure = {"kind": "table", "path": str(table)}
    options: dict[str, Any] = {"space": SMALL, "policy": "evolutionary", "target": TARGET, "measure": measure}
    options |= changes
    tune(toys.WORKLOAD, log=log, trials=trials, warm_start=warm_start, **options)
    return log


def grow(logs: Path) -> None:
    """Add another run to the directory, and more trials to a run in it."""
    write_run(logs / "c.jsonl", toys.Small(), toys.simulate_flaky, 50, 20, created_at=0.5)
    write_run(logs / "a.jsonl", toys.Small(), toys.simulate_flaky, 0, 19, created_at=1.0)


def test_a_directory_is_equivalent_to_its_logs(logs: Path, table: Path, tmp_path: Path) -> None:
    files = [logs / "a.jsonl", logs / "b.jsonl"]
    from_files = run(table, tmp_path / "files.jsonl", files)
    from_directory = run(table, tmp_path / "directory.jsonl", str(logs))
    assert (
        read_deterministic_part(from_directory) == read_deterministic_part(from_files)
        and len(read_header(from_directory).warm_start) == 2
    )
    run(table, from_files, [logs], trials=24)  # and either can be resumed with the other
    run(table, from_directory, [files[0], logs], trials=24)
    assert read_deterministic_part(from_directory) == read_deterministic_part(from_files)


def test_the_time_for_features_is_a_part_of_the_policys(table: Path, tmp_path: Path) -> None:
    records = read_log(run(table, tmp_path / "a.jsonl", [], trials=32, policy="xgb", cost_model="ridge")).records
    assert any(record.feature_seconds for record in records)
    for record in records:
        assert record.feature_seconds <= record.propose_seconds + record.train_seconds + 1e-6  # they are rounded


def test_a_run_continues_as_it_began_in_a_grown_directory(logs: Path, table: Path, tmp_path: Path) -> None:
    uninterrupted = run(table, tmp_path / "uninterrupted.jsonl", logs, trials=20)
    log = run(table, tmp_path / "resumed.jsonl", logs, trials=9)
    grow(logs)
    run(table, log, logs, trials=20)
    assert read_deterministic_part(log) == read_deterministic_part(uninterrupted)
    later = read_header(run(table, tmp_path / "later.jsonl", logs, trials=1))
    assert len(later.warm_start) == 3 and not set(later.warm_start) >= set(read_header(log).warm_start)
    with pytest.raises(SearchlabError, match="belongs to a different run: its warm_start is"):
        run(table, log, [logs, logs / "c.jsonl"], trials=24)
    (logs / "b.jsonl").unlink()
    with pytest.raises(SearchlabError, match=r"started from a log that .*logs does not contain .digest [0-9a-f]{32}"):
        run(table, log, logs, trials=24)


def test_all_seeds_of_a_study_start_alike(logs: Path, table: Path, tmp_path: Path) -> None:
    """The study's own logs lie in the directory from which it starts."""
    study: dict[str, Any] = {
        "workloads": [str(toys.WORKLOAD)],
        "spaces": [{"name": SMALL, "label": "small"}],
        "target": TARGET,
        "trials": 4,
        "policies": ["random", {"name": "evolutionary", "warm_start": []}],
        "warm_start": ["logs"],
        "measure": {"kind": "table", "path": str(table)},
    }
    out = logs / "out"

    def count_sources(seeds: int) -> dict[str, int]:
        results = Study.from_dict({**study, "seeds": seeds}, tmp_path).run(out)
        headers = [result.log.header for result in results]
        return {f"{header.name} {header.seed}": len(header.warm_start) for header in headers}

    assert count_sources(1) == {"random 0": 2, "evolutionary 0": 0}
    grow(logs)
    assert count_sources(2) == {"random 0": 2, "random 1": 2, "evolutionary 0": 0, "evolutionary 1": 0}
    first, second = (read_header(path).warm_start for path in sorted(out.rglob("random/*.jsonl")))
    assert first == second


def test_another_machine_never_counts(table: Path, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    write_run(logs / "elsewhere.jsonl", toys.Small(), toys.simulate_smooth, 0, 15, host={"cpu": "far away"})
    own_table = write_table(tmp_path / "here" / "t.jsonl", toys.Small(), toys.simulate_flaky)
    header, trials = own_table.read_text().split("\n", 1)
    own_table.write_text(header.replace('"host":{}', '"host":{"cpu":"near"}') + "\n" + trials)
    with pytest.warns(SearchlabWarning, match="measured on far away are no warm start for runs on near"):
        log = run(own_table, tmp_path / "cold.jsonl", logs, trials=4)
    assert read_header(log).warm_start == ()
    foreign_table = write_table(tmp_path / "there" / "t.jsonl", toys.Small(), toys.simulate_flaky)
    foreign_table.write_text(header.replace('"host":{}', '"host":{"cpu":"far away"}') + "\n" + trials)
    assert len(read_header(run(foreign_table, tmp_path / "warm.jsonl", logs, trials=4)).warm_start) == 1
    write_run(logs / "near.jsonl", toys.Small(), toys.simulate_smooth, 0, 15, created_at=9.0, host={"cpu": "near"})
    with pytest.warns(SearchlabWarning, match="far away"):
        run(own_table, log, logs, trials=8)  # it started without trials and resumes without
    assert len(read_log(log).records) == 8 and read_header(log).warm_start == ()


def test_unreadable_logs_in_a_directory_are_named(logs: Path, table: Path, tmp_path: Path) -> None:
    (logs / "bad.jsonl").write_text("no log\n")
    with pytest.warns(SearchlabWarning, match=r"skipped: .*bad\.jsonl"):
        log = run(table, tmp_path / "log.jsonl", logs, trials=1)
    assert len(read_header(log).warm_start) == 2
    (tmp_path / "empty").mkdir()
    with pytest.raises(SearchlabError, match="no logs .* with trials found"):
        run(table, tmp_path / "none.jsonl", tmp_path / "empty", trials=1)
