"""The page in a real browser, during a real run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from searchlab.records import Trial
from searchlab.run.study import Study
from searchlab.watch.server import WatchServer
from tests.support import toys
from tests.support.analysis.browser import Browser, find_browser
from tests.support.logs import write_table

pytestmark = pytest.mark.skipif(
    find_browser() is None, reason="there is no Chromium: install it, or name it in the variable CHROMIUM"
)
LABEL = "<b>a strategy</b> with a name that is much too long for any phone to show"
STATUSES = "[...document.querySelectorAll('tbody .status')].map(s => s.textContent)"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = find_browser()
    assert program
    with Browser(program, tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[Path, Event, Thread]]:
    """Run a study whose second run waits after trial 9 until the event is set."""
    write_table(tmp_path / "table.jsonl", toys.Small(), toys.flaky)
    study = Study.from_dict(
        {
            "workloads": [str(toys.WORKLOAD)],
            "spaces": [{"name": "tests.support.toys:Small", "label": "small"}],
            "policies": ["random", {"name": "random", "label": LABEL}],
            "seeds": 3,
            "trials": 24,
            "batch": 4,
            "target": {"kind": "llvm"},
            "measure": {"kind": "table", "path": "table.jsonl"},
        },
        tmp_path,
    )
    waits, go_on = Event(), Event()

    def on_run(run: Any, number: int, count: int, job: int) -> Any:
        def on_trial(trial: Trial, replayed: bool) -> None:
            if number == 2 and trial.index == 9:
                waits.set()
                go_on.wait(120)

        return on_trial

    thread = Thread(target=lambda: study.run(tmp_path / "out", on_run))
    thread.start()
    assert waits.wait(120)
    yield tmp_path / "out", go_on, thread
    go_on.set()
    thread.join()


def wait_for(browser: Browser, script: str, value: object) -> None:
    until = time.monotonic() + 60
    while (now := browser.run(script)) != value:
        assert time.monotonic() < until, f"{script} is {now!r}, not {value!r}"
        time.sleep(0.1)


def test_a_real_run_is_watched_to_its_end(
    browser: Browser, running: tuple[Path, Event, Thread], tmp_path: Path
) -> None:
    out, go_on, thread = running
    browser.size(1400)
    browser.requests.clear()
    with WatchServer(out) as server:
        serving = Thread(target=server.serve_forever, args=(0.02,))
        serving.start()
        try:
            browser.open(server.url)
            wait_for(browser, STATUSES, ["done", "waiting", "waiting", "running", "waiting", "waiting"])
            assert browser.run("document.getElementById('says').textContent") == (
                "The study is running: 1 of 6 runs is done, 1 is running, 4 are yet to start."
            )
            row = browser.run("[...document.querySelectorAll('tbody tr')][3].innerText.split('\t')")
            assert [row[0], row[1], row[3].strip()] == [LABEL, "0", "8 / 24"], "whole batches are in the log"
            assert LABEL in browser.run("document.getElementById('running').innerText")
            assert browser.run("document.querySelectorAll('b, i').length") < 30 and not browser.run(
                "[...document.querySelectorAll('b')].some(b => b.textContent === 'a strategy')"
            )
            assert browser.run("document.getAnimations().filter(a => a instanceof CSSAnimation).length") == 0, (
                "a page that moves without end keeps a machine busy that may be measuring"
            )
            browser.click("[data-show='waiting']")
            assert browser.run("[...document.querySelectorAll('tbody tr')].filter(r => r.offsetParent).length") == 4
            browser.click("[data-show='all']")
            for width in (1400, 500, 360):
                browser.size(width)
                assert browser.run("document.documentElement.scrollWidth") == width
                if width > 400:
                    browser.screenshot(tmp_path / f"running-{width}.png")
            browser.size(1400)
            go_on.set()
            thread.join()
            wait_for(browser, STATUSES, ["done"] * 6)
            wait_for(
                browser, "document.getElementById('says').textContent", "The study is done: all 6 runs are complete."
            )
            assert browser.run("document.getElementById('now').hidden")
            assert browser.run("document.querySelectorAll('.curve path').length") == 6
            browser.screenshot(tmp_path / "done-1400.png")
        finally:
            server.shutdown()
            serving.join()
        assert all(url.startswith(server.url) for url in browser.requests)
        assert browser.messages == []
    wait_for(browser, "document.body.className", "gone")
    assert "restart searchlab watch" in browser.run("document.getElementById('says').textContent")
    browser.open("about:blank")
