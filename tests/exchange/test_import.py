"""Records of AutoTVM, Ansor and MetaSchedule as logs, from real files."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm.s_tir import Schedule

from searchlab.analysis import report
from searchlab.errors import InvalidConfig, SearchlabError, SearchlabWarning
from searchlab.exchange.foreign import REPEATED_CONFIGS_NOTE
from searchlab.exchange.imports import ImportOptions, detect_format, import_file
from searchlab.exchange.kernel_tuner import count_plausible
from searchlab.exchange.legacy import recognise_workload
from searchlab.log.format import Log
from searchlab.log.read import read_log
from searchlab.log.result import load_log
from searchlab.measure.table import TableMeasurer, TableSettings
from searchlab.plugins import Plugin
from searchlab.run.tune import tune
from searchlab.space import SPACES, Value
from searchlab.target import resolve_target
from searchlab.workload import Workload, parse_workload
from tests.support.cli import HEAVY
from tests.support.cli import imported_packages as imports_of
from tests.support.exchange import DATA
from tests.support.spaces.cuda_on_cpu import result_on_cpu

TOPHUB = Path(__file__).parents[1] / "border" / "data" / "tophub" / "llvm.log"
AUTOTVM, ANSOR, DATABASE = DATA / "autotvm_matmul512.log", DATA / "ansor_gemm512.json", DATA / "metaschedule_gemm512"
PAIRS = json.loads((DATA.parent.parent / "spaces/templates/data/autotvm_conv2d_pairs.json").read_text())["pairs"]
CONV2D = "conv2d:1x7x7x512x512x3x3:p1"
TEMPLATE = Plugin("knob-template", {"template": "conv2d_no_batching"})
HOPPER = {"kind": "cuda", "arch": "sm_90"}


def import_one(path: Path, out: Path, repeats: int = 0, **options: Any) -> Log:
    logs, notes = import_file(path, out, ImportOptions(**options))
    assert len(logs) == 1 and notes == ([f"{repeats} {REPEATED_CONFIGS_NOTE}"] if repeats else [])
    return read_log(out)


def record(pair: dict[str, Any], result: list[Any], version: float = 0.2) -> str:
    """A line of AutoTVM's tutorial on conv2d: a real entity, with a made-up result."""
    task = [
        "cuda -keys=cuda,gpu -arch=sm_90",
        "tutorial/conv2d_no_batching",
        [1, 7, 7, 512, 512, 3, 3, [1, 1], [1, 1]],
        {},
    ]
    if version == 0.1:
        old = {"i": pair["index"], "t": "direct", "c": None, "e": pair["entity"]}
        return json.dumps({"i": [*task, [], old], "r": result, "v": 0.1})
    config = {**pair, "code_hash": None}
    return json.dumps({"input": task, "config": config, "result": result, "version": 0.2, "tvm_version": "0.17.0"})


@pytest.fixture
def tutorial(tmp_path: Path) -> Path:
    path = tmp_path / "conv2d.log"
    lines = [
        record(pair, [[1e-3 * (i + 1), 2e-3 * (i + 1)], 0, 1.5, 1.6e9 + i], 0.1 if i % 2 else 0.2)
        for i, pair in enumerate(PAIRS)
    ]
    path.write_text("\n".join([*lines, record(PAIRS[0], [[1e9], 7, 10.0, 1.7e9])]) + "\n")
    return path


LAYER: list[list[Any]] = [
    ["CI", 5],
    *(["SP", 3, *rest, 1] for rest in ((0, 1, [1, 1, 1]), (4, 16, [1, 4, 2]), (8, 8, [1, 1, 4]), (12, 8, [1, 1, 8]))),
    *(["SP", 3, *rest, 1] for rest in ((16, 8, [2]), (18, 3, [1]), (20, 3, [3]))),
    ["RE", 3, [0, 4, 8, 12, 1, 5, 9, 13, 16, 18, 20, 2, 6, 10, 14, 17, 19, 21, 3, 7, 11, 15]],
    *(["FSP", 6, 2 * axis, 1 + axis, 1] for axis in range(4)),
    ["RE", 6, [0, 2, 4, 6, 1, 3, 5, 7]],
    ["CA", 3, 6, 3],
    ["CA", 1, 3, 8],
    ["FU", 6, [0, 1, 2, 3]],
    ["AN", 6, 0, 3],
    ["PR", 3, 0, "auto_unroll_max_step$16"],
    ["AN", 3, 21, 2],
]
"""Steps of Ansor's sketch with a fused consumer for the layer of its tutorial, a convolution with bias and ReLU."""


FACTORED: list[list[Any]] = [
    *(["CI", 5], ["FU", 3, [4, 5, 6]], ["SP", 3, 4, 72, [8], 1], ["RF", 3, 5, 4], ["RE", 3, [0, 1, 2, 3, 5, 4]]),
    *(["CA", 1, 3, 2], ["CR", 1], ["SA", 1, 2, 16, 4]),
    *(["CA", 3, 4, 1], ["CA", 4, 7, 1], ["FU", 7, [0, 1]]),
    *(["AN", 3, 5, 2], ["AN", 7, 0, 3]),
]
"""Steps for the same layer with a reduction that is factored as by Ansor, and an input that is padded beforehand."""


GPU_INNER = (*range(3, 20, 5), 22, 25, 28, *range(4, 20, 5))
GPU_LAYER: list[list[Any]] = [
    ["CI", 5],
    *(["SP", 3, *rest, 1] for rest in ((0, 1, [1, 1, 1, 1]), (5, 16, [1, 4, 2, 1]), (10, 8, [1, 2, 1, 1]))),
    *(["SP", 3, *rest, 1] for rest in ((15, 8, [2, 4, 1, 1]), (20, 8, [2, 1]), (23, 3, [1, 3]), (26, 3, [3, 1]))),
    ["RE", 3, [*range(0, 20, 5), *range(1, 20, 5), *range(2, 20, 5), 20, 23, 26, 21, 24, 27, *GPU_INNER]],
    *(["FSP", 6, 4 * axis, 1 + axis, 3] for axis in range(4)),
    ["RE", 6, [0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15]],
    ["CA", 3, 6, 11],
    *(["CHR", 2, "shared", [3]], ["CA", 3, 4, 14], ["CHR", 1, "shared", [4]], ["CA", 2, 5, 14], ["CI", 1]),
    *(["FU", 8, [0, 1, 2, 3]], ["AN", 8, 0, 5], ["FU", 8, [1, 2, 3, 4]], ["AN", 8, 1, 4]),
    *(["FU", 8, [2, 3, 4, 5]], ["AN", 8, 2, 6]),
    *(["FU", 4, [0, 1, 2, 3]], ["SP", 4, 0, 96, [1], 1], ["AN", 4, 1, 2]),
    *(["FFSP", 4, 0, [4, 3, 2, 1], 1, 1], ["AN", 4, 1, 6]),
    *(["FU", 2, [0, 1, 2, 3]], ["SP", 2, 0, 80, [1], 1], ["AN", 2, 1, 2]),
    *(["FFSP", 2, 0, [4, 3, 2, 1], 1, 1], ["AN", 2, 1, 6]),
    ["PR", 5, 0, "auto_unroll_max_step$16"],
]
"""Steps of Ansor's sketch for GPUs for the same layer, with the kinds and the order of a real record for NHWC."""


def layer(folder: Path, *steps: list[Any], target: str = "llvm -mcpu=x86-64") -> Path:
    """Write a record of a small layer as in Ansor's tutorial: data, pad, weight, conv, bias, add and relu."""
    key = json.dumps(["conv2d_layer", 1, 8, 8, 16, 8, 3, 3, [1, 1], [1, 1]])
    task = [key, target, [1, 64, 64, 0, 0, 0, 0, 0], "", 1, []]
    path = folder / "layer.json"
    path.write_text(json.dumps({"i": [task, [[], list(steps)]], "r": [[1e-3], 0, 1.0, 1.6e9], "v": "v0.6"}) + "\n")
    return path


def extents(schedule: Schedule, block: str) -> list[int]:
    return [int(schedule.get(loop).extent) for loop in schedule.get_loops(schedule.get_sblock(block))]


def assert_right(schedule: Schedule, workload: Workload) -> None:
    """Assert that a program computes what NumPy computes."""
    inputs = workload.inputs(seed=1)
    result = tvm.runtime.tensor(np.full(list(workload.shapes.values())[-1], np.nan, workload.out_dtype))
    tvm.compile(schedule.mod, "llvm").jit()["main"](*map(tvm.runtime.tensor, inputs.values()), result)
    np.testing.assert_allclose(result.numpy(), workload.reference(inputs), rtol=1e-3, atol=1e-3)


# --- for analysis -------------------------------------------------------------------------------------


def test_autotvm_records_keep_cost_failure_time_order_and_target(tmp_path: Path) -> None:
    log = import_one(AUTOTVM, tmp_path / "a.jsonl")
    entries = [json.loads(line) for line in AUTOTVM.read_text().splitlines()]
    assert log.header.workload == "gemm:512x512x512"
    assert log.header.target == {"kind": "llvm", "keys": ["cpu"], "mcpu": "skylake-avx512", "num-cores": 2}
    assert log.header.space.name == "autotvm" and log.header.fingerprint.startswith("autotvm:")
    assert log.header.versions == {"apache-tvm": "0.17.dev0"}
    assert log.header.created_at == min(entry["result"][3] for entry in entries)
    assert log.costs.tolist() == [
        entry["result"][0][0] if entry["result"][1] == 0 else float("inf") for entry in entries
    ]
    assert [r.recorded_at for r in log.records] == [entry["result"][3] for entry in entries]
    assert [r.run_seconds for r in log.records] == [entry["result"][2] for entry in entries]
    assert [r.failure for r in log.records] == [None] * 4 + ["build_timeout"]
    assert log.records[4].message == "MeasureErrorNo.BUILD_TIMEOUT"
    assert dict(log.trials[0].config) == {
        "tile_y": (-1, 16, 1),
        "tile_x": (-1, 16, 32),
        "tile_k": (-1, 256),
        "unroll": 0,
    }


def test_ansor_records_keep_their_transform_steps_as_words(tmp_path: Path) -> None:
    log = import_one(ANSOR, tmp_path / "a.jsonl")
    entries = [json.loads(line) for line in ANSOR.read_text().splitlines()]
    assert log.header.workload == "gemm:512x512x512" and log.header.space.name == "ansor"
    assert log.costs.tolist() == [entry["r"][0][0] for entry in entries]
    for trial, entry in zip(log.trials, entries, strict=True):
        steps = [[name.rpartition("_")[2], *json.loads(str(value))] for name, value in trial.config.items()]
        assert steps == entry["i"][1][1]


def test_a_metaschedule_workload_is_recognised_by_its_hash(tmp_path: Path) -> None:
    log = import_one(DATABASE, tmp_path / "a.jsonl")
    entries = [json.loads(line) for line in (DATABASE / "database_tuning_record.json").read_text().splitlines()]
    assert log.header.workload == "gemm:512x512x512" and log.header.space.name == "metaschedule"
    assert [list(r.seconds) for r in log.records] == [entry[1][1] for entry in entries]
    assert list(log.trials[0].config.values())[1:] == [(32, 2, 8, 1), (1, 2, 8, 32), (16, 32), 0]


def test_imported_logs_are_compared(tmp_path: Path) -> None:
    for path in (AUTOTVM, ANSOR):
        import_one(path, tmp_path / "logs" / f"{path.stem}.jsonl")
    summary = report(tmp_path / "logs").to_json()
    assert "autotvm" in json.dumps(summary) and "ansor" in json.dumps(summary)


@pytest.mark.parametrize(("path", "format"), [(AUTOTVM, "autotvm"), (ANSOR, "ansor"), (DATABASE, "metaschedule")])
def test_the_format_is_detected(path: Path, format: str) -> None:
    assert detect_format(path) == format


def test_records_are_imported_for_analysis_without_tvm(tmp_path: Path) -> None:
    words = ["-m", "searchlab", "import", AUTOTVM, "--out", tmp_path / "a.jsonl"]
    assert not imports_of(*words) & {*HEAVY, "vl_convert"}
    assert len(read_log(tmp_path / "a.jsonl").records) == 5


# --- in a space of ours -------------------------------------------------------------------------------


def test_autotvm_entities_become_configs_of_the_template(tutorial: Path, tmp_path: Path) -> None:
    log = import_one(tutorial, tmp_path / "a.jsonl", repeats=1, space=TEMPLATE)
    space = SPACES.make(TEMPLATE, parse_workload(CONV2D), resolve_target(HOPPER))
    assert log.header.workload == CONV2D and log.header.fingerprint == space.fingerprint
    indices = [space.index_of(trial.config) for trial in log.trials]  # type: ignore[attr-defined]
    assert indices == [pair["index"] for pair in PAIRS]
    assert log.records[0].failure is None, "the last record repeats the first config, and fails"
    assert load_log(log.path).space.fingerprint == space.fingerprint


def test_an_imported_log_serves_as_a_table(tutorial: Path, tmp_path: Path) -> None:
    log = import_one(tutorial, tmp_path / "a.jsonl", repeats=1, space=TEMPLATE)
    space = SPACES.make(TEMPLATE, parse_workload(CONV2D), resolve_target(HOPPER))
    table = TableMeasurer(TableSettings(str(log.path)))
    configs = [log.trials[2].config, log.trials[0].config]
    assert [m.seconds for m in table.measure(space, configs)] == [(3e-3, 6e-3), (1e-3, 2e-3)]


def test_decisions_of_metaschedule_become_configs_of_sketch(tmp_path: Path) -> None:
    (imported,), _ = import_file(DATABASE, tmp_path / "a.jsonl", ImportOptions(space=Plugin("sketch")))
    log = read_log(imported.path)
    assert len(log.records) == 7 and [line for line, _ in imported.omitted_records] == [
        8
    ]  # its parallel extent was mutated
    space = load_log(log.path).space
    assert all(trial.config in space for trial in log.trials)
    assert dict(log.trials[0].config) == {
        "sketch": 0,
        "tile_i": (32, 2, 8, 1),
        "tile_j": (1, 2, 8, 32),
        "tile_p": (16, 32),
        "unroll_explicit": 0,
    }


def test_a_search_starts_from_an_imported_log(tmp_path: Path) -> None:
    start = imported_sketch(tmp_path)
    measure = {"kind": "table", "path": str(start), "missing": "nearest"}
    with pytest.warns(match="nearest config"):
        result = tune(
            "gemm:512x512x512",
            space="sketch",
            policy="evolutionary",
            log=tmp_path / "run.jsonl",
            trials=4,
            batch=2,
            target=read_log(start).header.target,
            measure=measure,
            warm_start=[start],
        )
    assert len(result.trials) == 4 and len(result.log.header.warm_start) == 1


def imported_sketch(tmp_path: Path) -> Path:
    import_file(DATABASE, tmp_path / "start.jsonl", ImportOptions(space=Plugin("sketch")))
    return tmp_path / "start.jsonl"


def test_the_steps_of_ansor_become_schedules(tmp_path: Path) -> None:
    log = import_one(ANSOR, tmp_path / "a.jsonl", space=Plugin("parameters"), target="native")
    result = load_log(log.path)
    assert len(log.records) == 6 == result.space.size()
    with pytest.warns(SearchlabWarning, match="the program is unverified"):
        schedules = [result.schedule(trial) for trial in log.trials]
    texts = [str(schedule.trace) for schedule in schedules]
    assert ["cache_write" in text and "compute_at" in text for text in texts] == [False, True, True, False, True, True]
    for text in texts:
        assert all(
            step in text for step in ("split", "reorder", "parallel", "pragma_auto_unroll_max_step", "vectorize")
        )
    # Tiles [2, 4, 64] of i, [4, 2, 1] of j and [8] of k, in the order i j i j k i j k i j; the first two are fused.
    assert extents(schedules[0], "gemm_update") == [64, 2, 4, 64, 4, 2, 8, 64, 1]
    # Tiles [4, 64, 1], [64, 4, 2] and [2] in the same order, within the outer loops over i and j of the cached result.
    assert extents(schedules[1], "gemm_update") == [2, 1, 1, 1, 4, 64, 256, 64, 4, 2, 1, 2]
    for schedule in schedules[:2]:
        assert_right(schedule, result.workload)


def test_a_convolution_of_ansor_becomes_a_schedule(tmp_path: Path) -> None:
    log = import_one(layer(tmp_path, *LAYER), tmp_path / "a.jsonl", space=Plugin("parameters"))
    result = load_log(log.path)
    with pytest.warns(SearchlabWarning, match="the program is unverified"):
        schedule = result.schedule(log.trials[0])
    assert_right(schedule, result.workload)


def test_a_factored_reduction_of_ansor_becomes_a_schedule(tmp_path: Path) -> None:
    log = import_one(layer(tmp_path, *FACTORED), tmp_path / "a.jsonl", space=Plugin("parameters"))
    space = load_log(log.path).space
    schedule = space.schedule(log.trials[0].config)
    # The eight partial sums are vectorised within the nine steps of the reduction.
    assert extents(schedule, "conv2d_rf_update") == [16, 1, 1, 1, 1, 8, 8, 9, 8]
    assert extents(schedule, "conv2d_update") == [16, 1, 1, 8, 8, 8]
    assert extents(schedule, "pad") == [1, 8, 10, 10]
    assert "storage_align" in str(schedule.trace)
    assert_right(schedule, space.workload)


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ runs the CUDA programs on the CPU, and is missing")
def test_a_gpu_program_of_ansor_becomes_a_schedule(tmp_path: Path) -> None:
    log = import_one(
        layer(tmp_path, *GPU_LAYER, target="cuda -arch=sm_90"), tmp_path / "a.jsonl", space=Plugin("parameters")
    )
    result = load_log(log.path)
    text = str(result.space.schedule(log.trials[0].config).trace)
    assert all(axis in text for axis in ("blockIdx.x", "vthread.x", "threadIdx.x"))
    expected = result.workload.reference(result.workload.inputs())
    actual = result_on_cpu(result.space, log.trials[0].config, tmp_path)
    np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("step", "why"),
    [
        (["TS", 3, 16, "dot"], "step 20 (TS) is not supported"),
        (["RF", 3, 0, 1], "step 20 (RF) cannot be applied: "),
        (["AN", 3, 0, 11], "step 20 (AN) cannot be applied: annotation 11 is not supported"),
        (["CA", 6, 3, 0], "the steps move stages into each other"),
        (["SP", 9, 0, 512, [2], 1], "step 20 (SP) does not fit the 7 stages"),
        (["SP", 3, 0, 1, [0], 1], "step 20 (SP) cannot be applied: division by zero"),
        (["SP", 0, 0, 1, [1], 1], "step 20 (SP) cannot be applied: list index out of range"),
        (["FU", 3, [0, 9]], "step 20 (FU) cannot be applied: "),
    ],
)
def test_a_step_that_cannot_be_applied_is_named(step: list[Any], why: str, tmp_path: Path) -> None:
    path = layer(tmp_path, *LAYER, step)
    with pytest.raises(SearchlabError, match=re.escape(f"line 1: {why}")):
        import_one(path, tmp_path / "a.jsonl", space=Plugin("parameters"))


@pytest.mark.parametrize(
    ("path", "options", "why"),
    [
        (ANSOR, {"space": Plugin("sketch")}, "transform steps are not a config of this space; pass --space parameters"),
        (AUTOTVM, {"space": Plugin("sketch")}, "belongs to a template"),
        (AUTOTVM, {"space": Plugin("knob-template")}, "none of the 5 records is a config of knob-template.*tile_y"),
        (DATABASE, {"space": Plugin("knob-template")}, "trace of sampled decisions"),
        (AUTOTVM, {"workload": "gemm:512x512x256"}, "is gemm:512x512x512, not gemm:512x512x256"),
    ],
)
def test_records_that_cannot_belong_to_a_space_or_workload(
    path: Path, options: dict[str, Any], why: str, tmp_path: Path
) -> None:
    with pytest.raises(SearchlabError, match=why):
        import_file(path, tmp_path / "a.jsonl", ImportOptions(**options))
    assert not (tmp_path / "a.jsonl").exists()


def test_an_incomplete_target_must_be_given_by_the_user(tmp_path: Path) -> None:
    text = record(PAIRS[0], [[1e-3], 0, 1.0, 1.6e9]).replace(" -arch=sm_90", " -model=v100")
    (tmp_path / "old.log").write_text(text)
    log = import_one(tmp_path / "old.log", tmp_path / "a.jsonl", space=TEMPLATE, target=HOPPER)
    assert log.header.target["arch"] == "sm_90"
    foreign = import_one(tmp_path / "old.log", tmp_path / "b.jsonl")
    assert foreign.header.target == {"kind": "cuda", "keys": ["cuda", "gpu"], "model": "v100"}


# --- which workload -----------------------------------------------------------------------------------

TENSORS = [["TENSOR", [1, 64, 56, 56], "float32"], ["TENSOR", [128, 64, 3, 3], "float32"]]

MATRICES = [["TENSOR", [1, 512], "float32"], ["TENSOR", [1000, 512], "float32"]]


@pytest.mark.parametrize(
    ("name", "args", "spelling"),
    [
        ("tutorial/matmul", [512, 256, 128, "float32"], "gemm:512x128x256"),
        ("gemm", [64, 64, 64], "gemm:64x64x64"),
        ("conv2d_layer", [1, 7, 7, 512, 512, 3, 3, [1, 1], [1, 1]], f"{CONV2D}:bias:relu"),
        ("conv2d_nchw.cuda", [*TENSORS, [2, 2], [1, 1, 1, 1], [1, 1], "float32"], "conv2d:1x56x56x128x64x3x3:s2:p1"),
        (
            "conv2d_NCHWc.x86",
            [*TENSORS, [1, 1], [0, 0], [2, 2], "NCHW", "NCHW", "float32"],
            "conv2d:1x56x56x128x64x3x3:d2",
        ),
        (
            "conv2d_nchw.cuda",
            [*TENSORS, [2, 2], [0, 0, 1, 1], [1, 1], "float32"],
            "conv2d:1x56x56x128x64x3x3:s2:p0x0x1x1",
        ),
        ("dense_nopack.x86", [*MATRICES, None, "float32"], "gemm:1x1000x512:nt"),
        ("topi_nn_dense", [*MATRICES, ["TENSOR", [1000], "float32"], "float32"], "gemm:1x1000x512:nt:bias"),
    ],
)
def test_known_tasks_have_a_workload(name: str, args: list[Any], spelling: str) -> None:
    assert str(recognise_workload(name, args)[0]) == spelling


@pytest.mark.parametrize(
    ("name", "args", "why"),
    [
        ("searchlab/matmul", [512, 256, 128, "float32"], "which of the sizes"),
        ("conv3d_ncdhw.cuda", [], "does not recognise the task"),
        (
            "dense_nopack.x86",
            [["TENSOR", [1, 512], "float32"], ["TENSOR", [9, 500], "float32"], None, "float32"],
            "shapes",
        ),
        ("conv2d_nchw.cuda", [TENSORS[0], ["TENSOR", [128, 32, 3, 3], "float32"], 1, 1, 1, "float32"], "groups"),
        ("conv2d_nchw.cuda", [*TENSORS, [1, 1], [0, 1, 1], [1, 1], "float32"], "expected .height, width."),
        ("tutorial/matmul", [512, 256], "expected 3 sizes"),
        ("gemm", [0, 0, 0], "at least 1"),
        ("conv2d_no_batching", [{}] * 9, "expected 7 sizes"),
    ],
)
def test_unknown_tasks_need_a_workload(name: str, args: list[Any], why: str) -> None:
    workload, text = recognise_workload(name, args)
    assert workload is None and "--workload" in text and re.search(why, text)


def test_an_unknown_task_is_imported_as_the_workload_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(ANSOR.read_text().replace("512, 512, 512", "512, 512, 256"))
    with pytest.raises(SearchlabError, match="--workload"):
        import_one(tmp_path / "a.json", tmp_path / "a.jsonl")
    log = import_one(tmp_path / "a.json", tmp_path / "a.jsonl", workload="gemm:512x512x256")
    assert log.header.workload == "gemm:512x512x256"


def test_configs_are_imported_into_the_template_of_the_log(tutorial: Path, tmp_path: Path) -> None:
    log = import_one(tutorial, tmp_path / "a.jsonl", 1, space=Plugin("knob-template"))
    assert log.header.space == Plugin("knob-template", {"template": "tutorial/conv2d_no_batching"})
    explicit = import_one(tutorial, tmp_path / "b.jsonl", 1, space=TEMPLATE)
    assert explicit.header.space == TEMPLATE


def test_several_tasks_go_to_a_directory(tmp_path: Path) -> None:
    mixed = AUTOTVM.read_text() + AUTOTVM.read_text().replace("512, 512, 512", "64, 64, 64").replace("0.17", "0.16")
    (tmp_path / "mixed.log").write_text(mixed + AUTOTVM.read_text().replace("searchlab/matmul", "mine/secret"))
    with pytest.raises(SearchlabError, match="contains 3 tasks"):
        import_file(tmp_path / "mixed.log", tmp_path / "a.jsonl", ImportOptions())
    logs, notes = import_file(tmp_path / "mixed.log", tmp_path / "logs", ImportOptions())
    assert [imported_log.header.workload for imported_log in logs] == ["gemm:512x512x512", "gemm:64x64x64"]
    assert all(len(read_log(imported_log.path).records) == 5 for imported_log in logs)
    assert len(notes) == 1 and "mine/secret" in notes[0]


def test_a_log_may_be_compressed(tmp_path: Path) -> None:
    log = import_one(ANSOR, tmp_path / "a.jsonl.gz")
    assert log.records == import_one(ANSOR, tmp_path / "a.jsonl").records
    assert {path.name for path in tmp_path.iterdir()} == {"a.jsonl", "a.jsonl.gz"}


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    import_one(ANSOR, tmp_path / "a.jsonl")
    with pytest.raises(SearchlabError, match="already exists"):
        import_one(ANSOR, tmp_path / "a.jsonl", label="another")


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz"])
def test_an_interrupted_import_can_be_repeated(tmp_path: Path, ending: str) -> None:
    import_one(ANSOR, tmp_path / f"a{ending}")
    import_one(ANSOR, tmp_path / f"a{ending}")
    logs, _ = import_file(TOPHUB, tmp_path / "out", ImportOptions())
    before = [log.path.read_bytes() for log in logs]
    logs[1].path.unlink()
    logs, _ = import_file(TOPHUB, tmp_path / "out", ImportOptions())
    assert [log.path.read_bytes() for log in logs] == before


def test_a_trace_of_another_program_is_no_config(tmp_path: Path) -> None:
    """The decisions are the same, but the remaining steps differ from those of the space."""
    from searchlab.exchange import metaschedule

    (task,) = metaschedule.read(DATABASE)
    space = SPACES.make(
        Plugin("sketch"),
        parse_workload("gemm:512x512x512"),
        resolve_target({"kind": "llvm", "mcpu": "znver4", "num-cores": 2}),
    )
    trial = task.trials[0]
    assert metaschedule.find_config(space, task, trial) in space
    trial.config_data[0][:] = [instruction for instruction in trial.config_data[0] if instruction[0] != "Vectorize"]
    with pytest.raises(InvalidConfig, match="differs from the measured program"):
        metaschedule.find_config(space, task, trial)


def test_comments_of_tophub_are_skipped(tmp_path: Path) -> None:
    logs, notes = import_file(TOPHUB, tmp_path / "out", ImportOptions())
    assert len(logs) == 4 and not notes
    assert read_log(logs[0].path).header.workload == "conv2d:1x224x224x64x3x7x7:s2:p3"
    (tmp_path / "comments.log").write_text("# a\n#b\n")
    with pytest.raises(SearchlabError, match="only comments"):
        import_file(tmp_path / "comments.log", tmp_path / "none", ImportOptions())


@pytest.mark.parametrize(
    ("name", "workloads"),
    [
        ("llvm_v0.01", ["conv2d:1x224x224x64x3x7x7:s2:p3", "conv2d:1x56x56x128x64x1x1:s2"]),
        ("arm_cpu", ["conv2d:1x224x224x32x3x3x3:s2:p1", "conv2d:1x112x112x32x32x3x3:p1:g32"]),
        ("cuda_v0.10", ["conv2d:1x8x8x384x384x3x1:p1x0", "conv2d:1x8x8x384x448x3x3:p1"]),
        (
            "adreno_v0.02",
            ["conv2d:1x128x128x32x256x1x1:float16", "conv2d:1x64x64x192x192x3x3:s2:p0x0x1x1:g192:float16"],
        ),
        ("vta_v0.10", ["conv2d:1x208x208x32x16x3x3:p1:int8", "conv2d:1x416x416x16x3x3x3:p1"]),
    ],
)
def test_files_of_tophub_are_imported(name: str, workloads: list[str], tmp_path: Path) -> None:
    logs, notes = import_file(DATA / "tophub" / f"{name}.log", tmp_path / "out", ImportOptions())
    assert [read_log(log.path).header.workload for log in logs] == workloads
    assert notes == []


@pytest.mark.parametrize("line_ending", ["\n", "\r\n"])
def test_an_incomplete_last_record_is_omitted(tmp_path: Path, line_ending: str) -> None:
    incomplete = tmp_path / "torn.log"
    text = AUTOTVM.read_text().replace("\n", line_ending)
    incomplete.write_bytes(b"\xef\xbb\xbf" + text[: -len(text.splitlines()[-1]) // 2].encode())
    with pytest.warns(SearchlabWarning, match="line 5 is incomplete"):
        log = import_one(incomplete, tmp_path / "a.jsonl")
    assert len(log.records) == 4
    incomplete.write_bytes(incomplete.read_bytes() + b"\n")
    with pytest.raises(SearchlabError, match="line 5 is damaged"):
        import_one(incomplete, tmp_path / "b.jsonl")


def test_many_binary_parameters_are_estimated() -> None:
    """There are two million configs, of which none is known to be illegal."""
    rng = np.random.default_rng(0)
    parameters: dict[str, list[Value]] = {f"p{number}": [0, 1] for number in range(21)}
    configs = [dict(zip(parameters, row, strict=True)) for row in rng.integers(2, size=(500, 21)).tolist()]
    assert count_plausible(parameters, configs) == 1 << 21
    legal = [config for config in configs if config["p3"] <= config["p17"]]
    assert count_plausible(parameters, legal) == pytest.approx(3 << 19, rel=0.05)
