"""Every benchmark starts: those that are fast run with their smallest arguments, and the others show their help."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

from tests.support.benchmarks import BENCHMARKS, SUITE

TABLE = SUITE / "v1" / "tables" / "gemm-96x96x96-guided-1t.parquet"
MODELS = Path(__file__).parents[1] / "model" / "models.py"
RUN = {
    "alarms": "--pages 1 --strategies 2",
    "cpu": f"{TABLE} --seeds 1 --trials 8 --policies random",
    "executors": "--runs 2 --trials 8 --only processes",
    "overhead": "--policies random --trials 8",
    "reports": "--logs 1 --trials 8",
    "scale": "log --records 64",
    "speed": "--rows replay table help --runs 1 --trials 8 --table gemm:4x4x4 --rounds 1",
    "throughput": "--sides floor equal --candidates 2 --workload gemm:16x16x16",
}
SHOW_HELP = (
    *("border", "conv2d", "coverage", "cuda", "cuda_pack", "cuda_unpack", "end_to_end", "features", "fleet_soak"),
    *("fuzz", "hostile", "kernels", "replay", "robustness", "soak"),
)
WORKERS = {"cuda_timing"}  # started by other benchmarks


def start(name: str, monkeypatch: pytest.MonkeyPatch, *words: str, folder: Path = BENCHMARKS) -> None:
    """Run a benchmark with ``words`` as its command line."""
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(sys, "argv", [name, *words])
    try:
        runpy.run_path(str(folder / f"{name}.py"), run_name="__main__")
    except SystemExit as ended:
        assert not ended.code


@pytest.mark.parametrize(("name", "words"), RUN.items(), ids=RUN)
def test_the_benchmark_runs(
    name: str, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TVM_NUM_THREADS", "1")  # which benchmarks set
    start(name, monkeypatch, *words.split())
    assert capsys.readouterr().out


def test_caches_are_compared(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TVM_NUM_THREADS", "1")
    words = "--layers 1 --programs 3 --others 1 --rounds 1"
    start("caches", monkeypatch, "--models", f"{MODELS}:mlp", *words.split(), folder=BENCHMARKS.parent)
    assert "mlp " in capsys.readouterr().out


@pytest.mark.parametrize("name", SHOW_HELP)
def test_the_benchmark_shows_its_help(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    start(name, monkeypatch, "--help")
    assert "usage:" in capsys.readouterr().out


def test_no_benchmark_is_left_out() -> None:
    scripts = {path.stem for path in BENCHMARKS.glob("*.py") if "__main__" in path.read_text()}
    assert scripts == {*RUN, *SHOW_HELP} | WORKERS
