"""The page as a reader sees it, in a real browser: drawn, answering, and fit for a phone, the dark, and paper."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from searchlab.analysis import report
from tests.support.analysis.browser import Browser, find_browser
from tests.support.analysis.logs import write

pytestmark = pytest.mark.skipif(
    find_browser() is None, reason="there is no Chromium: install it, or name it in the variable CHROMIUM"
)
NAMES = ["a-strategy-with-a-name-that-is-much-too-long-for-any-phone-to-show", "guided", "random", "<b>xgb</b>"]
WIDTHS = (320, 360, 768, 1280)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("study")
    for workload in ("gemm:100x100x50", "conv2d:1x14x14x64x64x3x3:p1"):
        for place, name in enumerate(NAMES):
            for seed in range(3):
                found = np.random.default_rng(seed).exponential(1 + place, 40).tolist()
                policy = "random" if name == "random" else f"policy-{place}"
                path = write(directory, policy, seed, ["build_error", *found], workload=workload)
                # A label such as these is no name of a file.
                path.write_text(path.read_text().replace('"label":""', f'"label":"{name}"', 1))
    report(directory)
    return directory / "report" / "report.html"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = find_browser()
    assert program
    with Browser(program, tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
def view(browser: Browser, page: Path) -> Iterator[Browser]:
    """The page, opened anew on a desktop; in the end it must have complained of nothing and asked for nothing."""
    browser.media()
    browser.size(1280)
    browser.requests.clear()
    browser.open(page)
    yield browser
    assert browser.messages == []
    assert set(browser.requests) == {page.resolve().as_uri()}


def lines(browser: Browser, figure: str = "w0-convergence") -> list[str]:
    """Which strategies' lines are drawn in a chart."""
    found: list[str] = browser.run(f"[...document.querySelectorAll('#{figure} path.line')].map(p => p.dataset.line)")
    return sorted(found)


def test_every_chart_is_drawn(view: Browser) -> None:
    charts = view.run("[...document.querySelectorAll('[data-figure]')].map(f => f.id)")
    assert {"w2-profile", "w2-runs", "w0-convergence", "w0-score", "w0-ecdf", "w1-convergence"} <= set(charts)
    for chart in charts:
        assert lines(view, chart) == ["0", "1", "2", "3"], chart
        lengths = view.run(f"[...document.querySelectorAll('#{chart} path.line')].map(p => p.getTotalLength())")
        assert min(lengths) > 50, chart
        assert not view.run(f"document.querySelector('#{chart} .plot').innerHTML.includes('NaN')"), chart
        outside = view.run(
            f"[...document.querySelectorAll('#{chart} path.lead')].filter(p => {{ const box = p.getBBox();"
            " return box.y < 0 || box.y + box.height > p.ownerSVGElement.viewBox.baseVal.height - 40; }).length"
        )
        assert outside == 0, "what a label belongs to is in the chart, also where the line has left it"
        words = view.run(f"document.querySelector('#{chart} .plot svg').getAttribute('aria-label')")
        assert "random ends at" in words
    assert view.run("document.querySelectorAll('#w0-convergence path.band').length") == 4


def test_a_strategy_is_hidden_everywhere_and_comes_back(view: Browser) -> None:
    assert not view.run("[...document.querySelectorAll('b')].some(b => b.textContent === 'xgb')")
    view.click("[data-toggle='2']")
    assert view.run("document.querySelector(\"[data-toggle='2']\").getAttribute('aria-pressed')") == "false"
    for chart in ("w0-convergence", "w1-ecdf", "w2-profile"):
        assert lines(view, chart) == ["0", "1", "3"]
    visible = "[...document.querySelectorAll('#w0-ranking > .scroll tbody tr')].filter(r => r.offsetParent).length"
    assert view.run("document.querySelector('#w0-ranking tbody tr[data-strategy=\"2\"]').offsetParent === null")
    assert view.run(visible) == 3
    view.click("#all")
    assert lines(view) == ["0", "1", "2", "3"] and view.run(visible) == 4


def test_the_keyboard_reaches_it_all(view: Browser) -> None:
    view.run("document.querySelector(\"[data-toggle='1']\").focus()")
    view.press("Enter")
    assert lines(view) == ["0", "2", "3"]
    view.run("document.querySelector('#w0-convergence .plot svg').focus()")
    for key, said in (
        ("ArrowRight", "1 trials"),
        ("ArrowRight", "2 trials"),
        ("End", "41 trials"),
        ("Home", "1 trials"),
    ):
        view.press(key)
        assert view.run("document.querySelector('#w0-convergence .readout b').textContent") == said
    view.press("Escape")
    assert view.run("getComputedStyle(document.querySelector('#w0-convergence .readout')).display") == "none"


def test_trials_and_seconds_are_switched_for_the_whole_page(view: Browser) -> None:
    before = view.run("document.querySelector('#w1-ecdf .plot svg').textContent")
    assert "seconds of search" not in before
    view.click("#w0-convergence [data-view='seconds']")
    for chart in ("w0-convergence", "w1-ecdf"):
        assert "seconds of search" in view.run(f"document.querySelector('#{chart} .plot svg').textContent")
        assert view.run(f"document.querySelector(\"#{chart} [aria-pressed='true']\").dataset.view") == "seconds"


def test_values_are_read_with_the_mouse(view: Browser) -> None:
    view.hover("#w0-convergence .plot svg")
    said = view.run("document.querySelector('#w0-convergence .readout').innerText")
    assert "trials" in said and "guided" in said and "<b>xgb</b>" in said
    box = view.run(
        "(() => { const r = document.querySelector('#w0-convergence .readout').getBoundingClientRect();"
        "return [r.width, r.height] })()"
    )
    assert 50 < box[0] < 700 and 50 < box[1] < 250


@pytest.mark.parametrize("width", WIDTHS)
def test_no_width_scrolls_sideways(view: Browser, width: int) -> None:
    view.size(width, 800, mobile=width < 500)
    view.run("document.querySelectorAll('details').forEach(d => d.open = true)")
    view.hover("#w0-convergence .plot svg")
    assert view.run("[document.documentElement.scrollWidth, document.documentElement.clientWidth]") == [width, width]
    wide = view.run(
        "[...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll, #legend, pre, svg, .sr, .skip')"
        " && e.getBoundingClientRect().width && e.getBoundingClientRect().right > innerWidth + 0.5)"
        ".map(e => e.outerHTML)"
    )
    assert wide == []
    small = view.run(
        "[...document.querySelectorAll('.plot svg')].filter(s => s.getBoundingClientRect().width /"
        " s.viewBox.baseVal.width < 0.95).length"
    )
    assert small == 0, "the letters of a chart are as large as they are meant to be"


CONTRAST = """(() => {
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const light = (colour) => {
    canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    const part = [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map(v => v / 255)
      .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * part[0] + 0.7152 * part[1] + 0.0722 * part[2];
  };
  const style = getComputedStyle(document.documentElement);
  const value = (name) => light(style.getPropertyValue(name));
  const ratio = (a, b) => (Math.max(value(a), value(b)) + 0.05) / (Math.min(value(a), value(b)) + 0.05);
  const found = {};
  for (const name of [...Array(10).keys()].map(i => '--c' + i)) found[name] = ratio(name, '--card');
  for (const back of ['--card', '--page']) {
    for (const name of ['--ink', '--soft', '--accent']) found[name + back] = ratio(name, back);
  }
  for (const back of ['--win', '--lose']) found[back] = ratio('--soft', back);
  return found;
})()"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_in_the_light_and_in_the_dark(view: Browser, scheme: str) -> None:
    view.media(scheme=scheme)
    red, green, blue = view.run("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    assert (max(red, green, blue) < 40) if scheme == "dark" else (min(red, green, blue) > 230)
    for name, ratio in view.run(CONTRAST).items():  # WCAG 2.2: 1.4.11 for graphics, 1.4.3 for text
        assert ratio >= (3 if name in [f"--c{i}" for i in range(10)] else 4.5), name


def test_all_strategies_are_in_sight_on_a_desktop(view: Browser) -> None:
    view.size(800, 900)
    assert view.run("(() => { const l = document.getElementById('legend'); return l.scrollWidth <= l.clientWidth })()")


def test_paper(view: Browser) -> None:
    view.media(scheme="dark", kind="print")
    assert view.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert view.run("getComputedStyle(document.querySelector('#legend')).position") == "static"
    view.run("window.dispatchEvent(new Event('beforeprint'))")
    widths = view.run("[...document.querySelectorAll('.plot svg')].map(s => s.viewBox.baseVal.width)")
    assert set(widths) == {680}, "so that letters are as large on paper, whatever the width of the window"
    view.run("window.dispatchEvent(new Event('afterprint'))")
    data = view.pdf()
    assert data.startswith(b"%PDF") and len(data) > 30_000
