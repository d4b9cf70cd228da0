"""Directories from others: nothing outside them is read or written, whatever links they contain."""

from __future__ import annotations

from pathlib import Path

import pytest

from searchlab.analysis import report
from searchlab.analysis.publish import make_publication, publish
from searchlab.analysis.read import read_runs
from searchlab.analysis.watch import StudyProgress
from searchlab.errors import SearchlabError, SearchlabWarning
from searchlab.log.plan import PLAN_FILE_NAME, TOML_COPY_NAME, write_plan, write_study_copy
from tests.support.analysis.logs import write

SECRET = "the secret of the user"


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A directory with a log, and a secret beside it."""
    (tmp_path / "secret").write_text(SECRET)
    write(tmp_path / "results", "a", 0, [1, 2, 3]).rename(tmp_path / "results" / "a.jsonl")
    write(tmp_path / "elsewhere", "b", 0, [1, 2, 3]).rename(tmp_path / "elsewhere" / "b.jsonl")
    return tmp_path / "results"


def link(path: Path, target: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(target)
    return path


@pytest.mark.filterwarnings("ignore:skipped")
def test_neither_report_nor_site_contains_what_links_lead_to(results: Path) -> None:
    for name in (TOML_COPY_NAME, PLAN_FILE_NAME, "b.jsonl", "deep/b.jsonl"):
        link(results / name, str(results.parent / "secret"))
    report(results)
    publish(results.parent / "site", [make_publication(results)])
    for output in (results / "report", results.parent / "site"):
        files = [path for path in output.rglob("*") if path.is_file()]
        assert files and not any(SECRET.encode() in path.read_bytes() for path in files)


def test_a_report_overwrites_nothing_outside(results: Path) -> None:
    names = ["report.html", "summary.json", "summary.csv", "programs.csv.gz"]
    for name in names:
        link(results / "report" / name, "../../secret")
    report(results)
    assert (results.parent / "secret").read_text() == SECRET
    assert not any((results / "report" / name).is_symlink() for name in names)


def test_a_report_is_not_written_to_a_linked_directory(results: Path) -> None:
    link(results / "report", "../elsewhere")
    with pytest.raises(SearchlabError, match="outside"):
        report(results)
    assert [path.name for path in (results.parent / "elsewhere").iterdir()] == ["b.jsonl"]


def test_a_log_that_leads_out_is_not_read(results: Path) -> None:
    link(results / "b.jsonl", "../elsewhere/b.jsonl")
    with pytest.warns(SearchlabWarning, match=r"b\.jsonl"):
        (workload,) = read_runs(results).values()
    assert len(workload.runs) == 1
    assert read_runs(results / "b.jsonl")  # the user's own act
    link(results.parent / "linked", "elsewhere")
    assert read_runs(results.parent / "linked")


def test_plans_and_copies_are_not_written_through_links(results: Path) -> None:
    for name in (PLAN_FILE_NAME, TOML_COPY_NAME):
        link(results / name, "../secret")
    write_plan(results, ())
    write_study_copy(results, TOML_COPY_NAME, "text")
    assert (results.parent / "secret").read_text() == SECRET


@pytest.mark.filterwarnings("ignore:skipped")
def test_watching_reads_nothing_outside(results: Path) -> None:
    link(results / "b.jsonl", "../elsewhere/b.jsonl")
    assert list(StudyProgress(results).log_states) == ["a.jsonl"]


def test_a_failed_publication_leaves_nothing_behind(results: Path) -> None:
    site = results.parent / "site"
    publish(site, [make_publication(results)])
    before = {path: path.read_bytes() for path in site.rglob("*") if path.is_file()}
    empty = results.parent / "empty"
    empty.mkdir()
    with pytest.raises(SearchlabError, match="no logs"):
        publish(site, [make_publication(results), make_publication(empty)])
    assert {path: path.read_bytes() for path in site.rglob("*") if path.is_file()} == before
    fresh = results.parent / "fresh"
    for _ in range(2):  # the second is not blocked by the first
        with pytest.raises(SearchlabError, match="no logs"):
            publish(fresh, [make_publication(empty)])
    publish(fresh, [make_publication(results)])
