"""The benchmarks of the guided spaces against libraries: workloads, peers, turns between processes, the table."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from tvm.target.codegen import target_has_features

from searchlab.errors import SearchlabError
from searchlab.target import resolve_target
from searchlab.workload import parse_workload
from searchlab_spaces.guided.gemm import GuidedGemm
from tests.support.benchmarks import BENCHMARKS, script

peers, timing, turns, versus, kernels, conv2d = map(script, ("peers", "timing", "turns", "versus", "kernels", "conv2d"))


def test_the_workloads_are_the_layers_of_resnet50_at_each_batch() -> None:
    gemms, convolutions = kernels.BENCHMARK.workloads([1, 8]), conv2d.BENCHMARK.workloads([8])
    expected = {"resnet50/gemm5.1b": 1, "resnet50/gemm5.1b:b8": 8, "gemm:1x1000x2048": 1, "gemm:8x1000x2048": 8}
    assert expected.items() <= gemms.items()
    assert gemms["gemm:512x512x512"] == 0
    assert set(convolutions.values()) == {8}
    for names in (gemms, convolutions):
        assert len({str(parse_workload(name)) for name in names}) == len(names)
    assert str(parse_workload("resnet50/gemm5.1b:b8")) == "gemm:392x512x4608"


@pytest.mark.parametrize(
    ("benchmark", "argv", "expected"),
    [
        (kernels, [], ["openblas"]),
        (kernels, ["--peer", "mkl", "onednn"], ["mkl", "onednn"]),
        (conv2d, [], ["onednn", "onednn-blocked"]),
    ],
)
def test_peers_are_named_on_the_command_line(benchmark: ModuleType, argv: list[str], expected: list[str]) -> None:
    assert benchmark.BENCHMARK.parse(argv).peers == expected


def test_layers_may_be_of_int8() -> None:
    names = [*kernels.BENCHMARK.workloads([1, 8], "int8")]
    assert {"resnet50/gemm5.1b:int8", "resnet50/gemm5.1b:b8:int8", "gemm:1x1000x2048:int8"} <= {*names}
    assert {parse_workload(name).dtype for name in names} == {"int8"}


def test_a_layer_that_is_named_has_its_batch(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measured(_: object, name: str, batch: int, threads: int, options: object) -> dict[str, Any]:
        return row(name, threads, batch, openblas=1.0)

    monkeypatch.setattr(versus.Benchmark, "row", measured)
    kernels.BENCHMARK.main(["resnet50/gemm5.1b", "resnet50/gemm5.1b:b8", "gemm:9x9x9", "--threads", "1"])
    printed = capsys.readouterr().out
    assert [f"1 workload{batch} on 1 thread" in printed for batch in ("", " of batch 1", " of batch 8")] == [True] * 3


def test_a_batch_that_a_named_layer_does_not_have_is_refused() -> None:
    with pytest.raises(SystemExit, match=r"resnet50/gemm5.1b is none with batch 8; omit --batch, or append :bN"):
        kernels.BENCHMARK.main(["resnet50/gemm5.1b", "--batch", "8"])


def test_an_unknown_peer_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        kernels.BENCHMARK.parse(["--peer", "eigen"])
    assert "openblas, mkl, blis, onednn" in capsys.readouterr().err.replace("'", "")


def test_a_missing_peer_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "mkl_file", lambda: None)
    with pytest.raises(SystemExit, match=r"'mkl' requires the package 'mkl'.*pip install '\.\[peers\]'"):
        kernels.BENCHMARK.main(["--peer", "mkl"])


@pytest.mark.skipif(peers._blis() is None, reason="needs BLIS")
@pytest.mark.parametrize("workload", ["gemm:37x41x53", "gemm:1x41x53", "gemm:37x1x53:float64", "gemm:64x48x32:float64"])
def test_blis_computes_products_and_says_which_kernels_it_has(workload: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    task = {"workload": workload, "threads": 1, "weights": "plain", "peer": "blis"}
    with turns.SideProcess(kernels.__file__, task) as side:  # which checks the result
        assert set(side.facts) == {"version", "kernels"} and all(side.facts.values())


def test_a_blis_for_one_thread_is_refused_two(monkeypatch: pytest.MonkeyPatch) -> None:
    class Serial:
        bli_info_get_enable_threading = staticmethod(lambda: 0)

    monkeypatch.setattr(peers, "_blis", Serial)
    monkeypatch.setattr(peers, "_blis_version", lambda library: "0.7.0")
    with pytest.raises(SystemExit, match=r"BLIS 0\.7\.0 was built for one thread.*pass --threads 1"):
        kernels.BENCHMARK.main(["--peer", "blis", "--threads", "2"])


@pytest.mark.parametrize(
    ("benchmark", "workload", "message"),
    [
        (kernels, "gemm:64x64x64:relu", "without bias and ReLU"),
        (kernels, "resnet50/conv2.2b", "compares gemm"),
        (kernels, "gemm:64x64", "gemm:64x64"),
        (conv2d, "gemm:64x64x64", "use kernels.py for gemm"),
    ],
)
def test_other_workloads_are_refused(
    monkeypatch: pytest.MonkeyPatch, benchmark: ModuleType, workload: str, message: str
) -> None:
    monkeypatch.setattr(versus, "require", lambda names, threads: None)
    with pytest.raises(SystemExit, match=message):
        benchmark.BENCHMARK.main([workload])


def test_ratios_are_taken_within_each_round() -> None:
    # (median, least) of ours and of one peer, in three rounds; the machine was twice as slow in the second
    measured = np.array([[[1, 0.9], [2, 1.9]], [[2, 1.8], [3, 2.8]], [[1, 0.8], [1.8, 1.6]]])
    result = turns.ratios(["mkl"], measured)
    assert result["ours_seconds"] == 1
    peer = result["peers"]["mkl"]
    assert (peer["seconds"], peer["ratio"], peer["ratio_of_least"]) == pytest.approx((2, 1.8, 1.6 / 0.8))
    assert peer["ratio_quartiles"] == pytest.approx([1.65, 1.9])


def test_the_sides_take_turns_in_processes_of_their_own() -> None:
    task: dict[str, Any] = {"workload": "gemm:64x64x64", "threads": 1, "weights": "packed"}
    target = resolve_target({"kind": "native", "num-cores": 1})
    workload = parse_workload(task["workload"])
    space = GuidedGemm(workload, target, **kernels.space(workload, target, task["weights"])["options"])
    config = space.config_at(0).to_json()
    with (
        turns.SideProcess(kernels.__file__, {**task, "config": config}) as own_side,
        turns.SideProcess(kernels.__file__, {**task, "peer": "openblas"}) as peer,
    ):
        result = turns.compare(own_side, {"openblas": peer}, 1)
    assert set(peer.facts) == {"version", "kernels"}
    assert 0 < result["ours_seconds"] < 1
    assert 0 < result["peers"]["openblas"]["ratio"] < 1000


@pytest.mark.skipif(not target_has_features("avx2", resolve_target("native").tvm), reason="needs a CPU with AVX2")
def test_no_side_takes_newer_instructions_than_asked() -> None:
    task: dict[str, Any] = {"workload": "gemm:64x64x64", "threads": 1, "weights": "plain", "isa": "avx2"}
    target = resolve_target({"kind": "native", "num-cores": 1, "mcpu": "haswell"})
    workload = parse_workload(task["workload"])
    config = (
        GuidedGemm(workload, target, **kernels.space(workload, target, task["weights"])["options"])
        .config_at(0)
        .to_json()
    )
    with turns.SideProcess(kernels.__file__, {**task, "config": config}) as own_side:
        assert own_side.facts["cpu"].endswith("(haswell)")
    with turns.SideProcess(kernels.__file__, {**task, "peer": "openblas"}) as peer:
        assert peer.facts["kernels"] == "Haswell"


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="settings of glibc's malloc")
def test_a_side_keeps_the_memory_that_it_frees() -> None:
    """A new array of 40 MB in each call requests no more pages from the operating system."""
    code = (
        "import numpy, resource\n"
        "def faults():\n"
        "    numpy.ones(10_000_000, numpy.float32)\n"
        "    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "first = faults()\n"
        "print(faults() - first)"
    )
    # In huge pages there would be few faults to count, either way.
    environment = {**timing.environment(1), "NUMPY_MADVISE_HUGEPAGE": "0"}
    assert int(subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)) < 100


def row(workload: str, threads: int, batch: int, **ratios: float) -> dict[str, Any]:
    return {
        "workload": workload,
        "threads": threads,
        "shape": "gemm:9x8x7",
        "batch": batch,
        "gflops": 90.0,
        "config": {"lowering": "direct", "mr": 6, "pack_a": False, "pack_b": True},
        "search_seconds": 30.0,
        "build_seconds": 42.1,
        "peers": {
            name: {
                "gflops": 80.0,
                "ratio": ratio,
                "ratio_quartiles": [ratio, ratio],
                "ratio_of_least": ratio,
                "version": "1.2",
                "kernels": "def",
            }
            for name, ratio in ratios.items()
        },
    }


def test_the_table_has_a_row_each_and_means_by_threads_and_batch() -> None:
    rows = [
        row("resnet50/gemm1", 1, 1, openblas=2.0, mkl=1.0),
        row("resnet50/gemm2", 1, 1, openblas=0.5, mkl=4.0),
        row("resnet50/gemm1", 2, 1, openblas=1.5),
    ]
    text = versus.markdown(rows)
    assert (
        "| gemm1 | 9x8x7 | 1 | direct, mr 6, pack_b | 30 (42) | 90 | 80 | 2.00 (2.00 to 2.00) "
        "| 80 | 1.00 (1.00 to 1.00) |"
    ) in text
    assert "| gemm1 | 9x8x7 | 2 | direct, mr 6, pack_b | 30 (42) | 90 | 80 | 1.50 (1.50 to 1.50) |  |  |" in text
    assert "- MKL 1.2: def" in text
    assert versus.summaries(rows) == [
        "2 workloads of batch 1 on 1 thread, against OpenBLAS: geometric mean 1.00 (1.00), least 0.50 (resnet50/gemm2)",
        "2 workloads of batch 1 on 1 thread, against MKL: geometric mean 2.00 (2.00), least 1.00 (resnet50/gemm1)",
        "2 workloads of batch 1 on 1 thread, against the best of them: geometric mean 0.71 (0.71), "
        "least 0.50 (resnet50/gemm2)",
        "1 workload of batch 1 on 2 threads, against OpenBLAS: geometric mean 1.50 (1.50), least 1.50 (resnet50/gemm1)",
    ]


def test_operations_on_integers_are_no_floating_point_operations() -> None:
    measured = row("gemm:9x8x7", 1, 0, onednn=1.0)
    assert "on 1: 90 GFLOPS (" in versus.format_row(measured)
    assert "on 1: 90 GOPS (" in versus.format_row(measured | {"shape": "gemm:9x8x7:int8"})


def test_the_reference_rows_make_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    for benchmark, name in ((kernels, "kernels"), (conv2d, "conv2d")):
        rows = BENCHMARKS.parent / "reference" / f"{name}.json"
        benchmark.BENCHMARK.main(["--markdown", "--json", str(rows)])
    assert capsys.readouterr().out.count("geometric mean") >= 2
    conv2d.BENCHMARK.main(["--markdown", "--threads", "2", "--batch", "8", "--json", str(rows)])
    layers = [line.split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith("| conv")]
    assert {(name.endswith(":b8"), threads) for name, _, threads, *_ in layers} == {(True, "2")}
    with pytest.raises(SystemExit, match="--json FILE"):
        kernels.BENCHMARK.main(["--markdown"])


def test_rows_replace_those_of_the_same_workload_and_threads(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    versus.merge_rows(file, [row("a", 1, 0, mkl=1.0), row("b", 1, 0, mkl=1.0)])
    rows = versus.merge_rows(file, [row("a", 1, 0, mkl=2.0), row("a", 2, 0, mkl=3.0)])
    assert [(r["workload"], r["threads"], r["peers"]["mkl"]["ratio"]) for r in rows] == [
        ("a", 1, 2.0),
        ("b", 1, 1.0),
        ("a", 2, 3.0),
    ]


@pytest.mark.parametrize(
    ("workload", "names"),
    [
        ("gemm:8x8x8:int8", ["mkl"]),
        ("gemm:8x8x8:bfloat16", ["blis"]),
        ("gemm:8x8x8:float64", ["mkl", "onednn"]),
        ("conv2d:1x8x8x8x8x3x3:int8", ["onednn-blocked", "onednn"]),
    ],
)
def test_a_peer_is_refused_what_it_does_not_compute(workload: str, names: list[str]) -> None:
    kernels.check(parse_workload("gemm:8x8x8:float64"), ["openblas", "mkl"])
    kernels.check(parse_workload("gemm:8x8x8:int8"), ["onednn"])
    conv2d.check(parse_workload("conv2d:1x8x8x8x8x3x3:int8"), ["onednn-blocked"])
    benchmark, other_benchmark = (kernels, conv2d)[:: 1 if workload.startswith("gemm") else -1]
    with pytest.raises(SearchlabError, match=f"in float32.*not {workload}"):
        benchmark.check(parse_workload(workload), names)
    with pytest.raises(SearchlabError, match=f"not {workload}; use .* for"):
        other_benchmark.check(parse_workload(workload), names)


@pytest.mark.parametrize("dtype", ["int8", "bfloat16"])
def test_the_space_takes_sums_of_products_where_the_cpu_has_them(dtype: str) -> None:
    x86 = {"kind": "llvm", "mtriple": "x86_64-unknown-linux-gnu", "num-cores": 1}
    able, unable = (resolve_target({**x86, "mcpu": cpu}) for cpu in ("sapphirerapids", "skylake"))
    for benchmark, spelling in ((kernels, "gemm:8x8x8"), (conv2d, "conv2d:1x8x8x8x8x3x3")):
        workload = parse_workload(f"{spelling}:{dtype}")
        assert benchmark.space(workload, able, "plain")["options"]["dot"]
        assert "dot" not in benchmark.space(workload, unable, "plain")["options"]
    options = conv2d.space(parse_workload("conv2d:1x8x8x8x8x3x3"), able, "packed")["options"]
    assert options == {"winograd": True, "weights": "packed"}
