"""The report of a running study in a real browser: its progress, and which settings of the reader survive a reload."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from searchlab.analysis import watch
from searchlab.analysis.read import read_runs
from searchlab.analysis.watch import WatchServer
from searchlab.conformance import toys
from searchlab.records import Trial
from searchlab.run.study import Study
from tests.support.analysis.browser import Browser, find_browser
from tests.support.logs import write_table

pytestmark = pytest.mark.skipif(
    find_browser() is None, reason="there is no Chromium: install it, or name it in the variable CHROMIUM"
)
PROGRESS = "document.getElementById('progress')?.textContent"  # none while the page is loaded again
VERSION = "document.getElementById('progress')?.dataset.version"
PRESSED = "[...document.querySelectorAll('[data-toggle]')].map(b => b.getAttribute('aria-pressed'))"
VIEW = "document.querySelector('#w0-convergence select')?.value"


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    program = find_browser()
    assert program
    with Browser(program, tmp_path / "profile") as browser:
        yield browser


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[Path, Event, Thread]]:
    """Run a study whose third run waits after trial 9 until the event is set."""
    write_table(tmp_path / "table.jsonl", toys.Small(), toys.simulate_flaky)
    study = Study.from_dict(
        {
            "workloads": [str(toys.WORKLOAD)],
            "spaces": [{"name": "searchlab.conformance.toys:Small", "label": "small"}],
            "policies": ["random", {"name": "random", "label": "<b>markup</b>"}],
            "seeds": 2,
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
            if number == 3 and trial.index == 9:
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
    deadline = time.monotonic() + 60
    while (value_now := browser.run(script)) != value:
        assert time.monotonic() < deadline, f"{script} is {value_now!r}, not {value!r}"
        time.sleep(0.1)


def test_a_report_is_watched_to_the_end_of_its_study(
    browser: Browser, running: tuple[Path, Event, Thread], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, go_on, thread = running
    monkeypatch.setattr(watch, "POLL_SECONDS", 0.1)
    monkeypatch.setattr(watch, "MIN_REPORT_SECONDS", 0.0)
    with WatchServer(out, read=read_runs) as server:
        serving = Thread(target=server.serve_forever, args=(0.02,))
        serving.start()
        try:
            browser.size(1400)
            browser.open(f"http://localhost:{server.server_port}/prefix/")
            wait_for(browser, "document.querySelectorAll('.plot svg').length > 0", True)
            start = "2 of 4 runs finished, 1 running, 1 not started; 56 trials done, at most 40 left"
            wait_for(browser, f"{PROGRESS}?.startsWith('{start}')", True)
            for width in (1400, 500, 360):
                browser.size(width)
                assert browser.run("document.documentElement.scrollWidth") == width
            browser.size(1400)
            browser.click("[data-toggle='0']")
            browser.choose("#w0-convergence select", "each seed")
            browser.run("scrollTo(0, 1000)")
            version = browser.run(VERSION)
            go_on.set()
            thread.join()
            wait_for(
                browser, f"{PROGRESS} === '4 of 4 runs finished; 96 trials done' && {VERSION} !== '{version}'", True
            )
            wait_for(browser, PRESSED, ["false", "true"])
            wait_for(browser, VIEW, "each seed")
            wait_for(browser, "scrollY > 500", True)
            browser.screenshot(tmp_path / "finished.png")
        finally:
            server.shutdown()
            serving.join()
        assert {url.partition("/prefix/")[2] for url in browser.requests} <= {"", "?progress"}
        assert browser.messages == []
    wait_for(browser, f"{PROGRESS}?.startsWith('The server does not answer.')", True)
