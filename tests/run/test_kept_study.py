"""The copy of a study beside its logs."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from searchlab.conformance import toys
from searchlab.errors import SearchlabError
from searchlab.log import writer
from searchlab.log.format import Log
from searchlab.log.plan import JSON_COPY_NAME, TOML_COPY_NAME, read_study_copies
from searchlab.log.read import read_existing_log
from searchlab.run import open as opening
from searchlab.run.study import Study
from tests.support.logs import write_table

STUDY = """# A question.
workloads = ["gemm:64x64x64"]
spaces = [{ name = "searchlab.conformance.toys:Small", label = "small" }]
policies = ["random"]
trials = 4
batch = 4
target = { kind = "llvm" }
measure = { kind = "table", path = "tables" }
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write_table(tmp_path / "tables" / "Small.jsonl", toys.Small(), toys.simulate_flaky)
    (tmp_path / "study.toml").write_text(STUDY)
    return tmp_path / "study.toml"


def test_a_study_reads_each_of_its_logs_once(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths: list[Path] = []

    def read(path: Path) -> Log | None:
        paths.append(path)
        return read_existing_log(path)

    for module in (opening, writer):
        monkeypatch.setattr(module, "read_existing_log", read)
    for trials in (4, 6):  # the logs are new, and then resumed
        (result,) = Study.from_dict({**tomllib.loads(STUDY), "trials": trials}, tmp_path).run(tmp_path / "out")
        assert len(result.trials) == trials and paths == [result.log.path]
        paths.clear()


def test_the_study_file_lies_beside_the_logs_as_it_was_run(file: Path, tmp_path: Path) -> None:
    (result,) = Study.load(file).run(tmp_path / "out")
    assert read_study_copies([result.log.path]) == [(tmp_path / "out" / TOML_COPY_NAME, STUDY)]
    file.write_text(STUDY.replace("trials = 4", "trials = 6"))
    Study.load(file).run(tmp_path / "out")
    assert "trials = 6" in (tmp_path / "out" / TOML_COPY_NAME).read_text()


def test_a_study_that_is_refused_is_not_kept(file: Path, tmp_path: Path) -> None:
    Study.load(file).run(tmp_path / "out")
    file.write_text(STUDY.replace("batch = 4", "batch = 2"))
    with pytest.raises(SearchlabError, match="batch"):
        Study.load(file).run(tmp_path / "out")
    assert (tmp_path / "out" / TOML_COPY_NAME).read_text() == STUDY


def test_a_study_from_a_script_is_kept_completely(file: Path, tmp_path: Path) -> None:
    study = Study.from_dict({**SPEC, "policies": ["random"]}, tmp_path)
    study.run(tmp_path / "out")
    spec = json.loads((tmp_path / "out" / JSON_COPY_NAME).read_text())
    assert spec == {**SPEC, "policies": ["random"]}
    assert Study.from_dict(spec, tmp_path).spec == study.spec


SPEC = {
    "workloads": ["gemm:64x64x64"],
    "spaces": ["searchlab.conformance.toys:Small"],
    "trials": 4,
    "batch": 4,
    "target": {"kind": "llvm"},
    "measure": {"kind": "table", "path": "tables"},
}


def test_a_directory_of_complete_runs_that_cannot_be_written_to(file: Path, tmp_path: Path) -> None:
    Study.load(file).run(tmp_path / "out")
    (tmp_path / "out" / TOML_COPY_NAME).unlink()
    (tmp_path / "out" / TOML_COPY_NAME).mkdir()  # nothing can be written there, whoever runs this
    assert len(Study.load(file).run(tmp_path / "out")) == 1
    assert read_study_copies(sorted((tmp_path / "out").rglob("*.jsonl"))) == []
