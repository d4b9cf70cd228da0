"""The copula samples what was fast elsewhere: each knob's values, how they go together, and how they depend on size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from searchlab.arrays import Floats
from searchlab.conformance import toys
from searchlab.log.read import read_log
from searchlab.records import Measurement, Trial
from searchlab.run.tune import tune
from searchlab.space import Knob, ProductSpace
from searchlab.target import Target
from searchlab.workload import gemm, parse_workload
from searchlab_policies.copula import Copula
from searchlab_spaces.templates import KnobTemplate
from tests.support.logs import write_table

Seconds = Callable[[Mapping[str, Any]], float]


class Tiles(ProductSpace):
    """Two tile sizes, of which larger workloads have more, and a switch."""

    def __init__(self, side: int = 64) -> None:
        sizes = [2**power for power in range(side.bit_length())]
        knobs = [Knob("x", sizes), Knob("y", sizes), Knob("how", ["row", "column"])]
        super().__init__(gemm(side, side, side), Target({"kind": "llvm"}), knobs)

    def schedule(self, config: object) -> Any:
        raise NotImplementedError


def trials(space: Tiles, seconds: Seconds) -> list[Trial]:
    return [Trial(i, config, Measurement((seconds(config),))) for i, config in enumerate(space.enumerate())]


def propose(tasks: list[tuple[int, Seconds]], side: int = 64, n: int = 24, **options: Any) -> list[dict[str, Any]]:
    policy = Copula(Tiles(side), seed=0, **{"epsilon": 0.0, **options})
    policy.transfer([(Tiles(of), trials(Tiles(of), seconds)) for of, seconds in tasks])
    return [dict(config) for config in policy.ask(n)]


def test_what_was_fast_elsewhere_is_proposed_first() -> None:
    def seconds(config: Mapping[str, Any]) -> float:
        return 1 + abs(np.log2(config["x"]) - 4) + abs(np.log2(config["y"]) - 2) + 4 * (config["how"] == "row")

    first = propose([(128, seconds)], n=6, quantile=0.1)
    near = [abs(np.log2(proposal["x"]) - 4) + abs(np.log2(proposal["y"]) - 2) for proposal in first]
    assert max(near) <= 3 and Counter(proposal["how"] for proposal in first)["column"] >= 5
    at_random = [abs(np.log2(proposal["x"]) - 4) + abs(np.log2(proposal["y"]) - 2) for proposal in Tiles().enumerate()]
    assert np.mean(near) < np.mean(at_random) / 2


def test_values_that_go_together_are_sampled_together() -> None:
    """Fast are configs whose tiles have an area of 64, whatever their sides."""

    def seconds(config: Mapping[str, Any]) -> float:
        return 1 + abs(np.log2(config["x"] * config["y"]) - 6)

    def spread(shrinkage: float) -> float:
        configs = propose([(64, seconds)], side=32, quantile=0.14, shrinkage=shrinkage, n=12)
        return float(np.mean([abs(np.log2(proposal["x"] * proposal["y"]) - 6) for proposal in configs]))

    assert spread(0.0) < spread(1.0)


@pytest.mark.parametrize("side", [16, 256])
def test_samples_depend_on_the_size_of_the_workload(side: int) -> None:
    """The best tile is a quarter of the side, in each of the earlier workloads."""

    def best_at(of: int) -> Seconds:
        return lambda config: 1 + abs(np.log2(config["x"]) - np.log2(of / 4))

    configs = propose([(of, best_at(of)) for of in (16, 64, 256)], side=side, n=8, shrinkage=0.0, quantile=0.12)
    assert abs(np.mean([np.log2(proposal["x"]) for proposal in configs]) - np.log2(side / 4)) < 1


def test_samples_do_not_depend_on_the_signs_of_eigenvectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """BLAS kernels choose these signs differently."""

    def seconds(config: Mapping[str, Any]) -> float:
        return 1 + abs(np.log2(config["x"] * config["y"]) - 6) + (config["how"] == "row")

    def decompose(matrix: Floats) -> tuple[Floats, Floats]:
        values, vectors = eigh(matrix)
        return values, vectors * np.resize([-1.0, 1.0], len(values))

    expected, eigh = propose([(32, seconds), (128, seconds)]), np.linalg.eigh
    monkeypatch.setattr(np.linalg, "eigh", decompose)
    assert propose([(32, seconds), (128, seconds)]) == expected


def test_without_earlier_runs_it_learns_from_its_own() -> None:
    def seconds(config: Mapping[str, Any]) -> float:
        return 1 + abs(np.log2(config["x"]) - 4) + abs(np.log2(config["y"]) - 2)

    policy, space = Copula(Tiles(), seed=1, n_startup=16, epsilon=0.0, quantile=0.2), Tiles()
    costs: list[float] = []
    for _ in range(4):
        batch = policy.ask(8)
        policy.tell(
            [Trial(len(costs) + i, proposal, Measurement((seconds(proposal),))) for i, proposal in enumerate(batch)]
        )
        costs += [seconds(proposal) for proposal in batch]
    assert np.mean(costs[16:]) < np.mean([seconds(proposal) for proposal in space.enumerate()]) - 0.5


def test_runs_without_a_success_are_skipped() -> None:
    policy, space = Copula(Tiles(), seed=0), Tiles(32)
    failed = [Trial(i, config, Measurement(failure="run_error")) for i, config in enumerate(space.enumerate())]
    policy.transfer([(space, failed)])
    assert len(policy.ask(8)) == 8


@pytest.mark.parametrize("policy", ["copula", "gp-prior", "rgpe"])
def test_a_run_receives_the_trials_of_other_shapes_and_resumes(policy: str, native: Target, tmp_path: Path) -> None:
    def tuned(shape: str, log: str, trials: int = 8, **options: Any) -> list[Any]:
        table = tmp_path / f"table-{shape}.jsonl"
        if not table.exists():
            write_table(table, KnobTemplate(parse_workload(shape), native), toys.simulate_flaky)
        tune(
            shape,
            space="knob-template",
            log=tmp_path / log,
            trials=trials,
            measure={"kind": "table", "path": str(table)},
            **options,
        )
        return [record.config for record in read_log(tmp_path / log).records]

    tuned("gemm:16x8x8", "earlier.jsonl", 32, policy="random")
    warm = tuned("gemm:8x8x8", "warm.jsonl", policy=policy, warm_start=[tmp_path / "earlier.jsonl"])
    assert warm != tuned("gemm:8x8x8", "cold.jsonl", policy=policy)
    assert len(read_log(tmp_path / "warm.jsonl").header.warm_start) == 1
    short = tuned("gemm:8x8x8", "short.jsonl", 3, policy=policy, warm_start=[tmp_path / "earlier.jsonl"], batch=1)
    longer = tuned("gemm:8x8x8", "short.jsonl", 6, policy=policy, warm_start=[tmp_path / "earlier.jsonl"], batch=1)
    assert longer[:3] == short
