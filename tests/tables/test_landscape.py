"""Landscape measures of tables, against brute force and a simulated walk."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from searchlab.conformance import toys
from searchlab.log.format import Log
from searchlab.log.read import read_log
from searchlab.measure.suite import find_suite
from searchlab.space import Config
from searchlab.tables.info import TableInfo
from searchlab.tables.landscape import Landscape, compute_mean_distance, encode_configs, format_share
from searchlab_policies.neighbours import hamming_distance
from tests.support.logs import write_table

TABLE = "gemm-64x64x64-trace-1t"  # 1,458 configs


@pytest.fixture(scope="module")
def log() -> Log:
    return read_log(find_suite("v1").table(TABLE).path)


@pytest.fixture(scope="module")
def near(log: Log) -> list[list[int]]:
    """The neighbours of each config, one pair at a time."""
    configs = [record.trial.config for record in log.records]
    return [[j for j, second in enumerate(configs) if hamming_distance(config, second) == 1] for config in configs]


def test_local_optima_are_those_of_brute_force(log: Log, near: list[list[int]]) -> None:
    costs = log.costs
    optima = [i for i, neighbours in enumerate(near) if neighbours and costs[i] <= costs[neighbours].min()]
    landscape = TableInfo(log).landscape
    assert landscape.local_optima == pytest.approx(len(optima) / len(costs)) and len(optima) > 10
    assert landscape.good_optima == pytest.approx(np.mean(costs[optima] <= costs.min() / 0.95))


def test_the_autocorrelation_is_that_of_random_walks(log: Log, near: list[list[int]]) -> None:
    rng = np.random.default_rng(0)
    fitness = np.log(log.costs)
    degrees = np.array([len(neighbours) for neighbours in near])
    starts = rng.choice(len(near), size=500, p=degrees / degrees.sum()).tolist()  # configs that many walks have reached
    steps: list[tuple[int, int]] = []
    for _ in range(100):
        ends = [near[i][int(rng.integers(len(near[i])))] for i in starts]
        steps += zip(starts, ends, strict=True)
        starts = ends
    expected = np.corrcoef(fitness[np.array(steps).T])[0, 1]
    landscape = TableInfo(log).landscape
    assert landscape.distance == 1 and landscape.autocorrelation == pytest.approx(expected, abs=0.01)
    assert landscape.correlation_length == pytest.approx(-1 / math.log(landscape.autocorrelation))


def test_the_spread_is_that_of_all_pairs(log: Log) -> None:
    configs = [record.trial.config for record in log.records[:60]] + [Config({"other": 1}), Config({"other": 2})]
    expected = np.mean([hamming_distance(a, b) for i, a in enumerate(configs) for j, b in enumerate(configs) if i != j])
    assert compute_mean_distance(encode_configs(configs)) == pytest.approx(expected)


def test_a_sample_has_no_optima_but_a_correlation(log: Log) -> None:
    sample = np.random.default_rng(1).permutation(len(log.records))[:60].tolist()
    landscape = Landscape.from_log(replace(log, records=tuple(log.records[i] for i in sample)), is_exhaustive=False)
    assert landscape.local_optima is None and landscape.good_optima is None and landscape.spread is not None
    assert landscape.distance is not None and landscape.distance > 1 and landscape.autocorrelation is not None


def test_a_single_config_has_no_landscape(tmp_path: Path) -> None:
    write_table(tmp_path / "a.jsonl", toys.Small(), toys.simulate_smooth, counted=True)
    complete = TableInfo(read_log(tmp_path / "a.jsonl")).landscape
    assert complete.failure_share == 0 and complete.autocorrelation is not None and complete.autocorrelation > 0.3
    records = read_log(tmp_path / "a.jsonl")
    few = Landscape.from_log(replace(records, records=records.records[:1]), is_exhaustive=False)
    assert few.autocorrelation is None and few.describe() == {}


def test_failures_are_a_share_of_all_and_outside_the_landscape(log: Log) -> None:
    failed = [msgspec.structs.replace(record, seconds=(), failure="run_error") for record in log.records[:100]]
    landscape = Landscape.from_log(replace(log, records=(*failed, *log.records[100:])), is_exhaustive=True)
    without = Landscape.from_log(replace(log, records=log.records[100:]), is_exhaustive=True)
    assert landscape.failure_share == pytest.approx(100 / len(log.records))
    assert msgspec.structs.replace(landscape, failure_share=0.0) == without


def test_the_landscape_is_on_the_card_and_in_the_facts(log: Log) -> None:
    info = TableInfo(log)
    assert info.to_json()["landscape"]["good_optima"] == info.landscape.good_optima
    card = (find_suite("v1").directory / "cards" / f"{TABLE}.md").read_text("utf-8")
    assert all(f"| {title} | {text} |" in card for title, text in info.landscape.describe().items())


@pytest.mark.parametrize(("fraction", "text"), [(1.0, "100 %"), (0.997, "100 %"), (0.42, "42 %"), (0.0012, "0.12 %")])
def test_percentages_are_not_written_as_powers_of_ten(fraction: float, text: str) -> None:
    assert format_share(fraction) == text
