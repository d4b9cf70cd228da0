"""Extracting features in build processes: the rows are the same everywhere, and no config harms another."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from searchlab.conformance import toys
from searchlab.costmodel.features import ProgramFeatures, make_features, use_extractor
from searchlab.errors import SearchlabWarning
from searchlab.measure import table
from searchlab.measure.building import BuildPool
from searchlab.measure.table import TableMeasurer, TableSettings
from searchlab.plugins import Plugin
from searchlab.run.tune import tune
from searchlab.space import SPACES, Config, Space
from searchlab.target import Target
from searchlab.workload import parse_workload
from tests.support.logs import read_deterministic_part, write_table
from tests.support.measure.faulty import Faulty


@pytest.fixture(scope="module")
def pool() -> Iterator[BuildPool]:
    pool = BuildPool(workers=2, build_timeout=4.0, memory_limit_mb=0)
    yield pool
    pool.close()


@pytest.mark.parametrize("features", ["program", "per-store", "itervar", "curve"])
@pytest.mark.parametrize("space", ["sketch", "knob-template"])
def test_rows_are_the_same_here_and_elsewhere(pool: BuildPool, native: Target, space: str, features: str) -> None:
    toy = SPACES.make(Plugin(space), parse_workload("gemm:32x32x32"), native)
    configs = toy.sample_new(np.random.default_rng(0), 40, ())
    expected = make_features(features, toy)(configs)
    with use_extractor(pool.extract):
        extractor = make_features(features, toy)
        np.testing.assert_array_equal(extractor(configs[::-1]), expected[::-1])
    assert pool.extract_seconds > 0
    with use_extractor(_unwanted):  # every row was kept
        np.testing.assert_array_equal(extractor(configs), expected)
    single_rows = [make_features(features, toy)([config])[0] for config in configs[:5]]
    for row, single_row in zip(expected, single_rows, strict=False):
        np.testing.assert_array_equal(row[: len(single_row)], single_row)


def _unwanted(space: Space, features: str, configs: object) -> None:
    raise AssertionError(f"{configs} were extracted already")


def faults(*names: str) -> list[Config]:
    return [Config({"fault": name}) for name in names]


def test_a_config_that_ends_its_process_has_no_features(pool: BuildPool, native: Target) -> None:
    space = Faulty(parse_workload("gemm:8x8x8"), native)
    good = faults("none", "tiled", "is wrong")
    bad = faults("invalid", "schedule raises", "schedule segfaults", "schedule hangs")
    configs = [*good, *bad, *good * 4]
    with pytest.warns(SearchlabWarning, match="cannot extract program features for .* (SIGSEGV|4 s)") as caught:
        rows = pool.extract(space, "program", configs)
    assert len(caught) == 1
    own_rows = ProgramFeatures(space).extract([*good, *bad[:2]])
    for row, expected in zip([*rows[:5], *rows[7:10]], [*own_rows, *own_rows[:3]], strict=True):
        np.testing.assert_array_equal(row, expected)
    assert [len(row) for row in rows[3:7]] == [0] * 4
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the warning was given already
        again = pool.extract(space, "program", faults(*["none"] * 16, "schedule segfaults"))
    assert [len(row) for row in again] == [328] * 16 + [0]


def test_a_run_survives_a_config_that_kills_the_extractor(tmp_path: Path) -> None:
    with pytest.warns(SearchlabWarning, match="cannot extract program features for .* SIGSEGV"):
        result = tune(
            "gemm:8x8x8",
            space="tests.support.measure.faulty:Crashing",
            features="program",
            policy={"name": "xgb", "options": {"n_startup": 2}},
            log=tmp_path / "log.jsonl",
            trials=4,
            batch=2,
        )
    failures = {trial.config["fault"]: trial.measurement.failure for trial in result.trials}
    assert failures == {"none": None, "tiled": None, "schedule segfaults": "crash", "schedule raises": "build_error"}


def test_a_table_has_processes_for_a_large_batch_only(
    native: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = toys.Small(toys.WORKLOAD, native)
    path = write_table(tmp_path / "small.jsonl", space, toys.simulate_smooth)
    configs = list(space.enumerate())[:24]
    with TableMeasurer(TableSettings(str(path))) as measurer:
        rows = measurer.extract(space, "program", configs)
        assert measurer._pool is None
    monkeypatch.setattr(table, "MIN_CONFIGS_FOR_PROCESSES", 20)
    monkeypatch.setenv("TVM_NUM_THREADS", "1")  # this is one of several jobs
    with TableMeasurer(TableSettings(str(path))) as measurer:
        again = measurer.extract(space, "program", configs)
        assert measurer._pool is None
        monkeypatch.setattr(table, "make_features", None)
        remembered_rows = measurer.extract(space, "program", configs[::-1])[::-1]
    for row, same, remembered in zip(rows, again, remembered_rows, strict=True):
        np.testing.assert_array_equal(row, same)
        assert remembered is same, "one run after the other asks for the same rows"


def test_a_run_is_the_same_with_processes_that_extract(
    native: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_table(tmp_path / "small.jsonl", toys.Small(toys.WORKLOAD, native), toys.simulate_smooth)

    def run(log: Path) -> Path:
        tune(
            toys.WORKLOAD,
            space="searchlab.conformance.toys:Small",
            policy="xgb",
            log=log,
            trials=24,
            features="program",
            measure={"kind": "table", "path": str(path)},
        )
        return log

    plain = run(tmp_path / "plain.jsonl")
    monkeypatch.setattr(table, "MIN_CONFIGS_FOR_PROCESSES", 16)
    monkeypatch.setattr(table, "own_cores", lambda: 2)
    assert read_deterministic_part(run(tmp_path / "spread.jsonl")) == read_deterministic_part(plain)
