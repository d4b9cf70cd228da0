"""The tutorial of the guided GEMM: every section's table is there, for each variant, dtype, packing and algorithm."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from searchlab import load_log
from searchlab_spaces.guided.gemm_algorithms import ALGORITHMS

from .scripts import printed


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tutorial")


@pytest.fixture(scope="module")
def text(folder: Path) -> str:
    return printed("guided_gemm", "--small", "--trials", "1", "--out", str(folder))


def rows(text: str, title: str) -> dict[str, float]:
    """GFLOPS by the first word of each line of the table with this title."""
    table = text[text.index(f"{title}, the best of 1:") :].partition("\n\n")[0]
    return {name: float(speed) for name, speed in re.findall(r"^  (\S+) .* (\S+) GFLOPS$", table, re.MULTILINE)}


def test_every_table_has_its_rows(text: str) -> None:
    assert list(rows(text, "Variants")) == ["basic", "blocked", "packed", "micro-kernel"]
    assert list(rows(text, "Packed operands")) == ["neither", "B", "A", "both"]
    assert set(rows(text, "Algorithms")) == set(ALGORITHMS)
    assert list(rows(text, "Dtypes")) == ["float32", "float64", "float16", "int8"]
    for title in ("Variants", "Packed operands", "Algorithms", "Dtypes"):
        assert min(rows(text, title).values()) > 0


def test_the_default_is_one_run_in_all_tables(text: str) -> None:
    default = rows(text, "Variants")["micro-kernel"]
    assert rows(text, "Packed operands")["both"] == rows(text, "Algorithms")["B3A2C0"] == default


def test_the_program_and_the_model_are_shown(text: str) -> None:
    loops = text[text.index("The loops of the best") :].partition("\n\n")[0]
    assert "T.vectorized(" in loops and 'T.sblock("B_global")' in loops and 'T.sblock("gemm_update")' in loops
    tiles = re.findall(r"^ +(\d+) +(\d+) +(\d+) +(\d+) +(\d+) +(\d+) +(\d+) +(\d+)$", text, re.MULTILINE)
    assert len(tiles) == 4
    for mr, nr, kc, mc, nc, *cut in (map(int, tile) for tile in tiles):
        assert kc >= 1 and mc % mr == 0 and nc % nr == 0
        assert cut[0] <= 96 and cut[1] % mr == 0 and cut[2] % nr == 0


def test_two_layers_beside_blas(text: str, folder: Path) -> None:
    layers = re.findall(r"^  resnet50/gemm(\S+) +(\d+) x (\d+) x (\d+) +(\d+) x (\d+) +([B-])", text, re.MULTILINE)
    assert [layer[:4] for layer in layers] == [("2.1a", "3136", "64", "64"), ("5.2a", "49", "512", "2048")]
    log = load_log(folder / "guided_gemm-small/layers/gemm_49x512x2048/pack_b/random/seed0.jsonl")
    mr, nr, packed = layers[1][4:]
    assert log.best.config.to_json() == {"mr": int(mr), "nr": int(nr), "pack_b": packed == "B"}
    assert len(log.trials) == 1


def test_run_again_it_measures_nothing(text: str, folder: Path) -> None:
    logs = {path: path.read_bytes() for path in folder.rglob("*.jsonl")}
    assert len(logs) == 13 + 4 + 2
    second_text = printed("guided_gemm", "--small", "--trials", "1", "--out", str(folder))
    assert {path: path.read_bytes() for path in folder.rglob("*.jsonl")} == logs
    assert second_text.partition("\nThe GEMMs")[0] == text.partition("\nThe GEMMs")[0]
