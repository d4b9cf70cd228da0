"""Logs as MetaSchedule's databases, opened by TVM itself, and back."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule.database import JSONDatabase
from tvm.s_tir.meta_schedule.tir_integration import compile_tir
from tvm_ffi import structural_equal

from searchlab import gemm
from searchlab.errors import SearchlabError
from searchlab.exchange.exports import export_logs
from searchlab.exchange.imports import ImportOptions, import_file
from searchlab.exchange.metaschedule import TrialNote
from searchlab.log.format import Computation, Log
from searchlab.log.read import read_log
from searchlab.log.result import Result
from searchlab.plugins import Plugin
from searchlab.workload import from_primfunc
from tests.support.apply.logs import write_log as faulty_log
from tests.support.exchange import write_log
from tests.support.limits import file_size_limit

SPACES = [
    ("sketch", "gemm:64x64x64"),
    ("knob-template", "gemm:64x64x64"),
    ("guided-gemm", "gemm:64x64x64"),
    ("trace", "conv2d:1x8x8x16x16x3x3:p1:bias:relu"),
]


def database_of(logs: list[Path], out: Path) -> JSONDatabase:
    count, _ = export_logs(logs, "metaschedule", out)
    assert count == len(logs)
    return JSONDatabase(work_dir=str(out), allow_missing=False)


def import_logs(directory: Path, out: Path, **options: Any) -> list[Log]:
    logs, notes = import_file(directory, out, ImportOptions(**options))
    assert not notes
    return [read_log(imported_log.path) for imported_log in logs]


@pytest.mark.parametrize(("space", "workload"), SPACES)
def test_compile_tir_returns_the_best_program_of_the_log(space: str, workload: str, tmp_path: Path) -> None:
    log = write_log(tmp_path / "a.jsonl", space, workload)
    database = database_of([log.path], tmp_path / "db")
    result = Result(log)
    program = compile_tir(database, result.space.workload.module, result.space.target.tvm)
    assert isinstance(program, Schedule)
    assert structural_equal(program.mod, result.best.schedule().mod)


@pytest.mark.parametrize(("space", "workload"), SPACES)
def test_a_round_trip_loses_nothing_but_invalid_configs(space: str, workload: str, tmp_path: Path) -> None:
    log = write_log(tmp_path / "a.jsonl", space, workload)
    _, notes = export_logs([log.path], "metaschedule", tmp_path / "db")
    assert len(notes) == 1 and "1 trials" in notes[0]
    (reimported,) = import_logs(tmp_path / "db", tmp_path / "b.jsonl")
    valid = [record for record in log.records if record.failure != "invalid"]
    assert reimported.header == log.header
    assert list(reimported.records) == [
        msgspec.structs.replace(trial, index=index) for index, trial in enumerate(valid)
    ]
    assert Result(reimported).best.config == Result(log).best.config


@pytest.mark.parametrize("workload", ["softmax:16x32", "batch-matmul:2x16x16x16", "tir"])
def test_workloads_of_plugins_make_the_round_trip(workload: str, tmp_path: Path) -> None:
    tir = from_primfunc(gemm(16, 16, 16).prim_func(), "matmul") if workload == "tir" else workload
    log = write_log(tmp_path / "a.jsonl", "sketch", tir, trials=4)
    export_logs([log.path], "metaschedule", tmp_path / "db")
    (reimported,) = import_logs(tmp_path / "db", tmp_path / "b.jsonl")
    assert reimported.header == log.header and len(reimported.records) == 3
    (rebuilt,) = import_logs(tmp_path / "db", tmp_path / "c.jsonl", space=Plugin("sketch"))
    assert len(rebuilt.trials) == len(reimported.trials)


def test_reading_a_note_imports_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.py").write_text("open('PWNED', 'w')")
    log = write_log(tmp_path / "a.jsonl", "knob-template", trials=1)
    export_logs([log.path], "metaschedule", tmp_path / "db")
    records = tmp_path / "db" / "database_tuning_record.json"
    for name in ("tir:evil.py:f", "evil:Cls:1x2"):
        header = msgspec.structs.replace(log.header, workload=name, computation=Computation(flops=1))
        old, new = TrialNote(log.header, log.records[0]).encode(), TrialNote(header, log.records[0]).encode()
        records.write_text(records.read_text().replace(old, new))
        import_file(tmp_path / "db", tmp_path / "b.jsonl", ImportOptions())
        assert read_log(tmp_path / "b.jsonl").header == header
        (tmp_path / "b.jsonl").unlink()
        with pytest.raises(SearchlabError):
            import_file(tmp_path / "db", tmp_path / "b.jsonl", ImportOptions(space=Plugin("sketch")))
        records.write_text(records.read_text().replace(new, old))
    assert not (tmp_path / "PWNED").exists()


def test_decisions_agree_with_the_notes_of_searchlab(tmp_path: Path) -> None:
    log = write_log(tmp_path / "a.jsonl", "sketch", trials=8)
    export_logs([log.path], "metaschedule", tmp_path / "db")
    (from_notes,) = import_logs(tmp_path / "db", tmp_path / "b.jsonl")
    (imported,), _ = import_file(
        tmp_path / "db", tmp_path / "c.jsonl", ImportOptions(space=Plugin("sketch"), target=log.header.target)
    )
    space = Result(log).space
    canonical = [space.canonical(trial.config) for trial in from_notes.trials]  # type: ignore[attr-defined]
    read = [trial.config for trial in read_log(imported.path).trials]
    assert not imported.omitted_records and {*read} == {*canonical}


@pytest.mark.parametrize("again", [(3, 5, 4), (5, 4, 3), (3,)])
def test_the_winner_of_the_finalists_is_first(again: tuple[int, ...], tmp_path: Path) -> None:
    log = write_log(tmp_path / "a.jsonl", "knob-template", again=again)
    database = database_of([log.path], tmp_path / "db")
    result = Result(log)
    assert result.best.trial.index == again[-1]
    program = compile_tir(database, result.space.workload.module, result.space.target.tvm)
    assert structural_equal(program.mod, result.best.schedule().mod)
    (restored,) = import_logs(tmp_path / "db", tmp_path / "b.jsonl")
    assert [r.seconds for r in restored.records] == [r.seconds for r in log.records if r.failure != "invalid"]


def test_several_logs_share_a_database(tmp_path: Path) -> None:
    logs = [
        write_log(tmp_path / "logs" / "a.jsonl", "knob-template", seed=0),
        write_log(tmp_path / "logs" / "b.jsonl", "knob-template", "gemm:32x32x64", seed=1),
        write_log(tmp_path / "logs" / "c.jsonl", "sketch", seed=2),
    ]
    export_logs([tmp_path / "logs"], "metaschedule", tmp_path / "db")
    database = JSONDatabase(work_dir=str(tmp_path / "db"))
    once_more = len(logs)  # the best of each, for Relax
    assert len(database) == sum(record.failure != "invalid" for log in logs for record in log.records) + 2 * once_more
    assert [log.header for log in import_logs(tmp_path / "db", tmp_path / "back")] == [log.header for log in logs]


def test_a_database_that_tvm_pruned_is_still_read(tmp_path: Path) -> None:
    log = write_log(tmp_path / "a.jsonl", "knob-template")
    (tmp_path / "pruned").mkdir()
    database_of([log.path], tmp_path / "db").dump_pruned(JSONDatabase(work_dir=str(tmp_path / "pruned")))
    (reimported,) = import_logs(tmp_path / "pruned", tmp_path / "b.jsonl")
    assert [trial.config for trial in reimported.trials] == [Result(log).best.config]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"workload": "gemm:none"}, "needs 3 whole numbers"),
        ({"format_version": "99.0"}, "line 1 .* log format is 99.0"),
    ],
)
def test_a_note_is_checked_like_a_log(changes: dict[str, Any], why: str, tmp_path: Path) -> None:
    log = write_log(tmp_path / "a.jsonl", "knob-template", trials=1)
    export_logs([log.path], "metaschedule", tmp_path / "db")
    header = msgspec.structs.replace(log.header, **changes)
    note = TrialNote(log.header, log.records[0]).encode()
    records = tmp_path / "db" / "database_tuning_record.json"
    assert note in records.read_text()
    records.write_text(records.read_text().replace(note, TrialNote(header, log.records[0]).encode()))
    with pytest.raises(SearchlabError, match=why):
        import_logs(tmp_path / "db", tmp_path / "b.jsonl")


@pytest.mark.usefixtures("trusting")
def test_trials_without_a_program_are_left_out_and_not_retried(tmp_path: Path) -> None:
    """A schedule that raises, and schedules that would crash or hang the process."""
    faults = ["none", "schedule raises", "schedule segfaults", "schedule hangs"]
    log = tmp_path / "a.jsonl"
    faulty_log(log, [{"fault": fault} for fault in faults])
    header, *lines = log.read_text().splitlines()
    failed = [
        re.sub(r'"seconds":\[.*?\]', f'"failure":"{failure}"', line)
        for line, failure in zip(lines[1:], ("build_error", "crash", "build_timeout"), strict=True)
    ]
    log.write_text("\n".join([header, lines[0], *failed, ""]))
    _, (note,) = export_logs([log], "metaschedule", tmp_path / "db")
    assert "3 trials without a measured program were omitted" in note
    (reimported,) = import_logs(tmp_path / "db", tmp_path / "b.jsonl")
    assert [record.config for record in reimported.records] == [{"fault": "none"}]


@pytest.mark.usefixtures("trusting")
def test_an_export_that_fails_leaves_nothing(tmp_path: Path) -> None:
    log = faulty_log(tmp_path / "a.jsonl", [{"fault": "none"}, {"fault": "schedule raises"}])
    with pytest.raises(SearchlabError, match=r"a\.jsonl, trial 1: .*ValueError: a bug of a plug-in"):
        export_logs([log], "metaschedule", tmp_path / "db")
    assert not list((tmp_path / "db").iterdir())
    log = faulty_log(tmp_path / "b.jsonl", [{"fault": "none"}, {"fault": "is wrong"}])
    with pytest.raises(SearchlabError, match=r"b\.jsonl, trial 1 cannot be stored .* a different program"):
        export_logs([log], "metaschedule", tmp_path / "db")
    assert not list((tmp_path / "db").iterdir())
    (tmp_path / "db" / "database_workload.json").symlink_to(tmp_path / "no" / "where")
    with pytest.raises(SearchlabError, match="cannot write"):
        export_logs([log], "metaschedule", tmp_path / "db")


def test_relax_gets_the_best_that_was_measured_itself(tmp_path: Path) -> None:
    log = write_log(tmp_path / "a.jsonl", "knob-template")
    *lines, last = log.path.read_text().splitlines()  # the fastest
    log.path.write_text("\n".join([*lines, json.dumps(json.loads(last) | {"nearest": True}), ""]))
    _, (note,) = export_logs([log.path], "metaschedule", tmp_path / "db")
    assert "2 trials" in note
    assert len((tmp_path / "db" / "database_workload.json").read_text().splitlines()) > 1


def test_the_target_of_an_exported_log_cannot_be_replaced(tmp_path: Path) -> None:
    export_logs([write_log(tmp_path / "a.jsonl", "knob-template", trials=1).path], "metaschedule", tmp_path / "db")
    with pytest.raises(SearchlabError, match="omit --target"):
        import_logs(tmp_path / "db", tmp_path / "b.jsonl", target="haswell")


def test_a_database_is_not_added_to(tmp_path: Path) -> None:
    log = write_log(tmp_path / "a.jsonl", "knob-template", trials=1)
    export_logs([log.path], "metaschedule", tmp_path / "db")
    with pytest.raises(SearchlabError, match="already exists"):
        export_logs([log.path], "metaschedule", tmp_path / "db")


@pytest.mark.parametrize(
    "workload", ["gemm:24x40x56:bias:relu", "gemm:32x32x32:float16", "conv2d:1x9x7x4x6x3x2:s2x1:p1"]
)
def test_a_workload_is_recognised_without_a_note(workload: str, tmp_path: Path) -> None:
    """The traces are as MetaSchedule itself would have written them: without the annotation of the note."""
    log = write_log(tmp_path / "a.jsonl", "sketch", workload)
    export_logs([log.path], "metaschedule", tmp_path / "db")
    records = tmp_path / "db" / "database_tuning_record.json"
    plain = []
    for line in records.read_text().splitlines():
        index, (trace, *rest) = msgspec.json.decode(line)
        if index > 0:
            continue  # for Relax
        trace[0] = [instruction for instruction in trace[0] if instruction[2] != ["searchlab.trial"]]
        plain.append(msgspec.json.encode([index, [trace, *rest]]).decode())
    records.write_text("\n".join(plain))
    (reimported,) = import_logs(tmp_path / "db", tmp_path / "b.jsonl")
    assert reimported.header.workload == workload and reimported.header.space.name == "metaschedule"
    best = [record.measurement.cost for record in log.records if record.failure is None]
    assert sorted(cost for cost in reimported.costs if cost < 1) == pytest.approx(sorted(best))
    assert [record.failure for record in reimported.records].count("run_error") == 1


@pytest.mark.parametrize("size", [0, 3000])
def test_a_database_that_does_not_fit_is_refused(tmp_path: Path, size: int) -> None:
    log = write_log(tmp_path / "a.jsonl", "knob-template", "gemm:64x64x64")
    with file_size_limit(size), pytest.raises(SearchlabError, match="cannot write .*db: its files are incomplete"):
        export_logs([log.path], "metaschedule", tmp_path / "db")
    database_of([log.path], tmp_path / "db")
