"""Specifications of charts, which Altair validates, and which are drawn without warnings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from vl_convert import vegalite_to_svg, vegalite_to_vega

from searchlab.analysis import read_runs, summarize
from searchlab.analysis.charts.figures import make_charts
from searchlab.analysis.charts.vegalite import COLOURS, Chart, add_title, bundle_javascript, draw, make_altair_chart
from tests.support.analysis.logs import WORKLOAD, write

NAMES = ["mine", "random", "a.b[0]", 'it\'s "<b>\\x</b>"']
START = [f"start {trial}" for trial in range(2)]


@pytest.fixture(scope="module")
def charts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Chart]]:
    """The charts of strategies with names that are not names of fields, on two workloads."""
    directory = tmp_path_factory.mktemp("logs")
    for workload in (WORKLOAD, "gemm:100x100x500"):
        for index, name in enumerate(NAMES):
            for seed in range(4):
                throughputs = ["crash", 1.0, 2.0 + index, 2.0, 6.0 + seed - index]
                write(
                    directory,
                    f"p{index}" if index != 1 else "random",
                    seed,
                    throughputs,
                    workload=workload,
                    label=name,
                    shared=START if index < 2 else (),
                    contrasts=(("mine", "random"),),
                )
    runs = read_runs(directory)
    summary = summarize(runs)
    return make_charts(summary, runs)


def test_every_chart_is_valid_and_drawn(charts: dict[str, dict[str, Chart]]) -> None:
    lines = {"convergence", "budget", "trials"}
    assert set(charts[WORKLOAD]) == lines | {"importances", "values", "pairs"}
    assert set(charts[""]) == {"budget", "trials", "differences", "workloads"}
    for chart in [*charts[WORKLOAD].values(), *charts[""].values()]:
        for view, spec in chart.views.items():
            complete = add_title(spec, WORKLOAD, chart, view)
            svg = draw(complete, "svg").decode()
            assert chart.title.lower() in svg and not {"NaN", "undefined", "Infinity"} & set(svg.split())
            if "layer" in spec:
                subtitle = " ".join(make_altair_chart(complete).to_dict()["title"]["subtitle"])
                assert chart.description.startswith(subtitle) and subtitle


def encodings(spec: dict[str, Any], channel: str) -> list[dict[str, Any]]:
    return [layer["encoding"][channel] for layer in spec["layer"] if channel in layer.get("encoding", {})]


def test_lines_have_colours_levels_and_a_shared_start(charts: dict[str, dict[str, Chart]]) -> None:
    views = charts[WORKLOAD]["convergence"].views
    trials = views["trials"]
    (colours,) = {tuple(colour["scale"]["range"]) for colour in encodings(trials, "color")}
    assert colours[0] == COLOURS[0] and len({*colours}) == 4 and {*colours} <= {*COLOURS}
    shade, levels, *_ = trials["layer"]
    assert shade["layer"][1]["mark"]["text"] == "random start shared by 2 of 4 strategies: 2 trials"
    texts = [layer["mark"]["text"] for layer in levels["layer"] if "text" in layer["mark"]]
    assert texts == ["best known 9.0", "95 % of the best known"]
    (line,) = (layer for layer in trials["layer"] if "params" in layer)
    assert line["encoding"]["strokeWidth"]["condition"]["test"]["equal"] == "mine"
    assert {row["seed"] for row in views["each seed"]["data"]["values"]} == {0, 1, 2, 3}


def test_only_significant_differences_have_full_dots(charts: dict[str, dict[str, Chart]]) -> None:
    for key in ("differences", "workloads"):
        (spec,) = charts[""][key].views.values()
        for pair in spec["data"]["values"]:
            assert pair["significant"] == (float((pair["p"] or "1").split()[-1]) <= 0.05), pair
        assert encodings(spec, "fill")[0]["condition"]["test"] == "datum.significant"


def test_steps_have_rows_only_where_they_change(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path, name, 0, [1.0] * 5 + [2.0] * 20)
    runs = read_runs(tmp_path)
    summary = summarize(runs)
    views = make_charts(summary, runs)[WORKLOAD]["convergence"].views
    rows = [row for row in views["trials"]["data"]["values"] if row["strategy"] == "a"]
    assert [(row["x"], row["y"]) for row in rows] == [(1, 1), (6, 2), (25, 2)]


def test_charts_are_drawn_without_a_network(charts: dict[str, dict[str, Chart]]) -> None:
    chart = charts[""]["budget"]
    assert "http" not in str(vegalite_to_vega(chart.views["area"])).replace("https://vega.github.io/schema", "")
    with pytest.raises(ValueError, match="access denied|allowed|External"):
        vegalite_to_svg({"data": {"url": "https://example.org/data.csv"}, "mark": "point"}, allowed_base_urls=[])


def test_the_script_is_bundled_once_for_all_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is bundled again where the user's cache cannot be read or written."""
    read = bundle_javascript.__wrapped__
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    code = read()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert "vegaEmbed" in code and read() == code
    (bundle,) = (tmp_path / "searchlab").iterdir()
    assert bundle.read_text("utf-8") == code
    bundle.write_text("from the cache")
    assert read() == "from the cache"
    bundle.write_bytes(b"\xff")
    assert read() == code
