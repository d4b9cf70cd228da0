from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from searchlab.conformance import toys
from searchlab.costmodel.features import (
    COLUMNS_PER_STORE,
    KnobFeatures,
    PerStoreFeatures,
    ProgramFeatures,
    make_features,
)
from searchlab.errors import InvalidConfig, SearchlabError
from searchlab.space import Config, Space
from searchlab.target import Target
from searchlab.workload import parse_workload
from searchlab_spaces.templates import KnobTemplate
from tests.support.spaces.products import Ordered


def test_knobs_are_seen_as_log2_of_factors_numbers_and_words() -> None:
    features = KnobFeatures(toys.Small())
    configs = [
        Config({"tile": (8, 2), "unroll": 64, "order": "ijk", "pack": True}),
        Config({"tile": (1, 16), "unroll": 0, "order": "jki", "pack": False}),
    ]
    features.learn(configs)
    assert features(configs).tolist() == [[3, 1, 64, 1, 1, 0], [0, 4, 0, 0, 0, 1]]


def test_an_absent_knob_is_nan_and_an_unseen_knob_no_column() -> None:
    features = KnobFeatures(toys.Dependent())
    tiled = Config({"sketch": "tiled", "tile": (4, 2, 2), "vector": 2, "parallel": True})
    plain = Config({"sketch": "plain", "parallel": False})
    packed = Config({"sketch": "packed", "tile": (8, 1, 1), "vector": 1, "pack": "a", "parallel": True})
    features.learn([tiled, plain])
    matrix = features([tiled, plain, packed])
    assert matrix.shape == (3, 2 + 3 + 1 + 1)  # two sketches, three factors, vector, parallel
    nan = np.nan
    expected = [[1, 2, 1, 1, 2, 1, 0], [0, nan, nan, nan, nan, 0, 1], [0, 3, 0, 0, 1, 1, 0]]
    np.testing.assert_array_equal(matrix, expected)


def makes_a_program(space: Space, config: Config) -> bool:
    try:
        return bool(space.schedule(config))
    except InvalidConfig:
        return False


def test_program_features_are_finite_and_nan_without_a_program(native: Target) -> None:
    space = KnobTemplate(parse_workload("gemm:32x32x32"), native)
    configs = [space.config_at(i) for i in (0, 5, 77)]
    matrix = ProgramFeatures(space)(configs)
    assert matrix.shape == (3, 328) and np.isfinite(matrix).all()
    assert len(np.unique(matrix, axis=0)) == 3
    assert (ProgramFeatures(space)(configs[::-1]) == matrix[::-1]).all()
    toy = toys.Small(toys.WORKLOAD, native)
    every = list(toy.enumerate())
    rows = ProgramFeatures(toy)(every)
    invalid = [row for row, config in zip(rows, every, strict=True) if not makes_a_program(toy, config)]
    assert invalid and all(np.isnan(row).all() for row in invalid)
    assert np.isfinite(rows).all(axis=1).sum() == len(every) - len(invalid)


def test_program_features_do_not_pay_for_tensor_intrinsics() -> None:
    code = (
        "import sys\nfrom searchlab.costmodel.features import ProgramFeatures\n"
        "from searchlab.target import resolve_target\n"
        "from searchlab.workload import parse_workload\nfrom searchlab_spaces.templates import KnobTemplate\n"
        "space = KnobTemplate(parse_workload('gemm:16x16x16'), resolve_target('native'))\n"
        "ProgramFeatures(space)([space.config_at(0)])\n"
        "print('tvm.s_tir.tensor_intrin' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


def test_unknown_features_are_refused() -> None:
    with pytest.raises(SearchlabError, match="unknown feature set 'knobs'; did you mean 'knob'"):
        make_features("knobs", toys.Small())


def test_an_order_of_loops_is_a_word_and_no_tile() -> None:
    features = KnobFeatures(Ordered())
    configs = [
        Config({"tile": (1, 2, 4), "order": (0, 1, 2)}),
        Config({"tile": (8, 1, 1), "order": (2, 1, 0)}),
        Config({"tile": (8, 1, 1), "order": (1, 0, 2)}),  # of which the model has learned nothing
    ]
    features.learn(configs[:2])
    assert features.columns[3:] == [("order", "0,1,2"), ("order", "2,1,0")]
    assert features(configs).tolist() == [[0, 1, 2, 1, 0], [3, 0, 0, 0, 1], [3, 0, 0, 0, 0]]


def test_store_features_are_those_of_each_store_in_order(native: Target) -> None:
    space = KnobTemplate(parse_workload("gemm:32x32x32"), native)
    configs = space.sample_new(np.random.default_rng(0), 16, ())
    matrix, pooled = PerStoreFeatures(space)(configs), ProgramFeatures(space)(configs)
    stores = matrix.reshape(16, -1, COLUMNS_PER_STORE)
    np.testing.assert_array_equal(np.nanmax(stores, axis=1), pooled[:, :COLUMNS_PER_STORE])
    np.testing.assert_array_equal(np.nanmean(stores, axis=1), pooled[:, COLUMNS_PER_STORE:])
    present = ~np.isnan(stores).any(axis=2)
    assert (
        (present == ~np.isnan(stores).all(axis=2)).all() and present[:, 0].all() and len(set(present.sum(axis=1))) > 1
    )
    toy = toys.Small(toys.WORKLOAD, native)
    every = list(toy.enumerate())
    rows = PerStoreFeatures(toy)(every)
    for row, config in zip(rows, every, strict=True):
        assert np.isnan(row).all() != makes_a_program(toy, config)
