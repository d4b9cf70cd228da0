"""Comparing from Python: the same numbers and charts as the report's, and one sentence for each mistake."""

from __future__ import annotations

import csv
import gzip
import io
import math
import re
import warnings
from pathlib import Path
from typing import Any, get_type_hints

import altair as alt
import pandas as pd
import pytest

import searchlab
from searchlab import Comparison, SearchlabError, compare, load_log
from searchlab.log.result import Result, Results
from searchlab.plugins import Plugin
from tests.support.analysis.logs import WORKLOAD, write

SECOND_WORKLOAD = "gemm:100x100x500"


def study(directory: Path, *workloads: str, seeds: int = 3) -> Path:
    """Two strategies on each workload, of which ``fast`` is the better; ``random`` fails once in each run."""
    for workload in workloads or (WORKLOAD,):
        for seed in range(seeds):
            write(directory, "random", seed, [1, 2, "crash", 2 + seed], workload=workload)
            write(directory, "fast", seed, [5, 8, 9, 10 - seed], workload=workload)
    return directory


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return study(tmp_path_factory.mktemp("logs"), WORKLOAD, SECOND_WORKLOAD)


@pytest.fixture(scope="module")
def saved(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compare(directory).save(tmp_path_factory.mktemp("report")).parent


@pytest.fixture(scope="module")
def comparison(directory: Path) -> Comparison:
    return compare(directory)


def results(directory: Path, name: str = "") -> Results:
    return Results(load_log(path) for path in sorted(directory.glob(f"*{name}-[0-9].jsonl")))


def test_a_directory_its_logs_and_its_results_are_one_comparison(directory: Path, comparison: Comparison) -> None:
    logs = sorted(directory.glob("*.jsonl"))
    for sources in ((results(directory),), (logs,), (list(map(str, logs)),), logs, (results(directory)[0], directory)):
        same = compare(*sources)
        assert same.verdict == comparison.verdict
        pd.testing.assert_frame_equal(same.strategies_frame(), comparison.strategies_frame())
    assert repr(comparison) == "<Comparison of 2 strategies on 2 workloads, 12 runs>"


FRAMES = {
    "strategies": "summary",
    "runs": "runs",
    "overall": "overall",
    "contrasts": "contrasts",
    "programs": "programs",
}


@pytest.mark.parametrize("name", FRAMES)
def test_frames_are_the_files_of_the_report(comparison: Comparison, saved: Path, name: str) -> None:
    frame = getattr(comparison, f"{name}_frame")()
    (file,) = saved.glob(f"{FRAMES[name]}.csv*")
    data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    rows = list(csv.reader(io.StringIO(data.decode(), newline="")))
    assert list(frame.columns) == rows[0] and len(frame) == len(rows) - 1 > 0
    for values, line in zip(frame.itertuples(index=False), rows[1:], strict=True):
        for value, text in zip(values, line, strict=True):
            if isinstance(value, float):
                assert (math.isnan(value) and text == "") or value == pytest.approx(float(text))
            else:
                assert str(value) == text


def test_frames_are_joined_by_workload_strategy_and_seed(tmp_path: Path) -> None:
    for space in ("one", "two"):
        for seed in range(2):
            write(tmp_path, "a", seed, [1, 2, 3], space=Plugin(space), measure={"name": "v1/table"})
    comparison = compare(tmp_path)
    key = ["workload", "strategy", "seed"]
    runs = comparison.runs_frame()
    strategies = ["one / a", "one / a", "two / a", "two / a"]
    assert runs["workload"].unique().tolist() == ["table"] and runs["strategy"].tolist() == strategies
    frame = comparison.trials_frame()
    assert len(frame) == len(frame.merge(runs, on=key)) == 12
    assert len(comparison.programs_frame().merge(runs, on=key)) == 4


def test_columns_without_any_value_are_numeric(tmp_path: Path) -> None:
    """One workload has no overall rows, and no score."""
    comparison = compare(study(tmp_path, seeds=1))
    assert comparison.overall_frame().empty
    frame = comparison.strategies_frame().set_index("strategy")
    assert frame["trials_to_target_median"].dtype == float and math.isnan(
        frame.loc["random", "trials_to_target_median"]
    )


CHARTS = {
    "convergence": (WORKLOAD, {}, "best GFLOPS so far"),
    "trials": (SECOND_WORKLOAD, {"share": "slow"}, "trials slower than half of the space, %"),
}


@pytest.mark.parametrize("name", CHARTS)
def test_charts_are_those_of_the_report(comparison: Comparison, name: str) -> None:
    workload, options, quantity = CHARTS[name]
    spec = getattr(comparison, f"plot_{name}")(*[workload] * bool(workload), **options).to_dict()
    title = spec["title"]["text"]
    assert title.startswith(workload or "Across all workloads") and ("slow" in title) == bool(options)
    assert quantity in {layer.get("encoding", {}).get("y", {}).get("title") for layer in spec["layer"]}
    (data,) = (rows for key, rows in spec["datasets"].items() if key == spec["data"]["name"])
    assert {row["strategy"] for row in data} == {"fast", "random"}


def test_another_reference_is_selected_at_first(comparison: Comparison) -> None:
    (default,) = comparison.plot_differences().to_dict()["params"]
    (fast,) = comparison.plot_differences("fast").to_dict()["params"]
    assert (default["value"], fast["value"], fast["bind"]["options"]) == ("random", "fast", ["random", "fast"])
    strategy, reference = comparison.plot_workloads("random", "fast").to_dict()["params"]
    assert (strategy["value"], reference["value"]) == ("random", "fast")
    budget, *_ = comparison.plot_budget(reference="fast").to_dict()["params"]
    assert budget["value"] == "fast"


def test_shares_of_trials_are_those_of_a_workload_or_of_all(comparison: Comparison) -> None:
    titles = [comparison.plot_trials(workload).to_dict()["title"]["text"] for workload in (None, WORKLOAD)]
    assert [title.partition(": ")[0] for title in titles] == ["Across all workloads", WORKLOAD.partition(": ")[0]]
    with pytest.raises(SearchlabError, match="cannot be drawn by 'fail'"):
        comparison.plot_trials(share="fail")


def test_charts_are_restyled_combined_and_saved(comparison: Comparison, tmp_path: Path) -> None:
    chart = comparison.plot_convergence(WORKLOAD).properties(width=200, title="mine").configure_axis(grid=False)
    chart.save(tmp_path / "one.svg")
    assert "mine" in (tmp_path / "one.svg").read_text()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the legends of both highlight strategies in both
        combined = comparison.plot_convergence(WORKLOAD) | comparison.plot_budget(
            WORKLOAD
        ) & comparison.plot_convergence(SECOND_WORKLOAD)
        combined.save(tmp_path / "all.png")
    assert (tmp_path / "all.png").read_bytes().startswith(b"\x89PNG")


def test_convergence_on_all_workloads_is_a_grid(comparison: Comparison, tmp_path: Path) -> None:
    grid = comparison.plot_convergence()
    assert [chart["title"] for chart in grid.to_dict()["concat"]] == comparison.workloads
    grid.save(tmp_path / "grid.svg")
    assert all(workload in (tmp_path / "grid.svg").read_text() for workload in comparison.workloads)


def test_verdicts_are_those_of_the_report(comparison: Comparison) -> None:
    assert comparison.verdicts == {item.workload: item.verdict for item in comparison.summary.workloads}
    first, *workload_lines = comparison.verdict.splitlines()
    assert comparison.summary.overall and first == comparison.summary.overall.verdict
    assert workload_lines == [f"{workload}: {message}" for workload, message in comparison.verdicts.items()]


def test_one_workload_needs_no_name(tmp_path: Path) -> None:
    comparison = compare(study(tmp_path))
    assert comparison.verdict == comparison.verdicts[WORKLOAD]
    charts = [comparison.plot_convergence(), comparison.plot_convergence(searchlab.parse_workload(WORKLOAD))]
    assert charts[0].to_dict() == charts[1].to_dict()


def test_labels_name_strategies(directory: Path, tmp_path: Path) -> None:
    write(tmp_path, "fast", 0, [9, 9, 9, 9])
    comparison = compare({"old": results(directory), "new": tmp_path})
    assert comparison.strategies == ["new", "old: fast", "old: random"]
    relabelled = compare(results(directory, "random"), {"quick": results(directory, "fast")})
    assert relabelled.strategies == ["quick", "random"]
    assert load_log(next(directory.glob("*fast*"))).log.header.name == "fast", "the log is as it was"


def test_labels_are_in_registered_contrasts_too(tmp_path: Path) -> None:
    for seed in range(6):
        write(tmp_path / "a", "x", seed, [1, 2 + seed], contrasts=(("x", "y"),))
        write(tmp_path / "a", "y", seed, [1, 3 + seed], contrasts=(("x", "y"),))
    assert compare({"a": tmp_path / "a"}).summary.family.registered_pairs == [("a: x", "a: y")]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda d: compare(), "nothing to compare: pass results, logs, or directories of logs"),
        (lambda d: compare([]), "nothing to compare: pass results, logs, or directories of logs"),
        (lambda d: compare(d / "none"), "there is no such directory or log"),
        (lambda d: compare(3), "not int"),  # type: ignore[arg-type]
        (lambda d: compare([d, None]), "not NoneType"),  # type: ignore[list-item]
        (lambda d: compare({"": d}), "a label must be a non-empty string, not ''"),
        (lambda d: compare({1: d}), "a label must be a non-empty string, not 1"),  # type: ignore[dict-item]
        (lambda d: compare({"a": d, "b": d}), "is passed twice, with the label 'a' and the label 'b'"),
        (lambda d: compare(d, {"b": d}), "is passed twice, with no label and the label 'b'"),
        (lambda d: compare(d).plot_values(), "there are 2 workloads; specify one: gemm:100x100x50"),
        (
            lambda d: compare(d).plot_convergence("gemm:100x100x5"),
            "this comparison contains no workload 'gemm:100x100x5'",
        ),
        (
            lambda d: compare(d).plot_convergence(SECOND_WORKLOAD, by="second"),
            "cannot be drawn by 'second'; did you mean 'seconds'?",
        ),
        (lambda d: compare(d).plot_differences("fasd"), "this comparison contains no strategy 'fasd'"),
        (
            lambda d: compare(results(d, f"{SECOND_WORKLOAD[5:]}-knob-fast")).plot_differences(),
            f"the runs on {SECOND_WORKLOAD} have no data for the chart 'differences'; known: budget",
        ),
        (
            lambda d: compare(d).plot_models(SECOND_WORKLOAD),
            f"the runs on {SECOND_WORKLOAD} have no data for the chart 'models'; known: budget",
        ),
    ],
)
def test_bad_input_is_one_sentence(directory: Path, call: Any, message: str) -> None:
    with pytest.raises(SearchlabError, match=re.escape(message)) as caught:
        call(directory)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("throughputs", [[], ["crash", "crash"]])
def test_a_comparison_without_a_success_says_so(tmp_path: Path, throughputs: list[Any]) -> None:
    for name in ("a", "b"):
        write(tmp_path, name, 0, throughputs)
    comparison = compare(tmp_path)
    assert re.match("No trials have", comparison.verdict) and len(comparison.strategies_frame()) == (
        2 if throughputs else 0
    )
    with pytest.raises(SearchlabError, match=WORKLOAD):
        getattr(comparison, "plot_importances" if throughputs else "plot_convergence")()


def test_frames_and_figures_are_typed() -> None:
    """So that a type checker knows them in a user's script."""
    names = {"pd": pd, "alt": alt}
    for kind in (Comparison, Result, Results):
        for name in dir(kind):
            if name.endswith("_frame"):
                assert get_type_hints(getattr(kind, name), localns=names)["return"] is pd.DataFrame
            if name.startswith("plot_"):
                chart = get_type_hints(getattr(kind, name), localns=names)["return"]
                assert chart in (alt.LayerChart, alt.LayerChart | alt.ConcatChart)
    assert (Path(searchlab.__file__).parent / "py.typed").is_file()
