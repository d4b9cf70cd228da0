"""The Winograd lowering of the guided conv2d: right answers where it is offered, and how exact they are."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from searchlab.errors import SearchlabError
from searchlab.measure.local import LocalMeasurer
from searchlab.space import Config
from searchlab.target import Target, resolve_target
from searchlab.workload import parse_workload
from searchlab_spaces.guided.conv2d import GuidedConv2d
from searchlab_spaces.guided.conv2d_winograd import ERROR_FACTOR, make_transforms
from tests.support.spaces.programs import assert_right
from tests.support.spaces.targets import UNOPTIMIZED


def native(cores: int = 1) -> Target:
    return resolve_target({**UNOPTIMIZED, "num-cores": cores})


def space_of(spelling: str, cores: int = 1) -> GuidedConv2d:
    return GuidedConv2d(parse_workload(spelling), native(cores), winograd=True)


def program(space: GuidedConv2d) -> Config:
    configs = [config for config in space.enumerate() if config["lowering"] == "winograd"]
    return configs[np.random.default_rng(0).permutation(len(configs))[0]]


@settings(max_examples=20)
@given(
    arrays.arrays(np.int64, (6, 6), elements=st.integers(-99, 99)),
    arrays.arrays(np.int64, (3, 3), elements=st.integers(-99, 99)),
)
def test_the_transforms_give_a_convolution(image: np.ndarray, kernel: np.ndarray) -> None:
    of_image, of_kernel, of_result = make_transforms()
    computed = of_result @ ((of_kernel @ kernel @ of_kernel.T) * (of_image @ image @ of_image.T)) @ of_result.T
    right = sum(kernel[i, j] * image[i : i + 4, j : j + 4] for i in range(3) for j in range(3))
    assert np.abs(computed - right).max() < 1e-9


@pytest.mark.parametrize(
    ("spelling", "cores"),
    [
        ("conv2d:1x8x8x32x16x3x3:p1", 1),  # whole tiles, panels and chunks
        ("conv2d:1x3x3x1x1x3x3", 1),  # one result
        ("conv2d:2x9x10x24x12x3x3:p1:float64:bias", 1),
        ("conv2d:1x13x7x37x33x3x3:p0x2:bias:relu", 1),  # edges in every index
        ("conv2d:3x14x14x40x20x3x3:p1:bias", 2),  # panels across images
        ("conv2d:1x28x30x17x48x3x3:p2:relu", 2),
    ],
)
def test_result_is_right(spelling: str, cores: int, measurer: LocalMeasurer) -> None:
    space = space_of(spelling, cores)
    config = program(space)
    assert ("T.parallel" in space.schedule(config).mod.script()) == (cores > 1)
    (result,) = measurer.measure(space, [config])
    assert result.failure is None, result.message


def test_vectors_of_two_are_wide_enough() -> None:
    target = resolve_target({"kind": "llvm", "mcpu": "x86-64", "num-cores": 1})
    space = GuidedConv2d(parse_workload("conv2d:1x6x7x10x9x3x3:p1:float64"), target, winograd=True)
    config = program(space)
    assert config["pixels"] in (2, 4, 6, 8)
    assert_right(space.workload, space.schedule(config), target)


def test_winograd_is_offered_where_requested_and_possible() -> None:
    def lowerings(spelling: str, **options: bool) -> set[object]:
        space = GuidedConv2d(parse_workload(spelling), native(), **options)
        offered = {config["lowering"] for config in space.enumerate()}
        assert space.error_factor == (ERROR_FACTOR if "winograd" in offered else 1)
        return offered

    assert lowerings("conv2d:1x8x8x16x8x3x3:p1") == {"direct", "im2row"}
    assert lowerings("conv2d:1x8x8x16x8x3x3:p1", winograd=True) == {"direct", "im2row", "winograd"}
    for suffix in ("3x3:p1:s2", "3x3:p2:d2", "3x3:p1:int8", "3x3:p1:float16", "5x5:p2", "1x1"):
        assert "winograd" not in lowerings(f"conv2d:1x8x8x16x8x{suffix}", winograd=True)
    with pytest.raises(SearchlabError, match="option 'winograd' is 'yes'; it must be true or false"):
        GuidedConv2d(parse_workload("conv2d:1x8x8x16x8x3x3"), native(), winograd="yes")  # type: ignore[arg-type]


class Exact(GuidedConv2d):
    """Takes no Winograd program for right."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self.error_factor = 1e-3


def test_results_are_held_to_the_error_that_the_space_says(measurer: LocalMeasurer) -> None:
    config = program(space_of("conv2d:1x8x8x32x24x3x3:p1"))
    exact = Exact(parse_workload("conv2d:1x8x8x32x24x3x3:p1"), native(), winograd=True)
    (result,) = measurer.measure(exact, [config])
    assert result.failure == "wrong_answer" and "elements are off" in result.message


def test_winograd_multiplies_in_vectors_without_gathers() -> None:
    target = resolve_target({"kind": "llvm", "mcpu": "znver4", "mtriple": "x86_64-unknown-linux-gnu"})
    space = GuidedConv2d(parse_workload("conv2d:1x14x14x32x16x3x3:p1"), target, winograd=True)
    schedule = space.schedule(Config({"lowering": "winograd", "pixels": 16, "channels": 16}))
    assembly = tvm.compile(schedule.mod, target=target.tvm).mod.inspect_source("asm")
    assert "gather" not in assembly
    assert len(re.findall(r"vfmadd231ps\s.*1to16.*%zmm", assembly)) >= 16 * 4
