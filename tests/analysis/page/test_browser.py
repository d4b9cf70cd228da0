"""The page as a reader sees it, in a real browser: drawn, answering, and fit for a phone, the dark, and paper."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import unquote

import numpy as np
import pytest

from searchlab.analysis import report
from searchlab.analysis.page.render import INLINE
from searchlab.analysis.publish import publish, study_result
from searchlab.log.plan import TOML
from tests.support.analysis.browser import Browser, find_browser
from tests.support.analysis.logs import write

pytestmark = pytest.mark.skipif(
    find_browser() is None, reason="there is no Chromium: install it, or name it in the variable CHROMIUM"
)
NAMES = ["a-strategy-with-a-name-that-is-much-too-long-for-any-phone-to-show", "guided", "random", "<b>xgb</b>"]
WIDTHS = (320, 360, 500, 768, 1280, 1400)
SHARED = 5  # trials of the random start


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("study")
    for workload in ("gemm:100x100x50", "conv2d:1x14x14x64x64x3x3:p1"):
        for place, name in enumerate(NAMES):
            for seed in range(3):
                found = np.random.default_rng(seed).exponential(1 + place, 40).tolist()
                policy = "random" if name == "random" else f"policy-{place}"
                start = [f"start {seed} {trial}" for trial in range(SHARED if place > 1 else 0)]
                path = write(directory, policy, seed, ["build_error", *found], workload=workload, shared=start)
                # A label such as these is no name of a file.
                path.write_text(path.read_text().replace('"label":""', f'"label":"{name}"', 1))
    (directory / TOML).write_text("# The question.\npolicies = ['random']\n")
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
    """Which strategies' lines are drawn in a chart, once it is in sight."""
    browser.see(f"#{figure}")
    found: list[str] = browser.run(f"[...document.querySelectorAll('#{figure} path.line')].map(p => p.dataset.s)")
    return sorted(found)


def test_every_chart_is_drawn(view: Browser) -> None:
    charts = view.run("[...document.querySelectorAll('[data-figure]')].map(f => f.id)")
    assert {"all-profile", "all-runs", "w0-convergence", "w0-score", "w0-ecdf", "w1-convergence"} <= set(charts)
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
    view.see("#w0-convergence")
    assert view.run("document.querySelectorAll('#w0-convergence path.band').length") == 4


def grey(browser: Browser, chart: str = "w0-convergence") -> list[str]:
    """Which strategies' lines have no colour of their own in a chart."""
    browser.see(f"#{chart}")
    colours = browser.run(
        f"[...document.querySelectorAll('#{chart} path.line')].map(p => [p.dataset.s, getComputedStyle(p).stroke])"
    )
    shared = max({colour for _, colour in colours}, key=[colour for _, colour in colours].count)
    return sorted(s for s, colour in colours if colour == shared)


def test_a_strategy_is_greyed_everywhere_and_highlighted_again(view: Browser) -> None:
    assert not view.run("[...document.querySelectorAll('b')].some(b => b.textContent === 'xgb')")
    for toggle in ("[data-toggle='2']", "#w0-ranking tr[data-strategy='1'] th .name"):
        view.click(toggle)
    assert view.run("document.querySelector(\"[data-toggle='2']\").getAttribute('aria-pressed')") == "false"
    for chart in ("w0-convergence", "w1-ecdf", "all-profile"):
        assert lines(view, chart) == ["0", "1", "2", "3"] and grey(view, chart) == ["1", "2"]
    names = view.run("[...document.querySelectorAll('#w0-convergence text.end')].map(t => t.dataset.s).sort()")
    assert names == ["0", "3"], "only what is highlighted is named at its end"


def test_the_grey_strategies_are_hidden_everywhere_and_come_back(view: Browser) -> None:
    view.click("[data-toggle='2']")
    view.click("#only")
    for chart in ("w0-convergence", "w1-ecdf", "all-profile"):
        assert lines(view, chart) == ["0", "1", "3"]
    visible = "[...document.querySelectorAll('#w0-ranking > .scroll tbody tr')].filter(r => r.offsetParent).length"
    assert view.run("document.querySelector('#w0-ranking tbody tr[data-strategy=\"2\"]').offsetParent === null")
    assert view.run(visible) == 3
    view.click("#only")
    assert lines(view) == ["0", "1", "2", "3"] and view.run(visible) == 4


def test_the_keyboard_reaches_it_all(view: Browser) -> None:
    view.run("document.querySelector(\"[data-toggle='1']\").focus()")
    view.press("Enter")
    view.run("document.querySelector('#only').focus()")
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
    view.see("#w1-ecdf")
    before = view.run("document.querySelector('#w1-ecdf .plot svg').textContent")
    assert "seconds of search" not in before
    view.click("#w0-convergence [data-view='seconds']")
    for chart in ("w0-convergence", "w1-ecdf"):
        view.see(f"#{chart}")
        assert "seconds of search" in view.run(f"document.querySelector('#{chart} .plot svg').textContent")
        assert (
            view.run(f"document.querySelector(\"#{chart} [data-view][aria-pressed='true']\").dataset.view") == "seconds"
        )


def test_values_are_read_with_the_mouse(view: Browser) -> None:
    view.see("#w0-convergence")
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
    view.run("document.querySelectorAll('details:not(#toc)').forEach(d => d.open = true)")
    view.see("#w0-convergence")
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


def test_charts_are_drawn_as_they_come_into_sight(view: Browser) -> None:
    drawn = "[...document.querySelectorAll('.plot')].map(plot => plot.childElementCount > 0)"
    view.size(500, 600)
    view.open(Path(unquote(view.run("location.pathname"))))
    assert not all(view.run(drawn)), "a page of hundreds of charts opens at once"
    places = view.run("[...document.querySelectorAll('.plot')].map(plot => plot.getBoundingClientRect().height)")
    assert min(places) >= 240, "the place of each is kept"
    view.run("window.dispatchEvent(new Event('beforeprint'))")
    assert all(view.run(drawn)), "all of them on paper"


def ticks(browser: Browser) -> list[float]:
    """The numbers of the y axis of the first convergence."""
    browser.see("#w0-convergence")
    texts = browser.run(
        "[...document.querySelectorAll('#w0-convergence .plot text[text-anchor=end]')].map(t => t.textContent)"
    )
    return [float(text) for text in texts]


@pytest.mark.parametrize("width", [500, 1400])
def test_regret_is_a_switch_away_from_gflops(view: Browser, width: int) -> None:
    view.size(width)
    view.see("#w0-convergence")
    path = "document.querySelector('#w0-convergence path.line').getAttribute('d')"
    throughput, linear = view.run(path), ticks(view)
    assert np.allclose(np.diff(linear), linear[1] - linear[0])
    view.click("#w0-convergence [data-scale='regret']")
    assert "regret, % over" in view.run("document.querySelector('#w0-convergence .plot svg').textContent")
    assert view.run(path) != throughput and len(lines(view)) == 4
    assert min(ratio := np.divide(ticks(view)[1:], ticks(view)[:-1])) > 1.5 and max(ratio) <= 10, "it is logarithmic"
    drawn = view.run("document.querySelector('#w0-convergence .plot').innerHTML")
    assert not re.search("NaN|Infinity|undefined", drawn)
    view.see("#w1-convergence")
    assert "regret" in view.run("document.querySelector('#w1-convergence .plot svg').textContent"), "for the whole page"
    view.click("#w0-convergence [data-scale='value']")
    assert view.run(path) == throughput


def test_the_scale_follows_the_lines_that_are_shown(view: Browser) -> None:
    view.size(1400)
    everything = ticks(view)
    for other in (0, 1, 3):
        view.click(f"[data-toggle='{other}']")
    view.click("#only")
    assert max(ticks(view)) < max(everything), "random alone is far from the best known"
    view.click("#w0-convergence [data-scale='regret']")
    assert lines(view) == ["2"] and min(ticks(view)) > 0.1


@pytest.mark.parametrize("width", [500, 1400])
def test_each_seed_is_drawn_on_demand(view: Browser, width: int) -> None:
    view.size(width)
    view.see("#w0-convergence")
    traces = "[...document.querySelectorAll('#w0-convergence path.trace')].map(p => p.getAttribute('d'))"
    assert view.run(traces) == []
    view.click("#w0-convergence [data-seeds]")
    assert [path.count("M") for path in view.run(traces)] == [3] * 4, "three seeds of each strategy"
    assert view.run("document.querySelectorAll('#w0-convergence path.band').length") == 0
    view.click("[data-toggle='3']")
    assert len(view.run(traces)) == 3
    before = view.run(traces)
    view.click("#w0-convergence [data-view='seconds']")
    view.click("#w0-convergence [data-scale='regret']")
    after = view.run(traces)
    assert len(after) == 3 and after != before and not any("NaN" in path or "Inf" in path for path in after)
    view.click("#w0-convergence [data-seeds]")
    assert view.run(traces) == []


def test_the_shared_random_start_is_shaded_and_labelled(view: Browser) -> None:
    view.see("#w0-convergence")
    assert view.run("document.querySelector('#w0-convergence .shade-name').textContent") == (
        f"shared random start: {SHARED} trials"
    )
    caption = view.run("document.querySelector('#w0-convergence figcaption').textContent")
    assert f"the first {SHARED} trials, which <b>xgb</b> and random share" in caption
    box = "(e => { const b = e.getBoundingClientRect(); return [b.left, b.right] })"
    left, right = view.run(f"{box}(document.querySelector('#w0-convergence .shade'))")
    assert right - left > 20
    view.click("#w0-convergence [data-view='seconds']")
    assert view.run("document.querySelector('#w0-convergence .shade') === null"), "seconds differ from run to run"


def place(browser: Browser, title: str) -> int:
    """The place of the column with this head in the first ranking, from 0."""
    heads = browser.run("[...document.querySelectorAll('#w0-ranking > .scroll thead th')].map(h => h.textContent)")
    return [" ".join(head.split()) for head in heads].index(title)


def column(browser: Browser, number: int) -> list[str]:
    found: list[str] = browser.run(
        "[...document.querySelectorAll('#w0-ranking > .scroll tbody tr')]"
        f".map(r => r.cells[{number}].firstChild.textContent.trim())"
    )
    return found


@pytest.mark.parametrize("width", [500, 1400])
def test_tables_are_sorted_with_the_mouse_and_the_keyboard(view: Browser, width: int) -> None:
    view.size(width)
    area, trials = place(view, "area"), place(view, "trials to 95 %")
    head = f"#w0-ranking > .scroll thead th:nth-child({area + 1})"
    state = f"document.querySelector('{head}').getAttribute('aria-sort')"
    given = column(view, area)
    assert view.run(state) == "none"
    view.run(f"document.querySelector('{head} button').scrollIntoView({{ inline: 'center', block: 'center' }})")
    view.click(f"{head} button")
    assert view.run(state) == "ascending" and column(view, area) == sorted(given, key=float) != given
    view.run(f"document.querySelector('{head} button').focus()")
    view.press("Enter")
    assert view.run(state) == "descending" and column(view, area) == sorted(given, key=float, reverse=True)
    view.press("Enter")
    assert view.run(state) == "none" and column(view, area) == given
    # Some never reached the target: after all that did, and a name is a text.
    view.run(f"document.querySelector('#w0-ranking > .scroll thead th:nth-child({trials + 1}) button').focus()")
    view.press("Enter")
    numbers = [float("inf") if text == "not reached" else float(text) for text in column(view, trials)]
    assert numbers == sorted(numbers) and view.run(state) == "none"
    tables = view.run("document.querySelectorAll('table.sortable').length")
    assert tables > 20 and view.run("document.querySelectorAll('.pairs button.sort').length") == 0


def test_how_the_runs_were_made_and_where_their_logs_are(view: Browser, page: Path) -> None:
    links = view.run("[...document.querySelectorAll('#w0 .logs a')].map(a => a.href)")
    assert len(links) == 12
    assert all(Path(unquote(link.removeprefix("file://"))).is_file() for link in links)
    assert "# The question." in view.run("document.querySelector('#made pre').textContent")
    assert view.run("document.querySelectorAll('#made tbody tr').length") == 4
    view.click("[data-toggle='2']")
    view.click("#only")
    assert view.run("[...document.querySelectorAll('#made tbody tr')].filter(r => r.offsetParent).length") == 3


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


@pytest.mark.parametrize("width", [500, 1400])
def test_the_contents_stay_in_view(view: Browser, width: int) -> None:
    view.size(width)
    view.see("#made")
    top = view.run("document.getElementById('toc').getBoundingClientRect().top")
    assert 0 <= top < 900
    assert view.run("document.getElementById('toc').open") == (width > 1248), "a list that opens on a small screen"
    if width < 1248:
        view.click("#toc summary")
    view.click("#toc a[href='#w1']")
    assert view.run("location.hash") == "#w1"
    assert -5 <= view.run("document.getElementById('w1').getBoundingClientRect().top") <= 200
    assert view.run("document.getElementById('toc').open") == (width > 1248), "it is out of the way afterwards"
    view.see("#w1-ecdf")
    assert view.run("document.querySelector('#toc a[aria-current]').hash") == "#w1"


def test_another_reference_is_chosen_for_the_differences(view: Browser) -> None:
    assert view.run("document.getElementById('reference').selectedOptions[0].textContent") == "random"
    shown = "[...document.querySelectorAll('#differences tbody')].filter(b => b.offsetParent).map(b => b.innerText)"
    (before,) = view.run(shown)
    view.run("document.getElementById('reference').value = '2'")
    view.run("document.getElementById('reference').dispatchEvent(new Event('change'))")
    (after,) = view.run(shown)
    assert "the reference" in after and before != after


LARGE = INLINE + 14
"""The number of workloads on a page whose sections are packed, and whose end is far from its start."""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with so many workloads that they are packed, and with a registered contrast."""
    directory = tmp_path_factory.mktemp("large")
    for workload in range(LARGE):
        for place, name in enumerate(("random", "mine", *(f"other-{i}" for i in range(10)))):
            for seed in range(3):
                found = np.random.default_rng([seed, workload]).exponential(2 + place, 30).tolist()
                contrasts = (("mine", "random"),)
                write(directory, name, seed, found, workload=f"gemm:8x8x{8 + workload}", contrasts=contrasts)
    report(directory)
    return directory / "report" / "report.html"


PACKED = "[...document.querySelectorAll('section.packed')].map(s => s.id)"


def until(browser: Browser, condition: str) -> None:
    browser.run(f"new Promise(done => {{ const ask = () => {condition} ? done(0) : setTimeout(ask, 20); ask(); }})")


def test_sections_are_unpacked_as_they_come_into_sight(browser: Browser, large: Path) -> None:
    browser.size(1400)
    browser.open(large)
    assert len(browser.run(PACKED)) == LARGE, "none is in sight of a page that has just opened"
    browser.click(".card[href='#w3']")
    until(browser, "document.getElementById('w3-convergence')")
    assert 0 <= browser.run("document.getElementById('w3').getBoundingClientRect().top") < 100
    assert lines(browser, "w3-convergence") and f"w{LARGE - 1}" in browser.run(PACKED)
    browser.open("about:blank")
    browser.open(f"{large.resolve().as_uri()}#w5-ranking")
    until(browser, "document.getElementById('w5-ranking')")
    browser.settle()
    assert 0 <= browser.run("document.getElementById('w5-ranking').getBoundingClientRect().top") < 200
    until(browser, "[...document.querySelectorAll('section.packed')].every(s => s.content)")  # decompressed
    browser.run("window.dispatchEvent(new Event('beforeprint'))")
    assert browser.run(PACKED) == [] and browser.run("[...document.querySelectorAll('.plot')].every(p => p.firstChild)")
    assert browser.messages == []


def test_of_many_strategies_only_six_are_highlighted(browser: Browser, large: Path) -> None:
    browser.size(1400)
    browser.open(large)
    pressed = browser.run("[...document.querySelectorAll('[data-toggle][aria-pressed=true]')].map(b => b.title)")
    assert pressed[:2] == ["mine", "random"] and len(pressed) == 6
    assert browser.run("document.querySelectorAll('#ranks tr.own').length") == 1
    assert browser.run("document.querySelectorAll('.card path.own').length") == LARGE
    browser.run("location.hash = '#w0'")
    until(browser, "document.getElementById('w0-convergence')")
    assert len(lines(browser)) == 12 and len(grey(browser)) == 6
    own = browser.run("document.querySelector('#w0-convergence path.line.own title').textContent")
    assert own == "mine" and len(browser.run("[...document.querySelectorAll('#w0-ranking > .scroll tr.own')]")) == 1


def test_a_site_of_results_opens_from_a_web_server(browser: Browser, page: Path, tmp_path: Path) -> None:
    publish(tmp_path / "site", [study_result(page.parents[1])])
    handler = partial(SimpleHTTPRequestHandler, directory=tmp_path / "site")
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        browser.requests.clear()
        browser.open(f"http://127.0.0.1:{server.server_port}/")
        for link in ("article h2 a", "a.open"):
            browser.open(browser.run(f"document.querySelector('{link}').href"))
        until(browser, "document.getElementById('w0-convergence')")
        assert lines(browser) == ["0", "1", "2", "3"]
        assert all(url.startswith(f"http://127.0.0.1:{server.server_port}/") for url in browser.requests)
        server.shutdown()
    browser.messages[:] = [said for said in browser.messages if "404" not in said]  # it asks for an icon
    assert browser.messages == []


def test_paper(view: Browser) -> None:
    view.media(scheme="dark", kind="print")
    assert view.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert view.run("getComputedStyle(document.querySelector('#side')).position") == "static"
    view.run("window.dispatchEvent(new Event('beforeprint'))")
    widths = view.run("[...document.querySelectorAll('.plot svg')].map(s => s.viewBox.baseVal.width)")
    assert set(widths) == {680}, "so that letters are as large on paper, whatever the width of the window"
    view.run("window.dispatchEvent(new Event('afterprint'))")
    data = view.pdf()
    assert data.startswith(b"%PDF") and len(data) > 30_000
