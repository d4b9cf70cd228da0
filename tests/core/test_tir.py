"""The workload ``tir``: any PrimFunc, its spelling, its reference, and its representation in logs."""

from __future__ import annotations

import base64
import json
import zlib
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import searchlab
import searchlab.apply.verify
import searchlab.workload.tir_json
from searchlab.errors import SearchlabError
from searchlab.log.format import workload_of
from searchlab.log.read import read_log
from searchlab.workload import Tir, from_primfunc, gemm, parse_workload

FILE = Path(__file__).parents[1] / "support" / "functions.py"


def product(names: str = "ab", size: Any = 8) -> Any:
    from tvm import te

    a, b = (te.placeholder((size, size), name=name) for name in names)
    k = te.reduce_axis((0, size), "k")
    c = te.compute((size, size), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    return te.create_prim_func([a, b, c])


def test_a_name_identifies_the_computation() -> None:
    workload = from_primfunc(product(), "one")
    assert workload == from_primfunc(product("xy").with_attr({"global_symbol": "f", "op_pattern": 4}), "one")
    assert workload.digest != from_primfunc(product(size=9)).digest
    assert str(workload) == f"tir:one@{workload.digest}" and workload.op == "tir"
    assert from_primfunc(product().with_attr("global_symbol", "a function")).name == "a_function"


def test_a_converted_workload_equals_the_original() -> None:
    converted, original = from_primfunc(gemm(8, 6, 20).prim_func(), "gemm"), gemm(8, 6, 20)
    assert (converted.flops, converted.unit, *converted.shapes.values()) == (
        original.flops,
        "GFLOPS",
        *original.shapes.values(),
    )
    inputs = converted.inputs(3)
    assert all(np.array_equal(value, original.inputs(3)[name]) for name, value in inputs.items())
    (result,) = converted.reference(inputs)
    rtol, atol = converted.tolerance()
    np.testing.assert_allclose(result, original.reference(inputs), rtol=rtol, atol=atol)
    assert not np.allclose(result, 0, rtol=rtol, atol=atol)


def test_several_results_and_a_twin_are_checked() -> None:
    workload = parse_workload(f"tir:{FILE}:scaled")
    assert isinstance(workload, Tir) and workload.result_count == 2 and workload.terms == 16
    total, scaled = workload.reference(inputs := workload.inputs())
    np.testing.assert_allclose(total, inputs["x"].sum(axis=1), rtol=1e-5)
    assert scaled.shape == (4, 16)
    with pytest.raises(SearchlabError, match="result 1 of twin differs from the program's"):
        workload.check_twin(lambda x: (x.sum(axis=1), x), "twin")
    with pytest.raises(SearchlabError, match="twin returns results of the shapes"):
        workload.check_twin(lambda x: x.sum(axis=1), "twin")


def test_a_function_is_read_from_json(tmp_path: Path) -> None:
    import tvm

    module = tvm.IRModule({"first": product(), "second": product(size=4)})
    (tmp_path / "module.json").write_text(tvm.ir.save_json(module))
    (tmp_path / "function.json").write_text(tvm.ir.save_json(product(size=4)))
    second = parse_workload(f"tir:{tmp_path / 'module.json'}:second")
    assert second.spelling == f"second@{parse_workload(f'tir:{tmp_path}/function.json').spelling.partition('@')[2]}"
    with pytest.raises(SearchlabError, match="contains the functions first, second; name one of them"):
        parse_workload(f"tir:{tmp_path / 'module.json'}")
    (tmp_path / "function.json").write_text("{}")
    with pytest.raises(SearchlabError, match="TVM's JSON"):
        parse_workload(f"tir:{tmp_path / 'function.json'}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tir:", "must be tir:PATH.py:NAME"),
        ("tir:no.py:f", "there is no Python file no.py"),
        ("tir:no.json", "cannot read no.json"),
        ("tir:f@0123456789abcdef", "is in the logs that refer to it"),
        (f"tir:{FILE}:scald", "did you mean 'scaled'"),
        (f"tir:{FILE}:np", "not from module"),
    ],
)
def test_invalid_spellings_are_refused_with_the_reason(text: str, message: str) -> None:
    with pytest.raises(SearchlabError, match=message):
        parse_workload(text)


def test_a_function_that_is_no_workload_is_refused() -> None:
    from tvm import te, tirx

    with pytest.raises(SearchlabError, match="must have a fixed shape, not .*n"):
        from_primfunc(product(size=tirx.Var("n", "int32")))
    x = te.placeholder((4,), name="x")
    y = te.compute((4,), lambda i: x[i] * 2, name="y")
    with pytest.raises(SearchlabError, match="writes to y; a workload writes only to its last arguments"):
        from_primfunc(te.create_prim_func([y, x]))
    with pytest.raises(SearchlabError, match="already scheduled"):
        from_primfunc(product().with_attr("tirx.is_scheduled", True))


def test_a_log_contains_it_and_a_damaged_one_is_refused(tmp_path: Path) -> None:
    workload = from_primfunc(product(), "matmul")
    log = tmp_path / "a.jsonl"
    searchlab.tune(workload, space="sketch", policy="random", log=log, trials=1, progress=False)
    header = read_log(log).header
    assert header.format_version == "1.2" and workload_of(header) == workload
    assert searchlab.load_log(log).best.schedule().mod["main"]
    with pytest.raises(
        SearchlabError, match="verifying the log executes that function; if you trust this file, add --trust"
    ):
        searchlab.apply.verify.verify_log(log)
    smaller = from_primfunc(product(size=4))
    for content, message in (
        ("", "is damaged"),
        (json.dumps(["?", 0, 1, 1]), "is damaged"),
        (json.dumps([workload.program[:-8], 0, 1, 1]), "is damaged"),
        (json.dumps([workload.program, 0, 0, 1]), "is damaged: Expected"),
        (smaller.content(), f"is damaged: its digest is {smaller.digest}"),
    ):
        with pytest.raises(SearchlabError, match=message):
            Tir.from_log(workload.spelling, content).prim_func()


def hostile(node: dict[str, Any], twice: bool = False) -> str:
    """Return the JSON of a product to which ``node`` is added, or in which it hides behind a second key."""
    import tvm

    graph = json.loads(tvm.ir.save_json(product()))
    graph["nodes"].append(node)
    text = json.dumps(graph)
    if twice:
        type_entry = f'"type": "{node["type"]}"'
        text = text.replace(type_entry, f'{type_entry}, "type": "int"')
    return text


@pytest.mark.parametrize("kind", ["ffi.Module", "ffi.Function", "ffi.OpaquePyObject", "relax.VMExecutable"])
def test_json_of_anything_but_a_program_creates_no_object(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import tvm

    text = hostile({"type": kind, "data": base64.b64encode(b"a library").decode()})
    program = base64.b64encode(zlib.compress(text.encode())).decode()
    workload = Tir.from_log("matmul@0123456789abcdef", json.dumps([program, 0, 1, 1]))
    monkeypatch.setattr(tvm.ir, "load_json", lambda text: pytest.fail("TVM has read it"))
    with pytest.raises(SearchlabError, match=f"is damaged: it contains an object of type '{kind}'"):
        workload.prim_func()


def test_a_type_cannot_be_hidden_behind_a_second_key(monkeypatch: pytest.MonkeyPatch) -> None:
    import tvm

    read: list[str] = []
    monkeypatch.setattr(tvm.ir, "load_json", read.append)
    searchlab.workload.tir_json.load_json(hostile({"type": "ffi.Module", "data": ""}, twice=True))
    assert "ffi.Module" not in read[0]


def test_a_program_may_contain_infinity() -> None:
    import tvm
    from tvm import te

    x = te.placeholder((4,), name="x")
    y = te.compute((4,), lambda i: te.max(x[i], tvm.tirx.const(float("-inf"), "float32")), name="y")
    workload = from_primfunc(te.create_prim_func([x, y]))
    assert Tir.from_log(workload.spelling, workload.content()).prim_func()


def rows(size: int, dtype: str, terms: int | None = None) -> Any:
    """Return a function that sums the first ``terms`` of the ``size`` elements in each of 16 rows in one sweep."""
    from tvm import te

    x = te.placeholder((16, size), name="x", dtype=dtype)
    k = te.reduce_axis((0, size if terms is None else terms), "k")
    return te.create_prim_func([x, te.compute((16,), lambda i: te.sum(x[i, k], axis=k), name="y")])


def test_the_tolerance_is_that_of_a_product() -> None:
    for workload in gemm(64, 64, 512), gemm(64, 64, 2048, relu=True), gemm(32, 32, 256, "float16"):
        converted, original = from_primfunc(workload.prim_func()).tolerance(), workload.tolerance()
        assert converted[0] == original[0] and original[1] / 8 < converted[1] < original[1] * 2


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_the_tolerance_admits_reordering_but_no_omitted_term(dtype: str) -> None:
    workload = from_primfunc(rows(1000, dtype))
    rtol, atol = workload.tolerance()
    is_close = partial(np.allclose, rtol=rtol, atol=atol)
    for seed in range(100, 120):
        x = workload.inputs(seed)["x"]
        (exact,) = workload.reference({"x": x})
        for order in x, x[:, ::-1], np.random.default_rng(seed).permuted(x, axis=1):
            assert is_close(np.cumsum(order, axis=1, dtype=dtype)[:, -1], exact)
        (short,) = from_primfunc(rows(1000, dtype, 999)).reference({"x": x})
        assert not is_close(short, exact) or dtype == "float16"


def test_integers_have_no_tolerance() -> None:
    assert from_primfunc(rows(1000, "int32")).tolerance() == (0, 0)
