"""The report on a directory of logs: read, compute, write."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ..errors import SearchlabError
from ..records import FAILURES
from .charts.pictures import draw_all
from .charts.workload import Figure, overall_figures, workload_figures
from .estimates import Estimate, Reached
from .overall import Overall
from .page.render import page, strategy_order
from .programs import BUDGET, Program, Traces, best_programs, cell_programs
from .read import REPORT, Cell, Comparison, read_cells
from .summary import Summary, started, summarize


def report(directory: str | Path, *, traces: float = BUDGET) -> Summary:
    """Compare what the logs ``**/*.jsonl`` of ``directory`` hold, and write it into ``directory/report/``.

    ``report.html``, one page that needs no other file and no network. Its charts as PNG and SVG, those of all workloads
    as ``overall-*``, and their numbers as ``figures.json`` and ``figures.csv``. ``programs.json``: the best program
    of each strategy on each workload, with its schedule trace (see :mod:`~searchlab.analysis.programs`), where that
    could be made within ``traces`` seconds (0: no traces); ``programs.csv``: that of every run, a row each.
    ``summary.json`` and ``summary.csv`` (a row per workload and strategy); ``contrasts.csv`` (a row per workload,
    measure and pair of strategies; without a workload: over all of them); ``overall.csv`` (a row per strategy, where
    there are several workloads); ``curves.csv`` (a row per trial: how many trials and seconds, both from the start of
    the run, and the best GFLOPS then).

    Raises SearchlabError where there is no log, where one is damaged, where logs cannot stand side by side
    (see :func:`~searchlab.analysis.read.read_cells`), and where the report cannot be written.
    """
    directory = Path(directory)
    comparison = read_cells(directory)
    out = directory / REPORT
    try:
        out.mkdir(exist_ok=True)
        programs = cell_programs(comparison)
        with Traces(best_programs(programs), traces) as made:  # in a process of their own, while all else is computed
            return _report(out, comparison, [one for one, _ in programs], made)
    except OSError as error:
        raise SearchlabError(f"cannot write the report {out}: {error.strerror}") from None


def _report(out: Path, comparison: Comparison, cells: Sequence[Program], traces: Traces) -> Summary:
    summary = summarize(comparison)
    runs = {workload: _started(strategies) for workload, strategies in comparison.items()}
    figures = {item.workload: workload_figures(item, runs[item.workload]) for item in summary.workloads}
    if summary.overall:
        figures[""] = overall_figures(summary.overall, summary.workloads)
    _write_json(out / "summary.json", summary)
    _write_json(out / "figures.json", figures)
    _write_csv(out / "summary.csv", _SUMMARY, _summary_rows(summary))
    _write_csv(out / "contrasts.csv", _CONTRASTS, _contrast_rows(summary))
    if summary.overall:
        _write_csv(out / "overall.csv", _OVERALL, _overall_rows(summary.overall))
    _write_csv(out / "curves.csv", ("workload", "strategy", "seed", "trials", "seconds", "best_gflops"),
               _curve_rows(comparison))  # fmt: skip
    _write_csv(out / "figures.csv", ("workload", "figure", "view", "strategy", "x", "y", "lower", "upper"),
               _figure_rows(figures))  # fmt: skip
    _write_csv(out / "programs.csv", _PROGRAMS, _program_rows(cells))
    draw_all(out, summary, runs, figures, strategy_order(comparison))
    programs = traces.programs()
    _write_json(out / "programs.json", programs)
    (out / "report.html").write_text(page(summary, comparison, figures, programs), encoding="utf-8")
    return summary


def _started(strategies: Mapping[str, Sequence[Cell]]) -> dict[str, list[Cell]]:
    return {name: run for name, cells in strategies.items() if (run := started(cells))}


def _write_json(path: Path, value: Any) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")


_SUMMARY = (
    "workload", "strategy", "seeds", "trials", "complete",
    "best_gflops_median", "best_gflops_q1", "best_gflops_q3",
    "seeds_that_reached_target", "trials_to_target_median", "seconds_to_target_median",
    "area_median", "area_q1", "area_q3",
    "trials_to_target_lower", "trials_to_target_upper", "trials_ert", "trials_par10",
    "seconds_to_target_lower", "seconds_to_target_upper", "seconds_ert", "seconds_par10",
    "score", "score_lower", "score_upper", "score_trials", "anytime_median", "ecdf_area",
    "seconds", "propose_seconds", "train_seconds", "build_seconds", "run_seconds", *FAILURES,
)  # fmt: skip


def _summary_rows(summary: Summary) -> Iterable[Sequence[Any]]:
    for item in summary.workloads:
        for row in item.strategies:
            spent = row.seconds
            fields = (
                item.workload, row.strategy, len(row.seeds), row.trials, row.complete,
                row.best_gflops.median, row.best_gflops.lower, row.best_gflops.upper,
                row.trials_to_target.reached, row.trials_to_target.median, row.seconds_to_target.median,
                row.area.median, row.area.lower, row.area.upper,
                *_reached(row.trials_to_target), *_reached(row.seconds_to_target),
                *_estimate(row.score), row.score_trials, row.anytime.median, row.ecdf_area,
                spent.total, spent.propose, spent.train, spent.build, spent.run,
            )  # fmt: skip
            yield [*fields, *row.failures.values()]


def _reached(measure: Reached) -> Sequence[float | None]:
    return measure.lower, measure.upper, measure.expected, measure.penalised


def _estimate(estimate: Estimate | None) -> Sequence[float | None]:
    return (estimate.value, estimate.lower, estimate.upper) if estimate else (None,) * 3


_CONTRASTS = ("workload", "measure", "first", "second", "test", "runs", "improvement", "improvement_lower",
              "improvement_upper", "p", "adjusted_p")  # fmt: skip


def _contrast_rows(summary: Summary) -> Iterable[Sequence[Any]]:
    over_all = [("", summary.overall.contrasts)] if summary.overall else []
    for workload, contrasts in [*((item.workload, item.contrasts) for item in summary.workloads), *over_all]:
        for c in contrasts:
            yield (
                workload, c.measure, c.first, c.second, c.test, c.runs, c.improvement, c.lower, c.upper, c.p,
                c.adjusted,
            )  # fmt: skip


_OVERALL = (
    "strategy", "rank", "area_iqm", "area_iqm_lower", "area_iqm_upper", "score", "score_lower", "score_upper",
    "ecdf_area",
)  # fmt: skip


def _overall_rows(overall: Overall) -> Iterable[Sequence[Any]]:
    ranks = dict(zip(overall.diagram.strategies, overall.diagram.ranks, strict=True))
    for row in overall.strategies:
        yield row.strategy, ranks[row.strategy], *_estimate(row.area), *_estimate(row.score), row.ecdf_area


def _curve_rows(comparison: Comparison) -> Iterable[Sequence[Any]]:
    for workload, strategies in comparison.items():
        for strategy, cells in strategies.items():
            for cell in cells:
                pairs = zip(cell.elapsed.tolist(), cell.curve.tolist(), strict=True)
                for trial, (seconds, best) in enumerate(pairs, 1):
                    yield workload, strategy, cell.seed, trial, seconds, best


_PROGRAMS = ("workload", "strategy", "seed", "trial", "gflops", "seconds", "gflops_as_trial", "tied", "config", "log")


def _program_rows(programs: Iterable[Program]) -> Iterable[Sequence[Any]]:
    for one in programs:
        tied = None if one.tied is None else " ".join(map(str, one.tied))
        config = msgspec.json.encode(one.config).decode()
        yield (
            one.workload, one.strategy, one.seed, one.trial, one.gflops, one.seconds, one.as_trial, tied, config,
            one.log,
        )  # fmt: skip


def _figure_rows(figures: Mapping[str, Sequence[Figure]]) -> Iterable[Sequence[Any]]:
    for workload, charts in figures.items():
        for figure in charts:
            for view in figure.views:
                for line in view.series:
                    nothing = [None] * len(view.x)
                    for x, y, *band in zip(view.x, line.y, line.lower or nothing, line.upper or nothing, strict=True):
                        if y is not None:
                            yield workload, figure.key, view.key, line.strategy, x, y, *band


def _write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
