"""Workloads that are too large are refused with the numbers before anything is allocated."""

from __future__ import annotations

from pathlib import Path

import pytest

import searchlab
from searchlab.errors import SearchlabError
from searchlab.measure import building
from searchlab.measure.building import check_size


@pytest.mark.parametrize(
    "spelling",
    [
        f"gemm:{2**62}x8x8",
        f"gemm:8x{2**50}x8",
        f"conv2d:1x{2**40}x8x8x8x3x3",
        f"softmax:8x{2**62}",
        f"conv2d:1x8x8x8x8x3x3:p{2**62}",
    ],
)
def test_huge_extents_are_refused_when_parsed(spelling: str) -> None:
    with pytest.raises(SearchlabError, match="must be"):
        searchlab.parse_workload(spelling)


@pytest.mark.parametrize("spelling", ["gemm:65536x65536x8", "gemm:65536x8x65536", "softmax:65536x65536"])
def test_arrays_whose_indices_overflow_are_refused(spelling: str) -> None:
    with pytest.raises(SearchlabError, match="has 4,294,967,296 elements"):
        check_size(searchlab.parse_workload(spelling))


def test_a_workload_larger_than_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workload = searchlab.gemm(64, 32, 16)
    needed = 4 * (2 * (64 * 16 + 16 * 32) + 3 * 64 * 32)
    monkeypatch.setattr(building, "available_memory", lambda: needed)
    check_size(workload)
    monkeypatch.setattr(building, "available_memory", lambda: needed - 1)
    with pytest.raises(SearchlabError, match=f"{needed:,} bytes .* has {needed - 1:,}"):
        searchlab.tune(workload, space="knob-template", policy="random", log=tmp_path / "a.jsonl", trials=4)
