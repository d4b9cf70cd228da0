"""Comparing from Python: the same numbers and pictures as the report's, and one sentence for each mistake."""

from __future__ import annotations

import csv
import math
import re
from pathlib import Path
from typing import Any, get_type_hints

import pandas as pd
import pytest
from matplotlib.figure import Figure

import searchlab
from searchlab import Comparison, SearchlabError, compare, load_log
from searchlab.analysis.charts.pictures import picture_name
from searchlab.log.result import Result, Results
from tests.support.analysis.logs import WORKLOAD, write
from tests.support.cli import python

OTHER = "gemm:100x100x500"


def study(directory: Path, *workloads: str, seeds: int = 3) -> Path:
    """Two strategies on each workload, of which ``fast`` is the better; ``random`` fails once in each run."""
    for workload in workloads or (WORKLOAD,):
        for seed in range(seeds):
            write(directory, "random", seed, [1, 2, "crash", 2 + seed], workload=workload)
            write(directory, "fast", seed, [5, 8, 9, 10 - seed], workload=workload)
    return directory


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return study(tmp_path_factory.mktemp("logs"), WORKLOAD, OTHER)


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
    for what in ((results(directory),), (logs,), (list(map(str, logs)),), logs, (results(directory)[0], directory)):
        other = compare(*what)
        assert other.verdict == comparison.verdict
        pd.testing.assert_frame_equal(other.strategies_frame(), comparison.strategies_frame())
    assert repr(comparison) == "<Comparison of 2 strategies on 2 workloads, 12 runs>"


FRAMES = {
    "strategies": "summary",
    "overall": "overall",
    "contrasts": "contrasts",
    "lead": "lead",
    "curves": "curves",
    "programs": "programs",
}


@pytest.mark.parametrize("name", FRAMES)
def test_frames_are_the_files_of_the_report(comparison: Comparison, saved: Path, name: str) -> None:
    frame = comparison.curves_frame(every_trial=False) if name == "curves" else getattr(comparison, f"{name}_frame")()
    rows = list(csv.reader((saved / f"{FRAMES[name]}.csv").open()))
    assert list(frame.columns) == rows[0] and len(frame) == len(rows) - 1 > 0
    for values, line in zip(frame.itertuples(index=False), rows[1:], strict=True):
        for value, text in zip(values, line, strict=True):
            if isinstance(value, float):
                assert (math.isnan(value) and text == "") or value == pytest.approx(float(text))
            else:
                assert str(value) == text


def test_numbers_are_numbers_also_where_none_is_known(tmp_path: Path) -> None:
    """One workload has no overall rows, and no score."""
    one = compare(study(tmp_path, seeds=1))
    assert {len(one.overall_frame()), len(one.lead_frame())} == {0}
    frame = one.strategies_frame().set_index("strategy")
    assert frame["trials_to_target_median"].dtype == float and math.isnan(
        frame.loc["random", "trials_to_target_median"]
    )


PICTURES = {
    "convergence": ("trials", {}),
    "regret": ("regret", {}),
    "ecdf": ("ecdf", {}),
    "score": ("score", {}),
}


def pixels(picture: Any) -> bytes:
    data, size = picture._repr_png_()
    assert data.startswith(b"\x89PNG") and size["width"] == 800
    return bytes(data)


def test_figures_are_the_pictures_of_the_report(comparison: Comparison, saved: Path, tmp_path: Path) -> None:
    calls = [(name, (WORKLOAD,), {}, WORKLOAD, chart) for name, (chart, _) in PICTURES.items()]
    calls += [(name, (OTHER,), {"by": "seconds"}, OTHER, f"{name}-seconds") for name in ("regret", "ecdf")]
    calls += [("convergence", (OTHER,), {"by": "seconds"}, OTHER, "seconds")]
    calls += [(name, (), {}, "", name) for name in ("profile", "runs", "ranks", "differences")]
    for name, where, how, workload, chart in calls:
        figure = getattr(comparison, f"plot_{name}")(*where, **how)
        assert isinstance(figure, Figure)
        figure.save(tmp_path / "one")  # type: ignore[attr-defined]
        kept = saved / f"{picture_name(workload, chart)}.png"
        assert (tmp_path / "one.png").read_bytes() == kept.read_bytes(), name


def texts(figure: Figure) -> list[str]:
    (axes,) = figure.axes
    return [text.get_text() for text in axes.texts]


def test_a_figure_does_not_take_the_style_of_the_user(directory: Path) -> None:
    code = f"""
import matplotlib, searchlab, sys
one = searchlab.compare({str(directory)!r})
def drawn(): return one.plot_regret({WORKLOAD!r})._repr_png_()
before = drawn()
matplotlib.rcParams.update({{"grid.color": "red", "font.size": 30, "lines.linewidth": 9, "savefig.dpi": 50}})
print(drawn() == before, "matplotlib.pyplot" in sys.modules, "tvm" in sys.modules)
"""
    done = python("-c", code)
    assert done.stdout == "True False False\n", done.stderr


def test_regret_ends_at_the_floor_for_the_best_known(comparison: Comparison) -> None:
    """Seed 0 of ``fast`` finds the best known; its median takes 11 % longer, and random's more than twice as long."""
    figure = comparison.plot_regret(WORKLOAD)
    (axes,) = figure.axes
    assert axes.get_yscale() == "log"
    fast, rand = (
        next(text for text in texts(figure) if text.startswith(name)).split()[-1] for name in ("fast", "random")
    )
    assert float(fast) == pytest.approx(100 * (10 / 9 - 1), abs=0.06) and float(rand) == pytest.approx(233.3, abs=0.06)


def test_verdicts_are_those_of_the_report(comparison: Comparison) -> None:
    assert comparison.verdicts == {item.workload: item.verdict for item in comparison.summary.workloads}
    first, *others = comparison.verdict.splitlines()
    assert comparison.summary.overall and first == comparison.summary.overall.verdict
    assert others == [f"{workload}: {said}" for workload, said in comparison.verdicts.items()]


def test_one_workload_needs_no_name(tmp_path: Path) -> None:
    one = compare(study(tmp_path))
    assert one.verdict == one.verdicts[WORKLOAD]
    assert pixels(one.plot_convergence()) == pixels(one.plot_convergence(searchlab.parse_workload(WORKLOAD)))


def test_labels_name_strategies(directory: Path, tmp_path: Path) -> None:
    write(tmp_path, "fast", 0, [9, 9, 9, 9])
    one = compare({"old": results(directory), "new": tmp_path})
    assert one.strategies == ["new", "old: fast", "old: random"]
    again = compare(results(directory, "random"), {"quick": results(directory, "fast")})
    assert again.strategies == ["quick", "random"]
    assert load_log(next(directory.glob("*fast*"))).log.header.name == "fast", "the log is as it was"


def test_labels_are_in_registered_contrasts_too(tmp_path: Path) -> None:
    for seed in range(6):
        write(tmp_path / "a", "x", seed, [1, 2 + seed], contrasts=(("x", "y"),))
        write(tmp_path / "a", "y", seed, [1, 3 + seed], contrasts=(("x", "y"),))
    assert compare({"a": tmp_path / "a"}).summary.family.registered == [("a: x", "a: y")]


@pytest.mark.parametrize(
    ("call", "said"),
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
        (
            lambda d: compare(results(d, f"{OTHER[5:]}-knob-fast"), results(d, f"{WORKLOAD[5:]}-knob-random")),
            r"nothing to compare: no two strategies searched the same workload; for example, 'random' searched "
            r"gemm:100x100x50, while 'fast' searched gemm:100x100x500; to compare",
        ),
        (lambda d: compare(d).plot_regret(), "there are 2 workloads; specify one: gemm:100x100x50"),
        (lambda d: compare(d).plot_ecdf("gemm:100x100x5"), "this comparison contains no workload 'gemm:100x100x5'"),
        (lambda d: compare(d).plot_ecdf(OTHER, by="second"), "cannot be drawn by 'second'; did you mean 'seconds'?"),
        (lambda d: compare(d).plot_differences("fasd"), "this comparison contains no strategy 'fasd'"),
        (
            lambda d: compare(results(d, f"{OTHER[5:]}-knob-fast")).plot_differences(),
            "no two strategies ran on every workload",
        ),
        (lambda d: compare(d).plot_models(OTHER), f"no strategy on {OTHER} has a cost model whose predictions"),
        (lambda d: compare(results(d, f"{OTHER[5:]}-knob-fast")).plot_score(), f"{OTHER} has no scores"),
        (lambda d: compare(results(d, f"{OTHER[5:]}-knob-fast")).plot_ranks(), "no two strategies share more than one"),
    ],
)
def test_bad_input_is_one_sentence(directory: Path, call: Any, said: str) -> None:
    with pytest.raises(SearchlabError, match=re.escape(said)) as caught:
        call(directory)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("found", [[], ["crash", "crash"]])
def test_what_has_not_succeeded_is_said(tmp_path: Path, found: list[Any]) -> None:
    for name in ("a", "b"):
        write(tmp_path, name, 0, found)
    one = compare(tmp_path)
    assert re.match("No trials have", one.verdict) and len(one.strategies_frame()) == (2 if found else 0)
    for name in ("regret", "ecdf", "score", *([] if found else ["convergence"])):
        with pytest.raises(SearchlabError, match=WORKLOAD):
            getattr(one, f"plot_{name}")()


def test_frames_and_figures_are_typed() -> None:
    """So that a type checker knows them in a user's script."""
    names = {"pd": pd, "Figure": Figure}
    for kind in (Comparison, Result, Results):
        for name in dir(kind):
            if name.endswith("_frame"):
                assert get_type_hints(getattr(kind, name), localns=names)["return"] is pd.DataFrame
            if name.startswith("plot_"):
                assert get_type_hints(getattr(kind, name), localns=names)["return"] is Figure
    assert (Path(searchlab.__file__).parent / "py.typed").is_file()
