"""The figures of the talk: each is measured and drawn from its smallest arguments, and the page follows the records."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from searchlab.run.study import Study
from tests.support.benchmarks import BENCHMARKS, script

pytestmark = pytest.mark.usefixtures("unoptimized")

GEMM = "gemm:16x16x16"


@pytest.fixture(scope="module")
def figures() -> Iterator[ModuleType]:
    return script("alaejos_figures", BENCHMARKS.parent / "papers")


def rows(figures: ModuleType, out: Path, name: str, *options: str, workload: str = GEMM) -> list[dict[str, Any]]:
    """Measure a figure with one trial unless ``options`` say otherwise, and return its rows."""
    figures.main([name, "--workloads", workload, "--trials", "1", "--out", str(out), *options])
    chart = out / f"{name}.png"
    assert chart.exists() == (figures.FIGURES[name].draw is not None)
    assert not chart.exists() or chart.read_bytes().startswith(b"\x89PNG")
    record = json.loads((out / f"{name}.json").read_text())
    assert record["command"].startswith(f"python studies/papers/alaejos_figures.py {name} --workloads {workload}")
    assert {"date", "machine", "busy"} <= record.keys()
    return list(record["rows"])


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("packing", ["neither", "A", "B", "A and B"]),
        ("algorithms", ["B3A2C0", "A3B2C0", "C3A2B0", "A3C2B0", "C3B2A0", "B3C2A0", "B3A2C0, jc pc ic"]),
        ("loop-orders", ["ijk", "ikj", "jik", "jki", "kij", "kji"]),
        ("parallel", ["none", "auto", "jc", "ic", "jr", "ir"]),
    ],
)
def test_a_figure_compares_options(figures: ModuleType, tmp_path: Path, name: str, labels: list[str]) -> None:
    measured = rows(figures, tmp_path, name, "--threads", "1")
    assert [row["label"] for row in measured] == labels
    assert all(row["gflops"] > 0 and row["workload"] == GEMM for row in measured)


def test_micro_kernels_have_a_row_for_each_dimension(figures: ModuleType, tmp_path: Path) -> None:
    measured = rows(figures, tmp_path, "micro-kernels", "--trials", "3")
    assert len({(row["mr"], row["nr"]) for row in measured}) == 3


def test_data_types_include_integers(figures: ModuleType, tmp_path: Path) -> None:
    measured = rows(figures, tmp_path, "data-types")
    types = {row["label"].partition(",")[0] for row in measured}
    assert types == {"float64", "float32", "float16", "bfloat16", "int16", "int8", "uint8"}
    assert {row["workload"] for row in measured} == {GEMM}


def test_convolutions_state_the_share_of_copying(figures: ModuleType, tmp_path: Path) -> None:
    measured = rows(figures, tmp_path, "convolutions", "--trials", "8", workload="conv2d:1x4x4x8x4x3x3:p1")
    assert {row["label"] for row in measured} == {"direct", "im2row", "winograd"}
    assert all(0 <= row["copying"] < 1 for row in measured)


def test_memory_lists_programs_and_libraries(figures: ModuleType, tmp_path: Path) -> None:
    plain, packed, *libraries = rows(figures, tmp_path, "memory")
    assert plain["packed"] == 0
    assert packed["packed"] >= 16 * 16 * 4  # all of B, in micro-panels
    assert plain["workspace"] > packed["workspace"]
    assert max(plain["program"], packed["program"]) < min(row["program"] for row in libraries)


def test_the_headline_shows_searches_and_libraries(figures: ModuleType, tmp_path: Path) -> None:
    openblas, *_ = rows(figures, tmp_path, "libraries", "--threads", "1")
    assert openblas["label"] == "openblas"
    study = {"workloads": [GEMM], "spaces": ["guided-gemm"], "policies": ["random", "grid"], "trials": 2}
    Study.from_dict(study).run(tmp_path / "study")
    measured = rows(figures, tmp_path, "headline", "--study", str(tmp_path / "study"))
    assert {"grid", "random", "openblas"} <= {row["strategy"] for row in measured}


def test_a_panel_of_the_headline_has_only_its_workload(figures: ModuleType) -> None:
    points = [
        {"workload": workload, "strategy": strategy, "seed": 0, "trials": trials, "seconds": 1.0, "best_gflops": 1.0}
        for workload in ("gemm:4x4x4", "gemm:8x8x8")
        for strategy, trials in (("random", 1), ("OpenBLAS", None))
    ]
    spec = figures.curves(figures.to_frame(points)).to_dict()
    data = list(spec["datasets"].values())
    assert len(data) == 4 and all(len({row["workload"] for row in rows}) == 1 for rows in data)
    assert "transform" not in json.dumps(spec)


def test_a_headline_without_runs_says_what_to_run(figures: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"run python studies/papers/verdicts\.py studies/papers/alaejos\.toml first"):
        rows(figures, tmp_path, "headline", "--study", str(tmp_path / "nowhere"))


def test_an_unknown_figure_is_refused(figures: ModuleType) -> None:
    with pytest.raises(SystemExit, match="there is no figure 'packings'; the figures are libraries, headline"):
        figures.main(["packings"])


def test_the_page_follows_the_records(figures: ModuleType) -> None:
    """If this fails, run ``python studies/papers/alaejos_figures.py --page``."""
    assert figures.PAGE.read_text("utf-8") == "\n".join(figures.page()).rstrip() + "\n"
    assert figures.DIAGRAM.read_text("utf-8") == figures.diagram()


def test_the_diagram_places_the_operands(figures: ModuleType) -> None:
    goto, permuted = (figures.operand_levels(figures.ALGORITHMS[name]) for name in ("B3A2C0", "A3C2B0"))
    assert goto == {
        "registers": "C: mr x nr",
        "L1": "micro-panel of B: kc x nr",
        "L2": "A: mc x kc",
        "L3": "B: kc x nc",
    }
    assert permuted == {
        "registers": "B: kr x nr",
        "L1": "micro-panel of A: mc x kr",
        "L2": "C: mc x nc",
        "L3": "A: mc x kc",
    }


def test_the_page_states_the_command_of_each_figure(
    figures: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "RECORDS", tmp_path)
    missing = "\n".join(figures.page())
    assert missing.count("Not measured yet. On two idle cores, ") == len(figures.FIGURES)
    rows(figures, tmp_path, "packing")
    recorded = "\n".join(figures.page())
    assert f"`python studies/papers/alaejos_figures.py packing --workloads {GEMM} --trials 1`, on " in recorded
    assert "| geometric mean |" in recorded and "reference/alaejos/packing.png" in recorded
