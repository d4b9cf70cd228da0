"""The page as text: its contents, and that nothing in a log becomes markup."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from searchlab.analysis import report
from searchlab.analysis.charts.vegalite import bundle_javascript
from searchlab.analysis.page.render import embed_json
from searchlab.console import escape_to_one_line
from searchlab.log.plan import TOML_COPY_NAME
from searchlab.plugins import Plugin
from tests.support.analysis.logs import write

HOSTILE = """</script><script>alert(1)</script><img src=x onerror=alert(2)>'"&<!--$\u2028"""


class Page(HTMLParser):
    """The elements of a page, its text, and what its script elements hold."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts[-1] += data
        elif self._inside != "style":
            self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def data(self) -> dict[str, Any]:
        """What the script needs to begin with."""
        (text,) = (text for attributes, text in self._scripts if attributes.get("id") == "data")
        data: dict[str, Any] = json.loads(text)
        return data

    @property
    def charts(self) -> dict[str, Any]:
        """The charts' data, as rows, and specifications."""
        texts = [text for attributes, text in self._scripts if attributes.get("class") == "charts"]
        parts = [json.loads(zlib.decompress(base64.b64decode(text))) for text in texts]
        data, charts = (
            {name: value for part in parts for name, value in part[key].items()} for key in ("data", "charts")
        )
        rows = {
            name: [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
            for name, columns in data.items()
        }
        return {"data": rows, "charts": charts}

    @property
    def _scripts(self) -> list[tuple[dict[str, str | None], str]]:
        return list(zip(self.all("script"), self.scripts, strict=True))


def write_page(directory: Path) -> Page:
    report(directory)
    return Page((directory / "report" / "report.html").read_text("utf-8"))


def test_the_verdict_comes_first_and_every_part_is_there(tmp_path: Path) -> None:
    for seed in range(3):
        write(tmp_path, "random", seed, [1, 2, "crash", 2 + seed])
        write(tmp_path, "guided", seed, [5, 8, 9, 10 - seed])
    summary = report(tmp_path)
    page = write_page(tmp_path)
    (workload,) = summary.workloads
    words = " ".join(page.text.split()).partition(workload.verdict.partition(". ")[0])[2]  # after the contents
    parts = (
        "Ranking",
        "Convergence",
        "Differences",
        "What the trials were",
        "Time and failures",
        "The best program of each strategy",
        "How this was measured",
    )
    positions = [words.index(part) for part in parts]
    assert positions == sorted(positions)
    assert "3 crash" in words[positions[4] :]


def test_the_ranking_names_what_is_significantly_different(tmp_path: Path) -> None:
    for workload in ("gemm:8x8x8", "gemm:8x8x9"):
        for index, name in enumerate(("good", "fair", "poor")):
            for seed in range(8):
                write(tmp_path, name, seed, [10 - 3 * index + 0.1 * seed * index, 11], workload=workload)
    report(tmp_path)
    page = (tmp_path / "report" / "report.html").read_text("utf-8")
    for ranking in ("ranks", "w0-ranking", "w1-ranking"):
        table = page.partition(f'id="{ranking}"')[2].partition("</table>")[0]
        rows = table.split("<tr data-strategy")[1:]
        names = [re.findall(r'<summary title="(.*?)">', row) for row in rows]
        assert names == [["fair, poor"], ["poor", "good"], ["good, fair"]]


def test_the_ranking_compares_each_strategy_with_random(tmp_path: Path) -> None:
    for workload in ("gemm:8x8x8", "gemm:8x8x9"):
        for index, name in enumerate(("good", "random", "poor")):
            for seed in range(8):
                write(tmp_path, name, seed, [10 - 3 * index + 0.1 * seed * index, 11], workload=workload)
        for seed in range(8):
            write(tmp_path, "grid", seed, [1, 2], workload=workload, shared=["a", "b"])
    report(tmp_path)
    page = (tmp_path / "report" / "report.html").read_text("utf-8")
    for ranking in ("ranks", "w0-ranking", "w1-ranking"):
        rows = page.partition(f'id="{ranking}"')[2].partition("</table>")[0].split("<tr data-strategy")[1:]
        assert [row.split("<td>")[2].partition("<")[0] for row in rows] == ["better", "-", "worse", "untested"]
        assert rows[-1].split("<td>")[3].startswith("-<"), "it is not tested against any strategy"


def test_an_answer_and_the_verdict_on_all_are_one_text(tmp_path: Path) -> None:
    """Once, "xgb is better than random" and "No winner" were two cards that seemed to contradict each other."""
    for seed in range(8):
        for name, gain in (("random", 1.0), ("xgb", 6.0), ("mine", 20.0 if seed % 2 else 0.5)):
            write(tmp_path, name, seed, [gain, 5 + gain + seed / 10], contrasts=(("xgb", "random"),))
    report(tmp_path)
    text = (tmp_path / "report" / "report.html").read_text("utf-8")
    (card,) = re.findall('<article class="verdict better">.*?</article>', text, re.DOTALL)
    answer, verdict = re.findall("<strong>(.*?)</strong>", card)
    assert answer == "xgb is better than random." and verdict.startswith("No winner among 3 strategies: mine ")
    assert "uncorrected 95 % interval" in card


def test_the_reasons_and_the_most_important_knob_are_visible(tmp_path: Path) -> None:
    for workload in ("gemm:8x8x8", "gemm:8x8x9"):
        for gain, name in enumerate(("random", "guided"), 1):
            for seed in range(8):
                write(tmp_path / workload[-1], name, seed, [1, gain * (4 + seed / 8), 9 * gain], workload=workload)
    pages = [write_page(tmp_path / directory) for directory in ("", "8")]
    for page, knob in zip(pages, ("most important knob is ", "Which knobs matter: tile ("), strict=True):
        words = " ".join(page.text.split())
        assert words.index("programs of guided are 100.0 % faster than") < words.index("falls behind guided")
        assert words.index(knob) < words.index("How strategies are tested")


def test_nothing_in_a_log_becomes_markup(tmp_path: Path) -> None:
    changes: dict[str, Any] = {
        "label": HOSTILE,
        "space_label": HOSTILE,
        "space": {"name": HOSTILE},
        "host": {HOSTILE: HOSTILE},
        "versions": {HOSTILE: HOSTILE},
        "target": {"kind": HOSTILE},
        "measure": {"kind": HOSTILE},
    }
    for seed, changed in enumerate((changes, {**changes, "label": "plain"})):
        path = write(tmp_path, "p", seed, [1, 2, "crash"], space=Plugin("s"))  # such names cannot be file names
        lines = path.read_text("utf-8").rstrip("\n").split("\n")
        header = json.loads(lines[0]) | changed
        records = [json.loads(line) | {"config": {HOSTILE: HOSTILE}} for line in lines[1:]]
        path.write_text("\n".join(map(json.dumps, [header, *records])) + "\n")
    page = write_page(tmp_path)
    tags = {name for name, _ in page.elements}
    assert not tags & {"img", "iframe", "link", "object", "embed", "form", "input"}
    assert len(page.all("script")) == 4
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
    assert page.text.count("<script>alert(1)</script>") >= 6, "they are there, as text"
    assert escape_to_one_line(HOSTILE) in page.data["strategies"] and "plain" in page.data["strategies"]


@given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=5))
def test_embedded_data_is_the_same_and_never_ends_its_element(data: Any) -> None:
    text = embed_json(data)
    assert json.loads(text) == data
    assert not re.search("[<>&\u2028\u2029]", text)


def test_the_page_needs_no_other_file_and_no_network(tmp_path: Path) -> None:
    write(tmp_path, "random", 0, [1, 2, 3])
    page = write_page(tmp_path)
    for tag, attributes in page.elements:
        assert "src" not in attributes and "srcset" not in attributes, tag
        assert (attributes.get("href") or "#").startswith("#"), "a place on the page"
    text = (tmp_path / "report" / "report.html").read_text().replace(bundle_javascript(), "")
    assert not re.search(r"https?:|url\((?!#)|@import|fetch\(|XMLHttpRequest|WebSocket", text)
    (policy,) = (meta["content"] for meta in page.all("meta") if meta.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None and "default-src 'none'" in policy and "unsafe" not in policy
    digest = base64.b64encode(hashlib.sha256(page.scripts[-1].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy, "the script of the page is the one that is allowed"
    assert not [tag for tag, attributes in page.elements if "style" in attributes], "which the policy would refuse"


def test_every_chart_has_words(tmp_path: Path) -> None:
    for seed in range(2):
        write(tmp_path, "random", seed, [1, 2, "crash", 2 + seed])
        write(tmp_path, "guided", seed, [5, 8, 9, 10 - seed])
    page = write_page(tmp_path)
    charts = [a["id"] for a in page.all("figure") if "data-chart" in a]
    keys = ("convergence", "differences", "budget", "trials")
    assert charts == [f"w0-{key}" for key in (*keys, "importances", "values", "pairs")]
    assert set(charts) <= set(page.charts["charts"])
    assert len(page.all("figcaption")) == len(page.all("figure")) - 1, "programs speak for themselves"
    assert all(a.get("tabindex") == "0" and a.get("aria-label") for a in page.all("div") if a.get("class") == "scroll")
    (html,) = page.all("html")
    assert html["lang"] == "en"


def test_a_run_takes_few_bytes_and_trials_hardly_any(tmp_path: Path) -> None:
    """A page of 24 workloads, 22 strategies and 30 seeds is to stay below 5 MB."""
    for directory, seeds, trials in (("one", 2, 100), ("other", 6, 200)):
        (tmp_path / directory).mkdir()
        for workload in range(6):
            for strategy in range(4):
                for seed in range(seeds):
                    throughputs = (np.random.default_rng([strategy, seed]).pareto(1.0, trials) + 1e-3).tolist()
                    write(
                        tmp_path / directory,
                        f"strategy-{strategy}",
                        seed,
                        throughputs,
                        workload=f"gemm:8x8x{workload + 1}",
                    )
        report(tmp_path / directory)
    small, big = ((tmp_path / d / "report" / "report.html").stat().st_size for d in ("one", "other"))
    assert small - len(bundle_javascript()) < 200_000 and (big - small) / 96 < 400


@pytest.mark.parametrize(
    "runs",
    [
        {("a", 0): []},
        {("a", 0): [1.0]},
        {("a", 0): ["crash", "crash"], ("b", 0): ["crash"]},
        {("a", 0): [1.0, 2.0], ("a", 1): [1.0], ("b", 0): []},
        {("random", 0): [1.0] * 4, ("b", 0): [1.0] * 4},
        {(f"strategy {i}", 0): [float(i + 1)] * 300 for i in range(25)},
    ],
)
def test_odd_studies_have_a_page(tmp_path: Path, runs: dict[tuple[str, int], list[Any]]) -> None:
    for (name, seed), throughputs in runs.items():
        write(tmp_path, name, seed, throughputs, spent=(0, 0, 0, 0))
    page = write_page(tmp_path)
    assert not any("NaN" in script or "Infinity" in script for script in page.scripts[:-1])
    assert "None" not in page.text and "nan" not in page.text.split()


def test_each_seed_on_a_page_is_a_run(tmp_path: Path) -> None:
    write(tmp_path, "random", 0, [1, "crash", 3, 3, 2])
    write(tmp_path, "random", 1, ["crash", 2, 4, 4, 4])
    charts = write_page(tmp_path).charts
    rows = charts["data"][charts["charts"]["w0-convergence"]["each seed"]["data"]["name"]]
    assert [(row["seed"], row["x"], row["y"]) for row in rows] == [
        *((0, 1, 1), (0, 3, 3), (0, 5, 3)),
        *((1, 2, 2), (1, 3, 4), (1, 5, 4)),
    ]


def test_the_page_states_options_versions_and_dates(tmp_path: Path) -> None:
    (tmp_path / TOML_COPY_NAME).write_text('# Why </pre> not?\npolicies = ["a"]\n')
    for seed in (0, 1, 2, 7):
        changes: dict[str, Any] = {"batch": 4, "versions": {"numpy": "2.4" if seed else "2.3"}, "created_at": 1.7e9}
        policy = Plugin("evolutionary", {"population": 32, "arms": ["x"]})
        write(tmp_path, "a", seed, [1, 2], label="mine", policy=policy, effective_options={"population": 16}, **changes)
        write(tmp_path, "b", seed, [1, 2], cost_model=Plugin("ridge"), features="program", **changes)
    page = write_page(tmp_path)
    words = " ".join(page.text.split())
    for sentence in (
        'evolutionary: population 32, arms ["x"] (used: population 16)',
        "numpy 2.3; or numpy 2.4",
        "2023-11-14",
        "# Why </pre> not?",
    ):
        assert sentence in words, sentence
    text = (tmp_path / "report" / "report.html").read_text()
    assert "<td>b</td><td>ridge</td><td>program</td><td>4</td><td>0 to 2, 7</td><td>2</td>" in text
    assert len(page.all("pre")) == 1
