"""Comparing runs from Python, and writing reports on them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import SearchlabError, did_you_mean, encodable
from ..files import real_path, resolve_inside, write_csv, write_file
from ..log.columns import LogColumns
from ..log.frames import make_study_frame
from ..log.plan import Claim
from ..log.read import LOG_SUFFIXES, read_header
from ..log.result import Result
from ..notebook import html_paragraphs, html_table
from ..options import checks_arguments
from .charts.figures import make_charts
from .charts.vegalite import Chart, Format, Spec, add_title, make_altair_chart, save_charts
from .columns import Tables
from .measures import AREA
from .page.render import render_page
from .read import REPORT_DIR, group_runs, read_planned_claims, read_runs
from .runs import ComparedRuns, CurveAxis, list_strategies
from .summary import Summary, summarize
from .tables import COMPRESSED, make_number_tables
from .words import counted

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

Source = Result | str | Path | Iterable[Result | str | Path]
"""The arguments of :func:`compare`: a result, a log, a directory of logs, or several of these, such as Results."""

DEFAULT_DIR = Path("results") / REPORT_DIR
"""The default directory for a report on anything other than a single directory."""

MAX_WORKLOADS = 12  # the number of workloads that a notebook shows by default


@checks_arguments
def compare(*what: Source | Mapping[str, Source], by: CurveAxis | None = None) -> Comparison:
    """Compare strategies as ``searchlab report`` does, without writing files.

    Args:
        *what: Results of :func:`tune` and :meth:`Study.run`, logs, directories of logs, or lists of these. Pass a
            mapping to label them: ``{"before": "results/a", "after": "results/b"}``. Each strategy is then named after
            its label, followed by its own name if several strategies have this label (``"before: xgb"``). A log that
            is passed twice counts once.
        by: Whether strategies are compared by the area over trials or over seconds. By default, over seconds if these
            limit all runs.

    Raises:
        SearchlabError: If there are no logs, or if they are not comparable; see
            :func:`~searchlab.analysis.read.read_runs`.

    Example:
        >>> import searchlab
        >>> study = searchlab.Study.from_dict(
        ...     {"suite": "v1/gemm-64x64x64-trace-1t", "policies": ["random", "xgb"], "trials": 24, "seeds": 2}
        ... )
        >>> comparison = searchlab.compare(study.run("results", progress=False))
        >>> comparison
        <Comparison of 2 strategies on 1 workload, 4 runs>
        >>> "random" in comparison.verdict
        True
    """
    if len(what) == 1 and isinstance(what[0], str | Path):
        return Comparison(read_runs(Path(what[0]), by=by), read_planned_claims(Path(what[0])))
    labelled_logs: dict[Path, tuple[str | None, LogColumns]] = {}
    for argument in what:
        labelled_sources = argument.items() if isinstance(argument, Mapping) else [(None, argument)]
        for label, source in labelled_sources:
            logs = list(_read_logs(source))
            for log in logs if label is None else _relabel(label, logs):
                earlier_label, _ = labelled_logs.setdefault(real_path(log.path), (label, log))
                if earlier_label != label:
                    labels = " and ".join(
                        "no label" if name is None else f"the label {name!r}" for name in (earlier_label, label)
                    )
                    raise SearchlabError(f"{log.path} is passed twice, with {labels}; pass it only once")
    if not labelled_logs:
        raise SearchlabError("nothing to compare: pass results, logs, or directories of logs")
    named_logs = ((log, encodable(log.path.as_posix())) for _, log in labelled_logs.values())
    return Comparison(group_runs(named_logs, by=by))


def report(
    *where: str | Path,
    out: str | Path | None = None,
    everything: bool = False,
    figures: Format | None = None,
    by: CurveAxis | None = None,
) -> Summary:
    """Compare the runs in logs, and write a page and data files.

    - ``report.html``: the report as one page that needs no other files and no network.
    - ``summary.json``, ``summary.csv``: the summary, with a row for each strategy on each workload.
    - ``runs.csv.gz``: a row for each run, with the numbers by seed that ``summary.csv`` averages.
    - ``contrasts.csv.gz``: a row for each pair of strategies and workload, with the mean difference in area. In rows
      over all workloads, ``workload`` is empty, and the columns ``others_`` are about other workloads like these.
    - ``overall.csv``: a row for each strategy over several workloads.
    - ``published_claims.csv``: a row for each opponent in each published claim of the study.
    - ``programs.csv.gz``: the best program of each run.
    - ``importances.csv``: the importance of each knob on each workload, its number of values, and its value in the
      fastest config.
    - ``WORKLOAD-CHART.KIND``: each chart, if ``figures`` is the kind of file: pdf, svg or png.

    Args:
        *where: Logs, or directories in which all logs (``**/*.jsonl``, ``**/*.jsonl.gz``) are read. A log that is
            passed twice counts once.
        out: The directory to write to. By default, ``report`` in ``where`` if that is a single directory, and
            ``results/report`` otherwise.
        everything: Whether to report on all logs in a study's directory, rather than only on the runs and trials that
            are currently part of the study.
        figures: The format in which all charts are written to files. By default, they are only on the page.
        by: Whether strategies are compared by the area over trials or over seconds. By default, over seconds if these
            limit all runs.

    Raises:
        SearchlabError: If there are no logs, if a log is damaged, if logs are not comparable (see
            :func:`~searchlab.analysis.read.read_runs`), or if the report cannot be written.
    """
    paths = [Path(path) for path in where]
    directory = report_directory(*paths, out=out)
    runs = read_runs(*paths, everything=everything, by=by)
    comparison = Comparison(runs, read_planned_claims(*paths))
    comparison.save(directory, figures=figures)
    return comparison.summary


def report_directory(*where: str | Path, out: str | Path | None = None) -> Path:
    """Return the directory that :func:`report` writes to.

    Raises:
        SearchlabError: If ``out`` is None and the report would be written to a folder of tables, or by a link to a
            different place.
    """
    if out is not None:
        return Path(out)
    if len(where) != 1 or not Path(where[0]).is_dir():
        return DEFAULT_DIR
    directory = Path(where[0])
    for log in directory.iterdir():
        with suppress(SearchlabError):  # unreadable logs have been reported
            if log.name.endswith(LOG_SUFFIXES) and read_header(log).is_table:
                break
    else:
        resolve_inside(directory / REPORT_DIR, directory)
        return directory / REPORT_DIR
    raise SearchlabError(
        f"{directory} is a folder of tables, such as {log.name}; specify where to write the report with --out DIR (in "
        f"Python, out=DIR)"
    )


def _read_logs(source: Any) -> Iterator[LogColumns]:
    if isinstance(source, Result):
        yield LogColumns.from_log(source.log)
    elif isinstance(source, str | Path):
        yield from (run.log for workload_runs in read_runs(Path(source)).values() for run in workload_runs.runs)
    elif isinstance(source, Iterable) and not isinstance(source, Mapping | bytes):
        for element in source:
            yield from _read_logs(element)
    else:
        raise SearchlabError(
            f"compare accepts results, logs, directories of logs, and lists of these, not {type(source).__name__}"
        )


def _relabel(label: Any, logs: Sequence[LogColumns]) -> list[LogColumns]:
    """Return logs with their strategies renamed, also in their contrasts."""
    if not isinstance(label, str) or not label.strip():
        raise SearchlabError(f"a label must be a non-empty string, not {label!r}")
    names = {log.header.name for log in logs}
    labels = {name: label if len(names) == 1 else f"{label}: {name}" for name in names}

    def rename(log: LogColumns) -> LogColumns:
        contrasts = tuple(
            (labels.get(first, first), labels.get(second, second)) for first, second in log.header.contrasts
        )
        header = msgspec.structs.replace(log.header, label=labels[log.header.name], contrasts=contrasts)
        return replace(log, header=header)

    return [rename(log) for log in logs]


@dataclass(frozen=True, repr=False, eq=False)
class Comparison:
    """The content of a report as text, pandas frames and Altair charts, as returned by :func:`compare`.

    Methods that plot one workload expect its name as in :attr:`workloads`, which may be omitted if there is only one.

    Attributes:
        runs: The runs of each workload, in alphabetical order.
        claims: The published claims to test: those of the study whose directory was passed to :func:`compare`.

    Example:
        >>> import searchlab
        >>> comparison = searchlab.compare(searchlab.load_log("gemm.jsonl"))
        >>> comparison.workloads
        ['gemm:32x32x32']
        >>> comparison.strategies_frame()["strategy"].tolist()
        ['random']
    """

    runs: ComparedRuns
    claims: Sequence[Claim] = ()

    @cached_property
    def summary(self) -> Summary:
        """All numbers in the report."""
        return summarize(self.runs, self.claims)

    @cached_property
    def charts(self) -> dict[str, dict[str, Chart]]:
        """All charts, by workload and key. The workload of charts over all workloads is ""."""
        return make_charts(self.summary, self.runs)

    @property
    def workloads(self) -> list[str]:
        return list(self.runs)

    @property
    def strategies(self) -> list[str]:
        """The strategies in alphabetical order."""
        return list_strategies(self.runs)

    @property
    def verdicts(self) -> dict[str, str]:
        """For each workload, which strategy converges fastest and whether the difference is more than noise."""
        return {workload_summary.workload: workload_summary.verdict for workload_summary in self.summary.workloads}

    @property
    def verdict(self) -> str:
        """All verdicts: on published claims, on registered contrasts, over all workloads, and on each workload."""
        verdicts = [
            f"{claim_verdict.verdict}: {claim_verdict.claim.text} {claim_verdict.sentence}"
            for claim_verdict in self.summary.claims
        ]
        verdicts += [answer.sentence for answer in self.summary.answers]
        if self.summary.overall:
            verdicts.append(self.summary.overall.verdict)
        if self.summary.overall is None and len(set(self.verdicts.values())) == 1:
            verdicts += list(self.verdicts.values())[:1]
        else:
            verdicts += [f"{workload}: {verdict}" for workload, verdict in self.verdicts.items()]
        return "\n".join(verdicts)

    def strategies_frame(self) -> pd.DataFrame:
        """Return a row for each strategy on each workload, with the columns of ``summary.csv``."""
        return self._make_frame("summary")

    def runs_frame(self) -> pd.DataFrame:
        """Return a row for each run: its area, score, best GFLOPS, times to the target and failures."""
        return self._make_frame("runs")

    def overall_frame(self) -> pd.DataFrame:
        """Return a row for each strategy over all workloads: rank, area and score. Empty for a single workload."""
        return self._make_frame("overall")

    def contrasts_frame(self) -> pd.DataFrame:
        """Return a row for each pair of strategies. ``workload`` is empty in rows over all workloads."""
        return self._make_frame("contrasts")

    def published_claims_frame(self) -> pd.DataFrame:
        """Return a row for each published claim and opponent: the verdict, the effect and its interval."""
        return self._make_frame("published_claims")

    def trials_frame(self) -> pd.DataFrame:
        """Return a row for each trial in each run, as :meth:`searchlab.log.result.Results.to_frame` does.

        Workloads and strategies are named as in the other frames.
        """
        runs = [run for workload_runs in self.runs.values() for run in workload_runs.runs]
        labels: dict[str, list[str | None]] = {
            "workload": [run.workload for run in runs],
            "strategy": [run.strategy for run in runs],
        }
        return make_study_frame([run.log for run in runs], **labels)

    def programs_frame(self) -> pd.DataFrame:
        """Return a row for the best program of each run that found one: its GFLOPS, config and log."""
        return self._make_frame("programs")

    def importances_frame(self) -> pd.DataFrame:
        """Return a row for each knob on each workload: its importance, and its value in the fastest config.

        See :attr:`searchlab.analysis.knobs.MeasuredSpace.importances`.
        """
        return self._make_frame("importances")

    def _make_frame(self, name: str) -> pd.DataFrame:
        return make_number_tables(self.summary, self.runs)[name].to_frame()

    def plot_convergence(self, workload: object = None, *, by: str = "trials") -> alt.LayerChart | alt.ConcatChart:
        """Plot the best GFLOPS so far by "trials" or "seconds": the median and quartiles over seeds.

        Without a workload, all workloads are plotted, each in a small chart.
        """
        if workload is not None or len(self.runs) == 1:
            return self._plot(self._find_workload(workload), "convergence", by)
        import altair as alt

        charts = [
            self._plot(name, "convergence", by).properties(width=260, height=160, title=name) for name in self.runs
        ]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the charts share the legend, in which strategies are highlighted
            return alt.concat(*charts, columns=3)

    def plot_importances(self, workload: object = None, *, space: str = "") -> alt.LayerChart:
        """Plot how much each knob matters. ``space`` is the name of the space if there are several."""
        return self._plot(self._find_workload(workload), "importances", space)

    def plot_values(self, workload: object = None, *, knob: str = "") -> alt.LayerChart:
        """Plot the throughput of all measured configs by the value of a knob, by default the most important one.

        If there are several spaces, the names of knobs are ``"SPACE: KNOB"``.
        """
        return self._plot(self._find_workload(workload), "values", knob)

    def plot_pairs(self, workload: object = None, *, space: str = "") -> alt.LayerChart:
        """Plot the throughput of the fastest config with each pair of values of the two most important knobs."""
        return self._plot(self._find_workload(workload), "pairs", space)

    def plot_models(self, workload: object = None, *, metric: str = "pairwise_accuracy") -> alt.LayerChart:
        """Plot how well cost models predicted each batch before they were trained on it."""
        return self._plot(self._find_workload(workload), "models", metric)

    def plot_differences(self, reference: str | None = None) -> alt.LayerChart:
        """Plot each strategy's area under the curve minus that of a reference, over all workloads.

        Args:
            reference: The name of the strategy that is selected at first, by default the opponent in the first
                registered contrast, or random.
        """
        return self._plot("" if self.summary.overall else self.workloads[0], "differences", reference=reference)

    def plot_workloads(self, strategy: str | None = None, reference: str | None = None) -> alt.LayerChart:
        """Plot the area under the curve of a strategy minus that of a reference on each workload.

        Args:
            strategy: The name of the strategy that is selected at first, by default the first one in the first
                registered contrast, or the best.
            reference: As in :meth:`plot_differences`.
        """
        return self._plot("", "workloads", "", strategy=strategy, reference=reference)

    def plot_budget(self, workload: object = None, *, reference: str | None = None) -> alt.LayerChart:
        """Plot each strategy's area minus that of a reference in each eighth of the budget.

        Without a workload, the areas are means over all workloads, if there are several. ``reference`` is as in
        :meth:`plot_differences`.
        """
        return self._plot(self._find_scope(workload), "budget", AREA, reference=reference)

    def plot_trials(self, workload: object = None, *, share: str = "near the best") -> alt.LayerChart:
        """Plot the share of trials that were "near the best", "slow", "failed" or "random fill-ins" in each eighth.

        Without a workload, the shares are means over all workloads, if there are several.
        """
        return self._plot(self._find_scope(workload), "trials", share)

    def save(self, out: str | Path, *, figures: Format | None = None) -> Path:
        """Write the report to the directory ``out`` and return the path of its page.

        See :func:`report` for the files.
        """
        out = Path(out)
        write_file(out / "summary.json", msgspec.json.encode(self.summary.to_json()) + b"\n", under=out)
        for name, table in make_number_tables(self.summary, self.runs).items():
            if rows := list(table.rows):
                write_csv(out / f"{name}.csv{'.gz' if name in COMPRESSED else ''}", table.columns, rows, under=out)
        if figures:
            save_charts(out, self.charts, figures)
        page_path = out / "report.html"
        write_file(page_path, render_page(self.summary, self.runs, self.charts), under=out)
        return page_path

    def __repr__(self) -> str:
        strategies, workloads = counted(len(self.strategies), "strategy"), counted(len(self.runs), "workload")
        run_count = sum(len(workload_runs.runs) for workload_runs in self.runs.values())
        return f"<Comparison of {strategies} on {workloads}, {counted(run_count, 'run')}>"

    def _repr_html_(self) -> str:
        workloads = self.summary.workloads[:MAX_WORKLOADS]
        sentences = [answer.sentence for answer in self.summary.answers]
        if self.summary.overall:
            sentences.append(self.summary.overall.verdict)
        html = html_paragraphs(sentences)
        for workload_summary in workloads:
            headings, rows = workload_summary.make_table(Tables.TERMINAL).texts
            html += html_table(headings, rows, caption=workload_summary.workload)
            html += html_paragraphs([workload_summary.verdict])
        if hidden_count := len(self.summary.workloads) - len(workloads):
            html += html_paragraphs([f"{hidden_count} more workloads are in strategies_frame()"])
        return html

    def _find_workload(self, workload: object) -> str:
        if workload is None and len(self.workloads) != 1:
            raise SearchlabError(f"there are {len(self.workloads)} workloads; specify one: {', '.join(self.workloads)}")
        return _check_name(self.workloads[0] if workload is None else str(workload), self.workloads, "workload")

    def _find_scope(self, workload: object) -> str:
        """Return the name of the workload, or "" for all workloads if none is specified and they are compared."""
        return "" if workload is None and self.summary.overall else self._find_workload(workload)

    def _plot(self, workload: str, key: str, view: str = "", **selected: str | None) -> alt.LayerChart:
        """Return a chart. ``selected`` contains the values that its parameters have at first, None for the default."""
        spec = self._find_spec(workload, key, view)
        params = []
        for param in spec.get("params", ()):
            value = selected.get(param["name"]) or param["value"]
            params.append(param | {"value": _check_name(value, param["bind"]["options"], "strategy")})
        return make_altair_chart(spec | {"params": params})

    def _find_spec(self, workload: str, key: str, view: str = "") -> Spec:
        chart = self.charts.get(workload, {}).get(key)
        if chart is None:
            raise SearchlabError(
                f"the runs {f'on {workload}' if workload else 'over all workloads'} have no data for the chart {key!r}"
                f"{did_you_mean(key, self.charts.get(workload, ()))}"
            )
        view = view or next(iter(chart.views))
        if view not in chart.views:
            raise SearchlabError(f"{chart.title.lower()} cannot be drawn by {view!r}{did_you_mean(view, chart.views)}")
        return add_title(chart.views[view], workload, chart, view)


def _check_name(name: str, names: Sequence[str], noun: str) -> str:
    """Return ``name`` if it is among ``names``. Raises SearchlabError otherwise."""
    if name not in names:
        raise SearchlabError(f"this comparison contains no {noun} {name!r}{did_you_mean(name, names)}")
    return name
