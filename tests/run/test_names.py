"""Labels, spaces and workloads whose names cannot be file names, and studies in directories from others."""

from __future__ import annotations

from pathlib import Path

import pytest

from searchlab.analysis.read import read_runs
from searchlab.conformance import toys
from searchlab.errors import SearchlabError
from searchlab.log.read import find_logs
from searchlab.run.study import Study
from tests.support.logs import write_table

LABELS = ["plan.json", "report", "a.jsonl", "x" * 300, "a/../../b", "..", "a\0b\nc", "é" * 200, "study-as-run.toml"]


def study_of(tmp_path: Path, labels: list[str]) -> Study:
    table = write_table(tmp_path / "table.jsonl", toys.Small(), toys.simulate_smooth)
    return Study.from_dict(
        {
            "workloads": [str(toys.WORKLOAD)],
            "spaces": ["searchlab.conformance.toys:Small"],
            "trials": 2,
            "batch": 2,
            "seeds": 1,
            "policies": [{"name": "random", "label": label} for label in labels],
            "measure": {"kind": "table", "path": str(table)},
        }
    )


def test_every_label_is_run_and_reported(tmp_path: Path) -> None:
    out = tmp_path / "results"
    study_of(tmp_path, LABELS).run(out)
    assert len(find_logs(out)) == len(LABELS)
    (workload,) = read_runs(out).values()
    assert len(workload.runs) == len(LABELS)
    assert {path.name for path in tmp_path.iterdir()} == {"table.jsonl", "results"}


def test_labels_with_the_same_file_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SearchlabError, match="unique label"):
        study_of(tmp_path, ["a b", "a/b"]).plan()


def test_a_study_writes_nothing_outside_its_directory(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    out = tmp_path / "results"
    study = study_of(tmp_path, ["a"])
    (log,) = [run.log_path for run in study.plan().runs]
    (out / log).parent.parent.mkdir(parents=True)
    (out / log).parent.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SearchlabError, match="outside"):
        study.run(out)
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_study_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    text = 'workloads = ["gemm:8x8x8"]\r\nspaces = ["knob-template"]\r\npolicies = ["random"]\r\ntrials = 1\r\n'
    (tmp_path / "study.toml").write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert Study.load(tmp_path / "study.toml").spec.workloads == ["gemm:8x8x8"]
