"""Programs that return a right result once, or on some inputs, but are not right."""

from __future__ import annotations

import time

import numpy as np
import pytest
import tvm
from tvm.script import tirx as T

from searchlab.errors import SearchlabError
from searchlab.measure.cases import make_cases, make_wrong_values
from searchlab.measure.code import compile_program, load_objects, to_objects
from searchlab.measure.local import LocalMeasurer, LocalSettings
from searchlab.measure.runner import Runner
from searchlab.records import Measurement
from searchlab.space import Config
from searchlab.target import Target
from searchlab.workload import Workload, from_primfunc, parse_workload
from tests.support.measure.cheating import CHEATS, Cheating


def measure(native: Target, workload: Workload, *cheats: str, **settings: float) -> list[Measurement]:
    limits = LocalSettings(repeat=2, min_repeat_ms=0, **settings)  # type: ignore[arg-type]
    with LocalMeasurer(limits, native, {}, 2) as measurer:
        return list(measurer.measure(Cheating(workload, native), [Config({"cheat": cheat}) for cheat in cheats]))


def test_a_program_must_compute_at_each_execution(native: Target) -> None:
    cheats = [cheat for cheat in CHEATS if cheat != "saturates"]
    results = measure(native, parse_workload("gemm:96x96x96"), *cheats, "none")
    assert [result.failure for result in results] == ["wrong_answer"] * len(cheats) + [None], results
    for cheat, result in zip(cheats, results, strict=False):  # these are right on the first inputs
        assert ("not compute in every execution" in result.message) == cheat.startswith("computes unless"), result


@pytest.mark.parametrize("name", ["gemm:8x8x65536:float16", "gemm:4x4x8192:bfloat16"])
def test_few_missing_terms_of_long_sums_are_found(native: Target, name: str) -> None:
    wrong, right = measure(native, parse_workload(name), "omits the last terms", "none")
    assert (wrong.failure, right.failure) == ("wrong_answer", None), (wrong, right)


@pytest.mark.parametrize("name", ["gemm:16x16x16:int8"])
def test_a_sum_that_saturates_in_16_bits_is_found(native: Target, name: str) -> None:
    wrong, right = measure(native, parse_workload(name), "saturates", "none")
    assert (wrong.failure, right.failure) == ("wrong_answer", None), (wrong, right)


@pytest.mark.parametrize("name", ["gemm:1x1x64:relu", "gemm:32x32x32:float16:bias:add:relu", "conv2d:1x8x8x8x8x3x3:p1"])
def test_exact_inputs_have_whole_results(name: str) -> None:
    first, second = make_cases(parse_workload(name), check=True)
    assert first is not None and (first.rtol, first.atol) == (0.0, 0.5)
    assert (second.rtol, second.atol) != (first.rtol, first.atol)
    (result,) = first.expected_results
    assert (result == np.rint(result)).all() and result.any()


@pytest.mark.parametrize("dtype", ["float16", "float32", "int8", "uint8", "int32", "bool"])
def test_wrong_values_are_all_wrong(dtype: str) -> None:
    rng = np.random.default_rng(0)
    for values in (np.zeros(5), np.ones(7), rng.integers(0, 2, (3, 4)), 100 * rng.standard_normal(50)):
        array = values.astype(dtype)
        wrong_values = make_wrong_values(array)
        assert (wrong_values != array).all() and wrong_values.dtype == array.dtype
    odd = np.array([np.nan, np.inf, -np.inf, 0.0])
    assert not np.isnan(make_wrong_values(odd)[0]) and (make_wrong_values(odd)[1:] != odd[1:]).all()


@T.prim_func(s_tir=True)
def half(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):  # type: ignore[no-untyped-def,valid-type]
    for i in range(4):
        with T.sblock("b"):
            v = T.axis.spatial(4, i)
            B[v] = A[v] + T.float32(1)


@T.prim_func(s_tir=True)
def accumulates(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):  # type: ignore[no-untyped-def,valid-type]
    for i in range(8):
        with T.sblock("b"):
            v = T.axis.spatial(8, i)
            B[v] = B[v] + A[v]


@T.prim_func(s_tir=True)
def writes_to_its_input(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):  # type: ignore[no-untyped-def,valid-type]
    for i in range(8):
        with T.sblock("b"):
            v = T.axis.spatial(8, i)
            T.reads(A[v])
            T.writes(B[v])
            B[v] = A[v]
            T.evaluate(T.call_extern("int32", "memset", A.data, 0, T.uint64(32)))


@pytest.mark.parametrize("function", [half, accumulates, writes_to_its_input])
def test_a_function_whose_result_is_not_determined_is_refused(function: tvm.tirx.PrimFunc) -> None:
    workload = from_primfunc(function)
    with pytest.raises(SearchlabError, match="the function"):
        workload.reference(workload.inputs())


@T.prim_func(s_tir=True)
def crashes(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):  # type: ignore[no-untyped-def,valid-type]
    for i in range(8):
        with T.sblock("b"):
            v = T.axis.spatial(8, i)
            B[v] = A[v]
            T.evaluate(T.call_extern("int32", "abort"))


def test_a_function_that_crashes_is_named(native: Target) -> None:
    with pytest.raises(SearchlabError, match="reference result of tir:crashes"):
        measure(native, from_primfunc(crashes), "none")


class SharedDevice:
    """This machine's CPU, but each synchronisation takes 3 ms, as on a GPU that other processes use in turn."""

    def __getattr__(self, name: str) -> object:
        return getattr(tvm.cpu(), name)

    def sync(self) -> None:
        time.sleep(0.003)


CHEAT = "computes unless the first element is right"


@pytest.mark.parametrize(("size", "cheat", "failure"), [(8, "none", None), (256, CHEAT, "wrong_answer")])
def test_on_a_shared_device_only_cheats_are_wrong(size: int, cheat: str, failure: str | None, native: Target) -> None:
    workload = parse_workload(f"gemm:{size}x{size}x{size}")
    schedule = Cheating(workload, native).schedule(Config({"cheat": cheat}))
    module = load_objects(to_objects(compile_program(schedule.mod, native)))
    runner = Runner(workload, LocalSettings(repeat=1, min_repeat_ms=0).for_worker(), tvm.cpu())
    runner.timer.device = SharedDevice()
    answer = runner.run(lambda: module, {})
    assert getattr(answer, "failure", None) == failure, answer
