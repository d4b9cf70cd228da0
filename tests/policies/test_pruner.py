"""A static analysis that knows what a machine is good at drafts what the cost model selects from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from searchlab.arrays import Floats
from searchlab.conformance import toys
from searchlab.costmodel import BoundCostModel, compute_scores
from searchlab.costmodel.bound import OtherTask
from searchlab.costmodel.features import KnobFeatures, make_features
from searchlab.errors import UnsupportedSpace
from searchlab.records import Measurement
from searchlab.space import Config, Space
from searchlab.target import Cache, Target
from searchlab.workload import parse_workload
from searchlab_costmodels.pack_sum import PackSum
from searchlab_costmodels.pretrained import Pretrained
from searchlab_costmodels.xgboost import XGBoost
from searchlab_policies.pruner import (
    BLOCK_COLUMNS,
    THREAD_COLUMNS,
    UNROLLED_COLUMN,
    Pruner,
    SymbolAnalyzer,
    compute_utilization,
)
from searchlab_spaces.templates import KnobTemplate
from tests.support.policies import CPU, make_restricted

SPACE = KnobTemplate(parse_workload("gemm:64x64x64"), CPU)
BASE = {"tile_i": (8, 1, 8), "tile_j": (4, 1, 16), "tile_k": (16, 4), "pack_b": 0}


def policy(space: Space, **options: Any) -> Pruner:
    model = BoundCostModel(PackSum(seed=0, rounds=20), make_features("per-store", space))
    return Pruner(
        space,
        seed=0,
        cost_model=model,
        **{"population": 8, "drafted": 4, "draft_generations": 1, "n_startup": 8, **options},
    )


def speeds(*configs: dict[str, Any]) -> Floats:
    features = make_features("per-store", SPACE)
    return SymbolAnalyzer(CPU, 1)(features([Config({**BASE, **config}) for config in configs]))


def test_idle_lanes_idle_cores_and_spilt_registers_take_time() -> None:
    base, lanes, cores, registers = speeds(
        {}, {"tile_j": (32, 1, 2)}, {"tile_i": (1, 8, 8), "tile_j": (1, 4, 16)}, {"tile_i": (1, 1, 64)}
    )
    assert base > max(lanes, cores, registers)


def test_small_caches_take_time() -> None:
    rows = make_features("per-store", SPACE)([Config({**BASE, "tile_i": (64, 1, 1)})])
    small, large = (Target(CPU.spec, (Cache(size, 8), Cache(2 * size, 8))) for size in (128, 1 << 20))
    assert SymbolAnalyzer(small, 1)(rows) < SymbolAnalyzer(large, 1)(rows)


def gpu(**columns: Any) -> Floats:
    """Return the features of a kernel with one store."""
    store = np.zeros(164)
    store[0] = np.log2(1e6 + 1)
    for part, value in ((BLOCK_COLUMNS, columns.get("blocks", 320)), (THREAD_COLUMNS, columns.get("threads", 256))):
        store[part] = [np.log2(value + 1), 1.0, 1.0]
    store[UNROLLED_COLUMN] = np.log2(columns.get("unrolled", 1) + 1)
    return store


@pytest.mark.parametrize("slower", [{"blocks": 321}, {"blocks": 2}, {"threads": 257}, {"unrolled": 512}])
def test_partial_waves_partial_warps_and_spilling_slow_a_gpu(slower: dict[str, int]) -> None:
    fast, slow = SymbolAnalyzer(Target({"kind": "cuda"}), 80)(np.array([gpu(), gpu(**slower)]))
    assert fast > slow


def test_a_config_without_a_program_is_not_drafted() -> None:
    assert SymbolAnalyzer(CPU, 1)(np.full((2, 2 * 164), np.nan)).tolist() == [0.0, 0.0]
    assert policy(toys.Large()).ask(4)  # random ones fill the batch


def test_places_are_used_in_whole_waves() -> None:
    assert compute_utilization(np.array([1.0, 8.0, 9.0]), 8).tolist() == [0.125, 1.0, 0.5625]


def test_batches_come_from_the_draft_and_then_from_the_model() -> None:
    space = KnobTemplate(parse_workload("gemm:64x64x64"), CPU)
    pruner = policy(space, epsilon=0.0)
    estimate = pruner._estimate
    at_random = estimate([space.sample(np.random.default_rng(1)) for _ in range(8)])
    batch = pruner.ask(4)
    assert np.median(estimate(batch)) > np.median(at_random)
    pruner.tell(toys.simulate_trials(batch, toys.simulate_smooth))
    pruner.tell(toys.simulate_trials(pruner.ask(4), toys.simulate_smooth))
    assert pruner.cost_model.fitted and len(set(pruner.ask(4)) - set(pruner.seen)) == 0


def test_a_space_without_programs_is_refused() -> None:
    space = make_restricted()
    with pytest.raises(UnsupportedSpace, match="have none"):
        Pruner(space, seed=0, cost_model=BoundCostModel(XGBoost(seed=0), KnobFeatures(space)))


def test_a_model_of_another_shape_selects_the_first_batch() -> None:
    def cost(config: Config) -> Measurement:
        return toys.successful_measurement(1e-3 * sum(config["tile_j"]))

    wider = KnobTemplate(parse_workload("gemm:32x64x64"), CPU)
    configs = [wider.sample(np.random.default_rng(seed)) for seed in range(8)]
    model = BoundCostModel(Pretrained(seed=0), make_features("per-store", SPACE))
    model.pretrain([OtherTask(wider, configs, compute_scores(toys.simulate_trials(configs, cost)))])
    pruner = Pruner(SPACE, seed=0, cost_model=model, population=8, drafted=4, draft_generations=1, epsilon=0.0)
    best = pruner.cost_model.predict(pruner.ask(2))
    assert best.min() >= np.median(model.predict([SPACE.sample(np.random.default_rng(seed)) for seed in range(8)]))
