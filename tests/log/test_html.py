"""How notebooks show results, studies and comparisons: compact, and with all text of logs escaped."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st

import searchlab
from searchlab import Study, compare, load_log
from searchlab.console import escape_to_one_line
from searchlab.log.read import read_log
from searchlab.log.result import Result, Results
from searchlab.measure.suite import find_suite
from searchlab.notebook import html_definitions, html_paragraphs, html_table
from searchlab.plugins import Plugin
from searchlab.suite.trajectories import read_baselines
from tests.support.analysis.logs import WORKLOAD, write

TAGS = {"table", "caption", "thead", "tbody", "tr", "th", "td", "p"}
NASTY = st.one_of(
    st.text(min_size=1, max_size=20),
    st.sampled_from(["<script>alert(1)</script>", "</td><img src=x onerror=alert(1)>", "&lt;b&gt;", "a\" style='x' '"]),
)


class Reader(HTMLParser):
    """Checks that all elements are known and closed, and have no attribute except for their alignment."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.texts: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS and attrs in ([], [("style", "text-align: left")])
        self.open.append(tag)
        self.texts.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts[-1] += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)

    handle_decl = handle_pi = unknown_decl = handle_comment


def words(html: str) -> list[str]:
    return [text for text in Reader(html).texts if text]


@given(st.lists(NASTY, min_size=3, max_size=3), NASTY)
def test_text_is_escaped(values: list[str], caption: str) -> None:
    assert words(html_table(values, [values], caption)) == [caption, *values, *values]
    assert words(html_definitions({values[0]: values[1]}, caption)) == [caption, *values[:2]]
    assert words(html_paragraphs(values)) == values


@settings(max_examples=15)
@given(NASTY, NASTY)
@example(":", ":")
def test_no_name_of_a_log_or_a_study_escapes(name: str, space: str) -> None:
    with TemporaryDirectory() as folder:
        log, plain = (read_log(write(Path(folder), strategy, 0, [1, "crash"])) for strategy in "ab")
    log_with_names = replace(log, header=msgspec.structs.replace(log.header, label=name, space_label=space))
    results = Results([Result(log_with_names), Result(plain)])
    study = Study.from_dict({"workloads": [WORKLOAD], "spaces": [{"name": "x", "label": space}], "policies": [name]})
    assert {Plugin(name).title, space} <= set(words(study._repr_html_()))
    name, space = escape_to_one_line(name), escape_to_one_line(space)
    assert {name, space, WORKLOAD} <= set(words(results[0]._repr_html_()))
    assert {name, space} <= set(words(results._repr_html_()))
    assert f"{space} / {name}" in words(compare(results)._repr_html_())


def test_the_repr_of_an_object_is_one_line(tmp_path: Path) -> None:
    result = load_log(write(tmp_path, "random", 7, [1, "crash", 3] * 100))
    study = Study.from_dict({"workloads": [WORKLOAD], "spaces": ["sketch"], "policies": ["random"]})
    comparison = compare([result])
    (check, *_) = searchlab.conformance.policy_checks("random")
    objects = [result, result.trials[0], result.log, result.best, study, comparison, comparison.summary, check]
    objects += [find_suite("v1"), *read_baselines(find_suite("v1/dev"), ["random"]), *study.plan().runs[:1]]
    assert not [text for text in map(repr, objects) if len(text) > 120 or not text.startswith("<")]
    assert repr(result.best) == f"<Best on {WORKLOAD}: 3 GFLOPS in trial 2>"


def lines(html: str) -> dict[str, str]:
    """Return the names and values in a table."""
    return dict(re.findall(r"<tr><th[^>]*>(.*?)</th><td[^>]*>(.*?)</td></tr>", html))


def test_a_result_is_shown_with_its_numbers(tmp_path: Path) -> None:
    result = load_log(write(tmp_path, "random", 7, [1, "crash", 3]))
    rows = lines(result._repr_html_())
    assert repr(result) == f"<Result of random on {WORKLOAD}, seed 7: 3 trials, best 3.0 GFLOPS>"
    assert rows["best"] == "3.0 GFLOPS in trial 2" and rows["trials"] == "3, 1 failed" and rows["seed"] == "7"
    for gflops in ([], ["crash"]):
        rows = lines(load_log(write(tmp_path, f"x{len(gflops)}", 0, gflops))._repr_html_())
        assert rows["best"] == "no success yet" and rows["trials"].startswith(str(len(gflops)))


def test_results_are_counted_by_strategy(tmp_path: Path) -> None:
    def load_results() -> Iterator[Any]:
        for seed in range(3):
            yield load_log(write(tmp_path, "a", seed, [1, 2 + seed, "crash"]))
        yield load_log(write(tmp_path, "b", 0, []))

    cells = words(Results(load_results())._repr_html_())
    assert cells[0] == "4 runs"
    assert cells[-14:] == [
        WORKLOAD,
        "knob",
        "a",
        "3",
        "9",
        "3",
        "4.0 GFLOPS",
        WORKLOAD,
        "knob",
        "b",
        "1",
        "0",
        "0",
        "no success yet",
    ]
    many = Results(load_log(write(tmp_path, f"p{number}", 0, [1])) for number in range(60))
    assert words(many._repr_html_())[0] == "60 runs; 10 more rows are not shown; use to_frame()"
    assert words(Results()._repr_html_())[0] == "0 runs"


def test_a_study_is_shown_with_its_settings() -> None:
    rows = lines(
        Study.from_dict(
            {
                "workloads": ["gemm:8x8x8"],
                "spaces": ["sketch"],
                "seeds": 3,
                "trials": 5,
                "policies": ["random", {"name": "xgb", "label": "bold"}],
            }
        )._repr_html_()
    )
    assert rows["policies"] == "random, bold" and rows["seeds"] == "3" and rows["workloads"] == "gemm:8x8x8"
    assert lines(Study.from_dict({"suite": "v1/dev", "policies": ["random"]})._repr_html_())["suite"] == "v1/dev"


def test_a_comparison_shows_verdicts_and_most_workloads(tmp_path: Path) -> None:
    for size in range(1, 15):
        for name in ("a", "b"):
            write(tmp_path, name, 0, [1, 2], workload=f"gemm:{size}x8x8")
    comparison = compare(tmp_path)
    cells = words(comparison._repr_html_())
    assert comparison.summary.overall and cells[0] == comparison.summary.overall.verdict
    assert sum(verdict in cells for verdict in comparison.verdicts.values()) >= 12
    assert sum(text.startswith("gemm:") for text in cells) == 12 and "2 more workloads are in" in cells[-1]
