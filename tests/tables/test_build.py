"""Building tables, and their descriptions."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from searchlab.conformance import toys
from searchlab.errors import SearchlabError
from searchlab.log.format import Header, Record
from searchlab.log.read import read_log
from searchlab.log.writer import LogWriter
from searchlab.plugins import Plugin
from searchlab.records import Measurement, Trial
from searchlab.run.plan import OnChargedTrial
from searchlab.run.study import Study
from searchlab.space import Config
from searchlab.tables.build import build_tables, choose_passes, make_table_runs, make_table_study, plan_tables
from searchlab.tables.info import TableInfo, format_values, format_versions
from tests.support.logs import write_table
from tests.support.spaces.targets import UNOPTIMIZED

GOLDEN = Path(__file__).parents[1] / "golden" / "data"

QUICK = {"kind": "local", "repeat": 2, "min_repeat_ms": 0}
GEMM = "gemm:16x16x16"
FLEET = {"kind": "rpc", "tracker": "127.0.0.1:1", "key": "k"}


def ignore_trials(*_: object) -> OnChargedTrial:
    return lambda *_: None


def small_study(**more: object) -> Study:
    data = {
        "workloads": [GEMM],
        "spaces": ["searchlab.conformance.toys:Small"],
        "policies": ["grid", "xgb"],
        "seeds": 3,
    }
    return Study.from_dict({**data, "measure": QUICK, **more})


def test_a_table_contains_the_space_in_random_order(tmp_path: Path) -> None:
    study = make_table_study(GEMM, "guided-gemm", measure=QUICK, target=json.dumps(UNOPTIMIZED))
    runs, left_out = plan_tables(study, limit=None)
    runs_by_table = make_table_runs(runs, None, tmp_path, passes=0)
    ((path, run),) = runs_by_table.items()
    assert not left_out and path == tmp_path / "gemm_16x16x16" / "guided-gemm.jsonl"
    build_tables(runs_by_table, 0, ignore_trials)
    log = read_log(path)
    configs = [trial.config for trial in log.trials]
    everything = list(run.space.enumerate())
    assert (
        set(configs) == set(everything) and len(configs) == len(everything) == run.trial_count == log.header.space_size
    )
    assert configs != everything
    assert log.header.name == "table" and TableInfo(log).is_exhaustive
    before = path.read_bytes()
    build_tables(runs_by_table, 0, ignore_trials)
    assert path.read_bytes() == before
    replay = Study.from_dict(
        {
            "workloads": [GEMM],
            "spaces": ["guided-gemm"],
            "policies": ["evolutionary"],
            "trials": 20,
            "measure": {"kind": "table", "path": str(path)},
        }
    )
    recorded = {trial.config: trial.measurement.seconds for trial in log.trials}
    for trial in replay.run(tmp_path / "replayed")[0].trials:
        assert trial.measurement.seconds == recorded[trial.config]


def test_a_sample_resumes_and_is_compressed_when_complete(tmp_path: Path) -> None:
    study = make_table_study(GEMM, "guided-gemm", measure=QUICK)

    def build(limit: int, out: Path) -> None:
        build_tables(make_table_runs(plan_tables(study, limit)[0], out, Path(), passes=0), 0, ignore_trials)

    build(5, tmp_path / "a.building" / "built.jsonl")  # as if it had been interrupted
    first = read_log(tmp_path / "a.building" / "built.jsonl")
    (tmp_path / "a.jsonl").write_text("a log of somebody else")
    build(9, tmp_path / "a.parquet")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", "a.parquet"]
    assert (tmp_path / "a.jsonl").read_text() == "a log of somebody else"
    before = (tmp_path / "a.parquet").read_bytes()
    log = read_log(tmp_path / "a.parquet")
    assert log.records[:5] == first.records and len(log.records) == 9 and TableInfo(log).is_exhaustive is False
    build(9, tmp_path / "a.parquet")
    assert (tmp_path / "a.parquet").read_bytes() == before
    with pytest.raises(SearchlabError, match="complete table of 9 configs instead of 12; remove it"):
        build(12, tmp_path / "a.parquet")


def test_a_study_gives_a_table_of_each_workload_and_space() -> None:
    study = small_study(
        workloads=[GEMM, "gemm:64x64x64", "conv2d:1x8x8x8x8x3x3"],
        spaces=[{"name": "searchlab.conformance.toys:Small", "label": "small"}, "guided-gemm"],
        warm_start=[],
        target={"kind": "llvm", "mcpu": "skylake-avx512", "num-cores": 2},  # a space may differ from CPU to CPU
    )
    runs, left_out = plan_tables(study, limit=70, seed=4)
    assert len(left_out) == 1 and "guided-gemm" in left_out[0]
    assert {(str(run.log_path), run.trial_count) for run in runs} >= {
        ("gemm_16x16x16/small.jsonl", 70),
        ("gemm_64x64x64/guided-gemm.jsonl", 64),
    }
    assert len(runs) == 5 and {run.seed for run in runs} == {4}
    assert {path.parts[0] for path in make_table_runs(runs, Path("out"), Path("default"), passes=0)} == {"out"}
    with pytest.raises(SearchlabError, match="cannot write 5 tables to one file"):
        make_table_runs(runs, Path("a.jsonl"), Path(), passes=0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: plan_tables(make_table_study("gemm:64x64x64", "sketch")), "too many configs to count for .*--limit"),
        (lambda: plan_tables(small_study(), limit=0), "at least 1; got 0"),
        (lambda: plan_tables(small_study(measure={"kind": "table", "path": "x"})), "measures nothing"),
        (lambda: make_table_study(GEMM), "--space is missing"),
        (lambda: choose_passes(plan_tables(small_study())[0], 1), "from 2 to 1000, or 0"),
        (lambda: choose_passes(plan_tables(small_study())[0], 10**400), "from 2 to 1000, or 0"),
        (
            lambda: choose_passes(plan_tables(small_study(measure=FLEET, target="native"))[0], 3),
            "only programs on this machine can be timed again",
        ),
        (lambda: make_table_study("a.toml", "sketch"), "specifies its own spaces"),
        (lambda: make_table_study(GEMM, "guided-gemm", {"nonsense": 1}).plan(), "nonsense"),
        (lambda: make_table_study(GEMM, "guided-gemm", measure={"kind": "lokal"}), "lokal"),
    ],
)
def test_bad_input_is_one_sentence(make, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(SearchlabError, match=message):
        make()


def test_info_describes_a_table(tmp_path: Path) -> None:
    """gemm:64x64x64 has 2 * 64^3 FLOP: 524.288 GFLOPS at a microsecond."""
    header = Header(
        workload="gemm:64x64x64",
        space=Plugin("toy", {"x": 1}),
        fingerprint="f",
        policy=Plugin("random"),
        seed=0,
        batch=1,
        target={"kind": "llvm"},
        measure={},
        space_size=8,
        workers=2,
    )
    writer = LogWriter(tmp_path / "a.jsonl", header)
    for index, microseconds in enumerate([1, 1.07, 2, 4]):
        seconds = tuple(1e-6 * microseconds * factor for factor in (0.9, 1.0, 1.2))
        measured = Measurement(seconds, build_seconds=2.0, run_seconds=0.5)
        writer.append(Record.from_trial(Trial(index, Config({"x": index}), measured)))
    for index, failure in enumerate(["invalid", "crash", "invalid"], 4):
        measured = toys.failed_measurement(failure, "made up")  # type: ignore[arg-type]
        writer.append(Record.from_trial(Trial(index, Config({"x": index}), measured)))
    writer.close()
    info = TableInfo(read_log(tmp_path / "a.jsonl"))
    data = json.loads(json.dumps(info.to_json()))
    assert (data["configs"], data["space_size"], data["exhaustive"]) == (7, 8, False)
    assert data["failures"] == {"invalid": 2, "crash": 1}
    assert data["gflops"]["best"] == pytest.approx(524.288) and data["gflops"]["worst"] == pytest.approx(131.072)
    assert data["gflops"]["median"] == pytest.approx((524.288 / 1.07 + 524.288 / 2) / 2)
    assert data["quantiles"]["0.5"] == pytest.approx(data["gflops"]["median"])
    assert data["near_best"] == pytest.approx(1 / 7)
    assert info.describe()["within 5 % of the best"].startswith("1 config, 14")
    assert data["noise"] == pytest.approx(0.3)
    assert data["seconds"] == pytest.approx(4 * (2 / 1 + 0.5)), "batches of one have one worker"


def test_info_of_logs_without_configs_and_without_success(tmp_path: Path) -> None:
    info = TableInfo(read_log(write_table(tmp_path / "a.jsonl", toys.Small(), toys.simulate_flaky))).to_json()
    assert info["exhaustive"] is None and info["space_size"] is None and info["noise"] == 0
    info = TableInfo(read_log(write_table(tmp_path / "b.jsonl", toys.Small(), toys.simulate_invalid))).to_json()
    assert info["failures"] == {"invalid": 120} and "gflops" not in info and info["noise"] is None


def test_info_names_the_versions_before_and_after_a_change(tmp_path: Path) -> None:
    log = read_log(GOLDEN / "changed.jsonl")
    (change,) = log.changes
    before = log.header.versions
    changed = replace(change, versions=before | {"numpy": "9.9"})
    log = dataclasses.replace(log, changes=(changed, replace(changed, trial_count=change.trial_count + 1)))
    assert TableInfo(log).to_json()["changes"][0] == {"trials": change.trial_count, "versions": changed.versions}
    first, second = format_versions(log).split(f", then from trial {change.trial_count} on ")
    assert (first, second) == (format_values(before), format_values(changed.versions)) and "numpy 9.9" in second
    assert format_versions(dataclasses.replace(log, changes=())) == first
