"""``starts`` of a study: whether policies that have not learned anything draw the same configs from one seed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from searchlab.conformance import toys
from searchlab.errors import SearchlabError
from searchlab.run.plan import derive_seed
from searchlab.run.study import Study
from tests.support.logs import write_table

TWINS: list[Any] = ["random", {"name": "random", "label": "twin"}, {"name": "xgb", "options": {"n_startup": 16}}]


@pytest.fixture
def study(tmp_path: Path) -> dict[str, Any]:
    write_table(tmp_path / "tables" / "small.jsonl", toys.Small(), toys.simulate_smooth)
    return {
        "workloads": ["gemm:64x64x64"],
        "spaces": ["searchlab.conformance.toys:Small"],
        "policies": TWINS,
        "seeds": 2,
        "trials": 12,
        "batch": 4,
        "target": {"kind": "llvm"},
        "measure": {"kind": "table", "path": "tables"},
    }


def configs(study: dict[str, Any], base: Path, out: Path) -> dict[tuple[str, int], list[Any]]:
    return {
        (result.log.header.name, result.log.header.seed): [record.config for record in result.log.records]
        for result in Study.from_dict(study, base).run(out)
    }


def test_shared_starts_are_the_same_and_own_starts_are_not(study: dict[str, Any], tmp_path: Path) -> None:
    shared = configs(study, tmp_path, tmp_path / "shared")
    separate = configs(study | {"starts": "own"}, tmp_path, tmp_path / "own")
    for seed in (0, 1):
        assert shared["random", seed] == shared["twin", seed] == shared["xgb", seed]
        assert (
            len({str(separate[name, seed]) for name in ("random", "twin", "xgb")} | {str(shared["random", seed])}) == 4
        )


def test_a_study_with_own_starts_is_reproducible_and_resumes(study: dict[str, Any], tmp_path: Path) -> None:
    separate = study | {"starts": "own"}
    uninterrupted = configs(separate, tmp_path, tmp_path / "whole")
    configs(separate | {"trials": 5}, tmp_path, tmp_path / "later")
    assert configs(separate, tmp_path, tmp_path / "later") == uninterrupted
    with pytest.raises(SearchlabError, match='its starts is "", not random; give that policy a new label'):
        Study.from_dict(separate, tmp_path).run(_of_shared(study, tmp_path))


def _of_shared(study: dict[str, Any], base: Path) -> Path:
    configs(study, base, base / "shared")
    return base / "shared"


def test_an_unknown_kind_of_starts_is_refused(study: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(SearchlabError, match="starts"):
        Study.from_dict(study | {"starts": "mine"}, tmp_path)


def test_the_own_seed_of_a_name_never_changes() -> None:
    assert [derive_seed(0, "xgb"), derive_seed(1, "xgb"), derive_seed(0, "random")] == SEEDS


SEEDS = [412264528, 1565849552, 2645215636]
