"""A site of results: every link leads to a file of the site, and each result can be reproduced from its data."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from searchlab.analysis import report
from searchlab.analysis.charts.vegalite import bundle_javascript
from searchlab.analysis.publish import SUMS_NAME, make_publication, publish
from searchlab.errors import SearchlabError
from searchlab.log.plan import TOML_COPY_NAME
from tests.support.analysis.logs import WORKLOAD, write
from tests.support.cli import searchlab


def study(directory: Path, *, better: float = 5.0) -> Path:
    for seed in range(6):
        contrasts = (("mine & <b>yours</b>", "random"),)
        write(directory / "space", "random", seed, [1, 2, "crash", 2 + seed], contrasts=contrasts)
        changes = {"label": "mine & <b>yours</b>", "contrasts": contrasts, "host": {"cpu": "a fast one"}}
        write(directory / "space", "m", seed, [better, better + 1, 9, 10 - seed / 10], **changes)
    (directory / TOML_COPY_NAME).write_text('policies = ["random"]\n')
    return directory


class Links(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    publish(tmp_path / "built", [make_publication(study(tmp_path / name)) for name in ("one study", "other")])
    for name in ("one study", "other"):
        shutil.rmtree(tmp_path / name)
    return (tmp_path / "built").rename(tmp_path / "site")  # where it is, and where it came from, do not matter


def test_every_link_leads_to_a_file_of_the_site(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert sorted(page.relative_to(site).as_posix() for page in pages) == [
        "index.html",
        "one-study/index.html",
        "one-study/report.html",
        "other/index.html",
        "other/report.html",
    ]
    links = 0
    for page in pages:
        text = page.read_text("utf-8").replace(bundle_javascript(), "")
        assert not re.search(r"https?:", text) and "default-src &#39;none&#39;" in text and "<b>yours" not in text
        for link in Links(text).links:
            path, _, anchor = link.partition("#")
            target = (page.parent / unquote(path)).resolve() if path else page
            assert target.is_relative_to(site.resolve()) and target.is_file(), (page, link)
            assert not anchor or target.suffix != ".html" or f'id="{anchor}"' in target.read_text("utf-8")
            links += 1
    assert links > 50


def test_a_card_answers_and_says_when_and_where(site: Path) -> None:
    index = " ".join((site / "index.html").read_text("utf-8").split())
    assert index.count("is better than random: area under the curve") == 2
    assert "mine &amp; &lt;b&gt;yours" in index and "a fast one" in index
    assert "2 strategies, 1 workload, 12 runs" in index


def test_a_result_can_be_reproduced_from_its_published_data(site: Path, tmp_path: Path) -> None:
    folder = site / "one-study"
    text = (folder / SUMS_NAME).read_text()
    sums = {name: digest for digest, name in (line.split("  ", 1) for line in text.splitlines())}
    assert {"report.html", "runs.csv.gz", "summary.json", f"logs/{TOML_COPY_NAME}"} <= sums.keys()
    assert sum(name.startswith("logs/") for name in sums) == 13
    for name, digest in sums.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
    page = (folder / "index.html").read_text("utf-8")
    assert hashlib.sha256(text.encode()).hexdigest() in page, "a citation names the data"
    commands = (
        page.partition('id="verify"')[2].partition("<pre")[2].partition(">")[2].partition("</pre>")[0].splitlines()
    )
    assert commands[1] == f"sha256sum --check {SUMS_NAME}" and commands[-1].startswith(
        "searchlab run logs/study-as-run.toml"
    )
    for command in commands[2:4]:
        result = searchlab(*command.split()[1:], cwd=folder)
        assert result.returncode == 0, result.stderr
    reproduced = json.loads((folder / "again" / "summary.json").read_text())
    assert reproduced == json.loads((folder / "summary.json").read_text())


def test_results_stay_and_are_replaced(site: Path, tmp_path: Path) -> None:
    cards = publish(
        site, [make_publication(study(tmp_path / "other", better=9.0)), make_publication(study(tmp_path / "new"))]
    )
    assert sorted(card.title for card in cards) == ["new", "one study", "other"]
    index = (site / "index.html").read_text("utf-8")
    assert index.count("<article") == 3
    assert (site / "other" / "summary.json").read_text() != (site / "one-study" / "summary.json").read_text()


def test_a_report_in_the_directory_is_no_data(tmp_path: Path) -> None:
    report(study(tmp_path / "one"))
    (tmp_path / "one" / "report" / "old.jsonl").write_text("no log")
    publish(tmp_path / "site", [make_publication(tmp_path / "one")])
    assert not (tmp_path / "site" / "one" / "logs" / "report").exists()


def test_files_that_prevent_a_publication_are_named(tmp_path: Path) -> None:
    result = make_publication(study(tmp_path / "a" / "one"))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("mine")
    with pytest.raises(SearchlabError, match="full is neither empty nor a site; choose another directory"):
        publish(tmp_path / "full", [result])
    with pytest.raises(SearchlabError, match="two results would be written to .*/one; rename"):
        publish(tmp_path / "site", [result, make_publication(study(tmp_path / "b" / "one"))])
    with pytest.raises(SearchlabError, match="the directory .*none to publish does not exist"):
        make_publication(tmp_path / "none")
    publish(tmp_path / "site", [result])
    (tmp_path / "site" / "one" / "card.json").write_text("{")
    with pytest.raises(SearchlabError, match=r"one/card\.json is damaged"):
        publish(tmp_path / "site", [make_publication(study(tmp_path / "two"))])
    assert WORKLOAD in (tmp_path / "site" / "one" / "summary.json").read_text()


def test_the_command_refuses_conflicting_options(tmp_path: Path) -> None:
    result = searchlab("report", "--publish", tmp_path / "site", study(tmp_path / "one"), "--json")
    assert result.returncode == 2 and "cannot be combined" in result.stderr and not (tmp_path / "site").exists()
