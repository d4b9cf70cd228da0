"""The page in a real browser: its charts, its controls, and its layout on a phone, in dark mode and on paper."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import unquote

import numpy as np
import pytest

from searchlab.analysis import report
from searchlab.analysis.publish import make_publication, publish
from searchlab.log.plan import TOML_COPY_NAME
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
        for index, name in enumerate(NAMES):
            for seed in range(3):
                throughputs = np.random.default_rng(seed).exponential(1 + index, 40).tolist()
                policy = "random" if name == "random" else f"policy-{index}"
                start = [f"start {seed} {trial}" for trial in range(SHARED if index > 1 else 0)]
                path = write(directory, policy, seed, ["build_error", *throughputs], workload=workload, shared=start)
                # Labels such as these cannot be file names.
                path.write_text(path.read_text().replace('"label":""', f'"label":"{name}"', 1))
    (directory / TOML_COPY_NAME).write_text("# The question.\npolicies = ['random']\n")
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
    """The page, opened again on a desktop. At the end, its console and its list of requests must be empty."""
    browser.media()
    browser.size(1280)
    browser.requests.clear()
    browser.open(page)
    yield browser
    assert browser.messages == []
    assert set(browser.requests) == {page.resolve().as_uri()}


LINES = ".mark-line.role-mark path"
DRAWN_CHARTS = "[...document.querySelectorAll('[data-chart]')].filter(f => f.querySelector('.plot svg')).map(f => f.id)"


def wait_until(browser: Browser, condition: str) -> None:
    browser.run(f"new Promise(done => {{ const ask = () => {condition} ? done(0) : setTimeout(ask, 20); ask(); }})")


def see(browser: Browser, chart: str = "w0-convergence") -> None:
    """Scroll to a chart, and wait until it is drawn as the page's legend and selects say."""
    browser.see(f"#{chart}")
    figure = f"document.getElementById('{chart}')"
    wait_until(browser, f"near.has({figure}) && {figure}.drawn === state()")


def lines(browser: Browser, chart: str = "w0-convergence") -> dict[str, float]:
    """The opacity of each strategy's line in a chart."""
    see(browser, chart)
    marks = browser.run(
        f"[...document.querySelectorAll('#{chart} {LINES}')]"
        ".map(path => [path.getAttribute('aria-label'), path.getAttribute('opacity')])"
    )
    return {label.partition("strategy: ")[2].partition("; ")[0]: float(opacity or 1) for label, opacity in marks}


def test_every_chart_is_drawn(view: Browser) -> None:
    view.run("document.querySelectorAll('details').forEach(details => details.open = true)")
    charts = view.run("[...document.querySelectorAll('figure[data-chart]')].map(f => f.id)")
    assert {"all-trials", "all-budget", "all-differences", "w0-convergence", "w1-convergence"} <= set(charts)
    for chart in charts:
        see(view, chart)
        svg = view.run(f"document.querySelector('#{chart} .plot svg').outerHTML")
        assert not re.search("NaN|Infinity|undefined", svg), chart
        names = ["gemm:100x100x50", "conv2d:1x14x14"] if chart == "all-workloads" else NAMES
        names = [name for name in NAMES if name != "random"] if chart == "all-differences" else names
        names = ["tile", "of"] if chart.endswith("importances") else names
        names = ["GFLOPS"] if chart.endswith(("values", "pairs")) else names
        assert all(name.replace("<", "&lt;").replace(">", "&gt;")[:9] in svg for name in names), chart
    assert set(lines(view).values()) == {1}


def test_a_strategy_is_faded_everywhere_and_highlighted_again(view: Browser) -> None:
    assert not view.run("[...document.querySelectorAll('b')].some(b => b.textContent === 'xgb')")
    for toggle in ("[data-toggle='2']", "#w0-ranking tr[data-strategy='1'] th .name"):
        view.click(toggle)
    assert view.run("document.querySelector(\"[data-toggle='2']\").getAttribute('aria-pressed')") == "false"
    for chart in ("w0-convergence", "w1-convergence", "all-budget"):
        faded = {name: opacity for name, opacity in lines(view, chart).items() if opacity < 1}
        assert set(faded) == {NAMES[0], "guided"} and max(faded.values()) < 0.3
    view.click("[data-toggle='2']")
    assert lines(view)["guided"] == 1


def test_the_legend_of_a_chart_fades_a_strategy_everywhere(view: Browser) -> None:
    see(view)
    labels = "[...document.querySelectorAll('#w0-convergence .role-legend-label text')]"
    view.run(f"{labels}.find(text => text.textContent === 'random').setAttribute('id', 'entry')")
    view.click("#entry")
    wait_until(view, "!highlighted.has('random')")
    assert view.run("document.querySelector(\"[data-toggle='3']\").getAttribute('aria-pressed')") == "false"
    for chart in ("w0-convergence", "w1-convergence"):
        assert lines(view, chart)["random"] < 0.3 and lines(view, chart)["guided"] == 1


def test_the_faded_strategies_are_hidden_and_come_back(view: Browser) -> None:
    view.click("[data-toggle='2']")
    view.click("#only")
    for chart in ("w0-convergence", "w1-convergence", "all-budget"):
        assert len(lines(view, chart)) == 3 and "guided" not in lines(view, chart)
    visible = "[...document.querySelectorAll('#w0-ranking > .scroll tbody tr')].filter(r => r.offsetParent).length"
    assert view.run("document.querySelector('#w0-ranking tbody tr[data-strategy=\"2\"]').offsetParent === null")
    assert view.run(visible) == 3
    view.run("document.querySelector('#only').focus()")
    view.press("Enter")
    assert len(lines(view)) == 4 and view.run(visible) == 4


def axis(browser: Browser, chart: str) -> str:
    see(browser, chart)
    text: str = browser.run(f"document.querySelector('#{chart} .plot svg').textContent")
    return text


def test_a_view_is_chosen_for_the_whole_page(view: Browser) -> None:
    assert "seconds of search" not in axis(view, "w1-convergence")
    view.choose("#w0-convergence select", "seconds")
    for chart in ("w0-convergence", "w1-convergence"):
        assert "seconds of search" in axis(view, chart)
        assert view.run(f"document.querySelector('#{chart} select').value") == "seconds"
    view.choose("#w0-convergence select", "each seed")
    see(view, "w0-convergence")
    assert view.run(f"document.querySelectorAll('#w0-convergence {LINES}').length") == 3 * 4
    view.choose("#w0-convergence select", "trials")
    assert "best GFLOPS so far" in axis(view, "w1-convergence")


def test_highlighted_values_are_shown_where_the_mouse_is(view: Browser) -> None:
    view.click("[data-toggle='1']")
    see(view)
    view.hover("#w0-convergence .plot svg")
    wait_until(view, "document.querySelector('#vg-tooltip-element.visible')")
    rows = dict(
        view.run(
            "[...document.querySelectorAll('#vg-tooltip-element tr')].map(r => [...r.cells].map(c => c.innerText))"
        )
    )
    assert next(iter(rows)) == "trials" and len(rows) == 4
    assert all(re.fullmatch(r"[\d.]+", value) for value in rows.values())
    values = [float(value) for value in list(rows.values())[1:]]
    assert values == sorted(values, reverse=True)


def test_a_chart_is_saved(view: Browser, tmp_path: Path) -> None:
    view.send("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    see(view)
    for kind, start in (("svg", b"<svg"), ("png", b"\x89PNG")):
        view.click(f"#w0-convergence .vega-actions a[download$='{kind}']")
        file, deadline = tmp_path / f"w0-convergence.{kind}", time.monotonic() + 30
        while not (file.exists() and file.read_bytes().startswith(start)):
            assert time.monotonic() < deadline, list(tmp_path.iterdir())
            time.sleep(0.05)


@pytest.mark.parametrize("width", WIDTHS)
def test_no_width_scrolls_sideways(view: Browser, width: int) -> None:
    view.size(width, 800, mobile=width < 500)
    view.run("document.querySelectorAll('details:not(#toc)').forEach(d => d.open = true)")
    see(view)
    view.hover("#w0-convergence .plot svg")
    assert view.run("[document.documentElement.scrollWidth, document.documentElement.clientWidth]") == [width, width]
    wide = view.run(
        "[...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll, #legend, pre, svg, .sr, .skip')"
        " && e.getBoundingClientRect().width && e.getBoundingClientRect().right > innerWidth + 0.5)"
        ".map(e => e.outerHTML)"
    )
    assert wide == []


def test_charts_are_drawn_as_they_come_into_sight(view: Browser) -> None:
    view.size(500, 600)
    view.open(Path(unquote(view.run("location.pathname"))))
    charts = set(view.run("[...document.querySelectorAll('[data-chart]')].map(f => f.id)"))
    assert set(view.run(DRAWN_CHARTS)) < charts, "a page of hundreds of charts opens at once"
    heights = view.run(
        "[...document.querySelectorAll('figure .plot')].map(plot => plot.getBoundingClientRect().height)"
    )
    assert min(heights) >= 100, "the place of each is kept"


def test_charts_follow_the_width_and_the_colour_scheme(view: Browser) -> None:
    widths, colours = [], []
    for width, scheme in ((1400, "light"), (500, "dark")):
        view.size(width)
        view.media(scheme=scheme)
        see(view)
        widths.append(view.run("document.querySelector('#w0-convergence .plot svg').clientWidth"))
        colours.append(view.run(f"document.querySelector('#w0-convergence {LINES}').getAttribute('stroke')"))
    assert widths[0] > 800 and widths[1] < 500 and colours[0] != colours[1]


def column_index(browser: Browser, title: str) -> int:
    """The index of the column with this head in the first ranking."""
    heads = browser.run("[...document.querySelectorAll('#w0-ranking > .scroll thead th')].map(h => h.textContent)")
    return [" ".join(head.split()) for head in heads].index(title)


def column_texts(browser: Browser, number: int) -> list[str]:
    texts: list[str] = browser.run(
        "[...document.querySelectorAll('#w0-ranking > .scroll tbody tr')]"
        f".map(r => r.cells[{number}].firstChild.textContent.trim())"
    )
    return texts


@pytest.mark.parametrize("width", [500, 1400])
def test_tables_are_sorted_with_the_mouse_and_the_keyboard(view: Browser, width: int) -> None:
    view.size(width)
    see(view)
    area, trials = column_index(view, "mean area"), column_index(view, "trials to 95 %")
    head = f"#w0-ranking > .scroll thead th:nth-child({area + 1})"
    state = f"document.querySelector('{head}').getAttribute('aria-sort')"
    original = column_texts(view, area)
    assert view.run(state) == "none"
    view.run(f"document.querySelector('{head} button').scrollIntoView({{ inline: 'center', block: 'center' }})")
    view.click(f"{head} button")
    assert (
        view.run(state) == "descending"
        and column_texts(view, area) == sorted(original, key=float, reverse=True)
        and area == 1
    )
    view.run(f"document.querySelector('{head} button').focus()")
    view.press("Enter")
    assert view.run(state) == "ascending" and column_texts(view, area) == sorted(original, key=float)
    view.press("Enter")
    assert view.run(state) == "none" and column_texts(view, area) == original
    # Strategies that never reached the target come last.
    view.run(f"document.querySelector('#w0-ranking > .scroll thead th:nth-child({trials + 1}) button').focus()")
    view.press("Enter")
    numbers = [float("inf") if text == "not reached" else float(text) for text in column_texts(view, trials)]
    assert numbers == sorted(numbers) and view.run(state) == "none"
    assert view.run("document.querySelectorAll('table.sortable').length") == 6


def test_the_page_shows_the_study_file_and_every_strategy(view: Browser) -> None:
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
  for (const name of [...Array(9).keys()].map(i => '--c' + i)) found[name] = ratio(name, '--card');
  for (const back of ['--card', '--page']) {
    for (const name of ['--ink', '--soft', '--accent']) found[name + back] = ratio(name, back);
  }
  return found;
})()"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_in_the_light_and_in_the_dark(view: Browser, scheme: str) -> None:
    view.media(scheme=scheme)
    red, green, blue = view.run("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    assert (max(red, green, blue) < 40) if scheme == "dark" else (min(red, green, blue) > 230)
    for name, ratio in view.run(CONTRAST).items():  # WCAG 2.2: 1.4.11 for graphics, 1.4.3 for text
        assert ratio >= (3 if name in [f"--c{i}" for i in range(9)] else 4.5), name


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


def test_a_phone_shows_p_values_and_a_short_ranking(view: Browser) -> None:
    view.size(500)
    assert re.search(r"p [=<] 0\.|p = 1", axis(view, "all-differences"))
    for table in ("ranks", "w0-ranking"):
        heights = f"(s => [s.scrollHeight, s.clientHeight])(document.querySelector('#{table} .scroll'))"
        content, visible = view.run(heights)
        assert content == visible, "it has no scrollbar of its own"


def test_names_of_workloads_leave_room_on_a_phone(browser: Browser, tmp_path: Path) -> None:
    names = [f"conv2d:1x14x14x256x256x3x{kernel}:s2:p1:bias:relu" for kernel in (3, 5)]
    for workload in names:
        for name, gain in (("mine", 3.0), ("random", 1.0)):
            for seed in range(3):
                write(tmp_path, name, seed, [1.0, gain + seed], workload=workload)
    report(tmp_path)
    browser.size(500)
    browser.open(tmp_path / "report" / "report.html")
    see(browser, "all-workloads")
    svg = "document.querySelector('#all-workloads .plot svg')"
    texts = f"[...{svg}.querySelectorAll('.role-axis-label text')].filter(t => t.textContent.includes('conv2d'))"
    assert sorted(browser.run(f"{texts}.map(t => t.textContent)")) == names, "none is cut"
    assert browser.run(f"Math.max(...{texts}.map(t => t.getBoundingClientRect().width)) < 0.45 * {svg}.clientWidth")


def test_a_legend_has_only_the_strategies_in_its_chart(browser: Browser, tmp_path: Path) -> None:
    for name in ("random", "xgb"):
        path = write(tmp_path, name, 0, [1.0, 2.0, 3.0, 4.0])
        quality = '"model":{"trials":4,"k":1,"pairwise_accuracy":0.7},"config"' if name == "xgb" else '"config"'
        path.write_text(path.read_text().replace('"config"', quality))
    report(tmp_path)
    browser.size(1280)
    browser.open(tmp_path / "report" / "report.html")
    for chart, names in (("w0-models", ["xgb"]), ("w0-convergence", ["random", "xgb"])):
        see(browser, chart)
        labels = f"[...document.querySelectorAll('#{chart} .role-legend-label text')].map(t => t.textContent)"
        assert sorted(browser.run(labels)) == names


def test_the_name_of_the_best_known_program_is_visible(browser: Browser, tmp_path: Path) -> None:
    write(tmp_path, "random", 0, [5.0, 20.0, 30.0, 44.9])
    report(tmp_path)
    browser.size(1280)
    browser.open(tmp_path / "report" / "report.html")
    see(browser)
    svg = "document.querySelector('#w0-convergence svg')"
    name = f"[...{svg}.querySelectorAll('text')].find(text => text.textContent.startsWith('best known'))"
    plot = f"{svg}.querySelector('.role-frame .background')"  # marks outside it are cut
    assert browser.run(f"{name}.getBoundingClientRect().top >= {plot}.getBoundingClientRect().top")


def test_another_reference_is_chosen_for_the_differences(view: Browser) -> None:
    see(view, "all-differences")
    select = "#all-differences .vega-bind select"
    assert view.run(f"document.querySelector('{select}').value") == "random"
    before = axis(view, "all-differences")
    view.choose(select, "guided")
    wait_until(view, f"document.querySelector('#all-differences svg').textContent !== {json.dumps(before)}")
    assert "guided" not in view.run("document.querySelector('#all-differences .role-axis').parentElement.textContent")
    for chart in ("all-workloads", "all-budget", "w1-budget"):  # all charts follow
        see(view, chart)
        assert view.run(f"document.querySelector('#{chart} .vega-bind select[name=reference]').value") == "guided"


def test_a_strategy_is_not_compared_with_itself(view: Browser) -> None:
    see(view, "all-workloads")
    strategy, reference = (f"#all-workloads .vega-bind select[name={name}]" for name in ("strategy", "reference"))
    mine, reference_value = (view.run(f"document.querySelector('{select}').value") for select in (strategy, reference))
    assert view.run(f"document.querySelector(\"{reference} option[value='{mine}']\").disabled")
    see(view, "all-differences")
    view.choose("#all-differences .vega-bind select", mine)
    see(view, "all-workloads")
    wait_until(view, f"document.querySelector('{reference}').value !== '{mine}'")
    assert view.run(f"document.querySelector('{strategy}').value") == mine != reference_value
    assert view.run("document.querySelectorAll('#all-workloads .mark-symbol.role-mark path').length") > 0


def test_a_dot_leads_to_the_charts_of_its_workload(view: Browser) -> None:
    see(view, "all-workloads")
    dot = "#all-workloads .mark-symbol.role-mark path"
    described = view.run(f"document.querySelector('{dot}').getAttribute('aria-label')")
    view.click(dot)
    wait_until(view, "location.hash !== ''")
    workload = view.run("document.querySelector(`${location.hash} h2`).firstChild.textContent.trim()")
    assert f"workload: {workload};" in described + ";"


LARGE = 11
"""The number of workloads on a page whose end is far from its start."""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with many workloads and a registered contrast."""
    directory = tmp_path_factory.mktemp("large")
    for workload in range(LARGE):
        for index, name in enumerate(("random", "mine", *(f"other-{i}" for i in range(10)))):
            for seed in range(3):
                throughputs = np.random.default_rng([seed, workload]).exponential(2 + index, 30).tolist()
                contrasts = (("mine", "random"),)
                write(directory, name, seed, throughputs, workload=f"gemm:8x8x{8 + workload}", contrasts=contrasts)
    report(directory)
    return directory / "report" / "report.html"


def test_links_open_the_workloads_of_a_large_page(browser: Browser, large: Path) -> None:
    browser.size(1400)
    browser.open(large)
    assert len(browser.run(DRAWN_CHARTS)) < LARGE, "charts are drawn as they come into view"
    opened = "[...document.querySelectorAll('details.workload[open]')].map(d => d.id)"
    assert browser.run(opened) == [] and browser.run("document.body.scrollHeight") < 5000
    browser.click("#toc a[href='#w3']")
    assert browser.run(opened) == ["w3"]
    wait_until(browser, "document.querySelector('#w3-convergence svg')")
    wait_until(browser, "(top => 0 <= top && top < 100)(document.getElementById('w3').getBoundingClientRect().top)")
    assert lines(browser, "w3-convergence")
    browser.open("about:blank")
    browser.open(f"{large.resolve().as_uri()}#w5-ranking")
    wait_until(
        browser, "(top => 0 <= top && top < 200)(document.getElementById('w5-ranking').getBoundingClientRect().top)"
    )
    browser.run("document.querySelector('#knobs a').click()")
    wait_until(browser, "document.querySelector('#w0-importances svg')")
    wait_until(browser, f"document.getElementById('w{LARGE - 1}-convergence').id in specifications")  # decompressed
    browser.run("window.dispatchEvent(new Event('beforeprint'))")
    wait_until(browser, "[...document.querySelectorAll('[data-chart]')].every(f => f.querySelector('svg'))")
    assert browser.messages == []


def test_at_most_six_strategies_are_highlighted(browser: Browser, large: Path) -> None:
    browser.size(1400)
    browser.open(large)
    pressed = browser.run("[...document.querySelectorAll('[data-toggle][aria-pressed=true]')].map(b => b.title)")
    assert pressed[:2] == ["mine", "random"] and len(pressed) == 6
    assert browser.run("document.querySelectorAll('#ranks tr.own').length") == 1
    browser.run("location.hash = '#w0'")
    wait_until(browser, "document.getElementById('w0-convergence')")
    assert len(lines(browser)) == 12 and sum(opacity < 1 for opacity in lines(browser).values()) == 6
    wide = browser.run(
        f"[...document.querySelectorAll('#w0-convergence {LINES}')]"
        ".filter(p => p.getAttribute('stroke-width') === '3.2').map(p => p.getAttribute('aria-label'))"
    )
    assert len(wide) == 1 and "strategy: mine" in wide[0]
    assert len(browser.run("[...document.querySelectorAll('#w0-ranking > .scroll tr.own')]")) == 1


def test_the_list_of_many_strategies_is_a_line_on_a_phone(browser: Browser, large: Path) -> None:
    browser.size(500)
    browser.open(large)
    assert browser.run("document.getElementById('legend').clientHeight") < 60


def test_a_site_of_results_opens_from_a_web_server(browser: Browser, page: Path, tmp_path: Path) -> None:
    publish(tmp_path / "site", [make_publication(page.parents[1])])
    handler = partial(SimpleHTTPRequestHandler, directory=tmp_path / "site")
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        browser.requests.clear()
        browser.open(f"http://127.0.0.1:{server.server_port}/")
        for link in ("article h2 a", "a.open"):
            browser.open(browser.run(f"document.querySelector('{link}').href"))
        wait_until(browser, "document.getElementById('w0-convergence')")
        assert set(lines(browser)) == set(NAMES)
        assert all(url.startswith(f"http://127.0.0.1:{server.server_port}/") for url in browser.requests)
        server.shutdown()
    browser.messages[:] = [message for message in browser.messages if "404" not in message]  # it asks for an icon
    assert browser.messages == []


def test_the_page_can_be_printed(view: Browser) -> None:
    view.media(scheme="dark", kind="print")
    assert view.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert view.run("getComputedStyle(document.querySelector('#side')).position") == "static"
    view.run("window.dispatchEvent(new Event('beforeprint'))")
    wait_until(view, "[...document.querySelectorAll('figure[data-chart]')].every(f => f.drawn === state())")
    widths = view.run("[...document.querySelectorAll('figure .plot svg')].map(s => s.viewBox.baseVal.width)")
    assert {440, 660} <= set(widths) and max(widths) < 700, "so that letters are as large, whatever the window's width"
    view.run("window.dispatchEvent(new Event('afterprint'))")
    data = view.pdf()
    assert data.startswith(b"%PDF") and len(data) > 30_000
