"""``searchlab report`` and ``power``: compare runs, and plan how many are needed to distinguish strategies."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from rich.box import SIMPLE_HEAD
from typer import Argument, Option

from ..analysis import Comparison, Summary, read_runs, report_directory, summarize, summary_table
from ..analysis.charts.vegalite import Format
from ..analysis.latex import REFERENCES_NAME, TABLES_NAME, write_latex
from ..analysis.power import PowerPlan, plan_power
from ..analysis.publish import Publication, make_publication, publish
from ..analysis.read import read_planned_claims
from ..analysis.runs import ComparedRuns, CurveAxis
from ..analysis.watch import StudyProgress
from ..analysis.words import counted
from ..errors import SearchlabError
from ..log.lease import is_locked
from ..log.plan import write_plan
from ..log.read import RESULT_FILE_NAME, find_logs
from ..measure.suite import find_installed_suites, find_suite
from ..options import Share, Trials, check_option
from ..policy import POLICIES, origins
from ..run.study import Study
from ..suite.compare import against_baselines, group_suite_runs, read_suite_study_runs
from ..suite.trajectories import read_baselines, read_trajectories
from . import parameters
from .parameters import default_logs_dir, number_option
from .terminal import out, say, say_json, say_table, working

Full = Annotated[bool, Option("--full", help="Print the tables of all workloads, not only what follows from them.")]


def report(
    paths: Annotated[
        list[Path],
        Argument(
            help="A study's directory or any other directory of logs; individual logs, `*.jsonl`; a directory from "
            "`suite run --out`, to compare its strategy with the baselines; or a study file, followed by the directory "
            "of its logs unless that is results/STUDY.",
            metavar="PATH...",
        ),
    ],
    out_dir: Annotated[
        Path | None,
        Option(
            "--out",
            help="The directory for the report [default: PATH/report for one directory, otherwise results/report].",
            metavar="DIR",
        ),
    ] = None,
    everything: Annotated[
        bool, Option("--all", help="Include runs and trials that are no longer part of the study.")
    ] = False,
    figures: Annotated[
        Format | None,
        Option(help="Write all charts to files too. A chart can also be saved from the page.", metavar="pdf|svg|png"),
    ] = None,
    latex: Annotated[
        bool,
        Option(
            "--latex",
            help="Write the ranking and the contrasts as LaTeX tables (tables.tex), and what to cite (references.bib).",
        ),
    ] = False,
    by: Annotated[
        CurveAxis | None,
        Option(
            help="Compare strategies by the area under the curve over trials or seconds [default: over seconds if "
            "these limit all runs].",
            metavar="trials|seconds",
        ),
    ] = None,
    site_dir: Annotated[
        Path | None,
        Option(
            "--publish",
            help="Publish each PATH (a study's directory, one from `suite run --out`, a bundle from `suite submit`, or "
            "a suite's name) to a static site in DIR instead, with its page, its data, and how to cite and verify it. "
            "Suites and bundles also have leaderboards. Results already on the site are kept.",
            metavar="DIR",
        ),
    ] = None,
    suite: parameters.SuitePath = "",
    full: Full = False,
    as_json: parameters.AsJson = False,
) -> None:
    """Compare runs: print tables, and write a page (report.html), CSV and JSON to the report's directory.

    In a study's directory, only the runs that are currently part of the study are compared: those of the last
    `searchlab run` or, if you pass the study file, those in the file. In any other directory, all runs are compared.
    """
    if site_dir:
        if out_dir or everything or figures or latex or by or as_json:
            raise SearchlabError(
                "--publish cannot be combined with --out, --all, --figures, --latex, --by or --json; run "
                "`report` for those"
            )
        _publish(site_dir, paths, suite)
        return
    with working("reading logs and writing the report"):
        study = None
        if any(path.suffix == ".toml" for path in paths):
            study, logs_dir = _load_study_and_logs(paths)
            paths = [logs_dir]
        report_dir = report_directory(*paths, out=out_dir)
        comparison = _compare_runs(study, paths, everything, by, suite)
        comparison.save(report_dir, figures=figures)
    summary = comparison.summary
    if latex:
        write_latex(summary, report_dir, _describe_policy_sources(summary))
    if as_json:
        say_json(summary.to_json())
        return
    show_report(summary, report_dir, full=full)
    if figures:
        say(f"the charts: {report_dir}/*.{figures}")
    if latex:
        say(f"the LaTeX tables: {report_dir / TABLES_NAME}, and what they cite: {report_dir / REFERENCES_NAME}")
    for path in paths:
        if path.is_dir() and any(map(is_locked, find_logs(path))):
            say(f"{path}: {StudyProgress(path)}")


def _compare_runs(
    study: Study | None, paths: Sequence[Path], everything: bool, by: CurveAxis | None, suite: str
) -> Comparison:
    """Compare the runs of ``study``, whose directory is the only path, or else those at ``paths``."""
    if study:
        return Comparison(read_study_runs(study, paths[0], everything=everything, by=by), study.spec.claims)
    if len(paths) == 1 and (paths[0] / RESULT_FILE_NAME).is_file() and not (everything or by):
        return Comparison(against_baselines(paths[0], suite)[0])
    runs = read_runs(*paths, everything=everything, by=by)
    return Comparison(runs, read_planned_claims(*paths))


def _publish(site_dir: Path, paths: Sequence[Path], suite: str) -> None:
    """Add the results at ``paths`` to a static site. Paths that do not exist may be the names of suites."""
    # Imported here because other reports do not need suites.
    from ..suite.leaderboard import make_bundle_publication, write_leaderboards

    suite_names = [str(path) for path in paths if not path.exists() and str(path) in find_installed_suites()]
    results = [
        make_bundle_publication(path, suite) if path.suffix == ".zip" else _make_publication(path, suite)
        for path in paths
        if str(path) not in suite_names
    ]
    cards = publish(site_dir, results, lambda out: write_leaderboards(out, suite_names, suite))
    say(f"the site is {site_dir / 'index.html'}, with {counted(len(cards), 'result')}")


def _describe_policy_sources(summary: Summary) -> dict[str, tuple[str, str, str]]:
    """Return the name, the source and the module's docstring of the algorithm behind each policy in a report."""
    policies = {row.policy for workload in summary.workloads for row in workload.strategies}
    return {
        name: (
            origin.name,
            f"{origin.version}; {origin.source}",
            inspect.getdoc(inspect.getmodule(POLICIES.load(name))) or "",
        )
        for name, origin in origins(policies).items()
    }


def _make_publication(result_dir: Path, suite: str) -> Publication:
    """Return the result to publish from a study's directory, or from a directory written by ``suite run --out``."""
    result_path = result_dir / RESULT_FILE_NAME
    if not result_path.is_file():
        return make_publication(result_dir)
    result = read_trajectories(result_path)
    compared_runs, strategy = against_baselines(result_dir, suite)
    trust_options = f" --policy {result.policy.name}" if ":" in result.policy.name else ""
    return Publication(
        f"{strategy} on {result.suite}",
        [f"searchlab suite verify .{trust_options}"],
        compared_runs,
        files=[result_path],
        machine=result.host,
        cite=[f"Also cite the suite {result.suite}: its directory contains a CITATION.cff."],
    )


def read_study_runs(
    study: Study, logs_dir: Path, *, everything: bool = False, by: CurveAxis | None = None
) -> ComparedRuns:
    """Read the logs of ``study``, and the suite's baselines to which the study refers."""
    if not study.baselines:
        return read_runs(logs_dir, everything=everything, by=by)
    return read_suite_study_runs(study, logs_dir)


def _load_study_and_logs(paths: Sequence[Path]) -> tuple[Study, Path]:
    """Return the study in ``paths`` and the directory with its logs, after updating its plan from the study file."""
    study_files = [path for path in paths if path.suffix == ".toml"]
    logs_dirs = [path for path in paths if path.suffix != ".toml"]
    if len(study_files) > 1 or len(logs_dirs) > 1 or not all(path.is_dir() for path in logs_dirs):
        raise SearchlabError(
            f"pass at most one directory with the study {study_files[0]}: the one that contains its logs"
        )
    logs_dir = logs_dirs[0] if logs_dirs else default_logs_dir(study_files[0])
    study = Study.load(study_files[0])
    runs = study.planned_runs()
    if not logs_dir.is_dir():
        raise SearchlabError(
            f"the directory {logs_dir} for the logs of {study_files[0]} does not exist; run the study first, or pass "
            f"the right directory"
        )
    write_plan(logs_dir, runs, study.spec.claims)
    return study, logs_dir


def show_report(summary: Summary, report_dir: Path, *, full: bool) -> None:
    """Print the tables of ``summary``, only the most important ones unless ``full``, and the path of its page."""
    out.print(*summary_table(summary, full=full), sep="\n")
    say(f"the report: {report_dir / 'report.html'} (its data are next to it)")


def power(
    study: Annotated[
        list[Path],
        Argument(
            help="A study file with runs in results/STUDY; logs or directories of logs; a directory from `suite run "
            "--out`, to compare its strategy with the baselines; or a suite, such as `v1/dev`, to compare a policy "
            "that has not run with the baseline in --strategy.",
            metavar="STUDY...",
        ),
    ],
    difference: Annotated[float, Option(help="The difference in area under the curve to detect, at most 1.")] = 0.02,
    chance: Annotated[float, Option("--power", help="The probability of detecting it, between 0 and 1.")] = 0.8,
    tests: Annotated[
        int | None,
        number_option(
            Trials, help="The number of tests in Holm's correction [default: all pairs, per workload and overall]."
        ),
    ] = None,
    registered: Annotated[
        int | None,
        number_option(
            Trials,
            help="The number of contrasts registered before the runs, if the pair is one of them; they are corrected "
            "separately from all other tests [default for a suite: 1].",
        ),
    ] = None,
    strategy: Annotated[
        str, Option(help="Compare only this strategy with the others, as for a claim about a single policy.")
    ] = "",
    suite: parameters.SuitePath = "",
    as_json: parameters.AsJson = False,
) -> None:
    """Estimate from existing runs how many seeds and workloads are needed to detect a difference."""
    check_option("difference", difference, Share)
    check_option("power", chance, Share)
    if tests and registered:
        raise SearchlabError("--tests and --registered cannot be combined; pass only one of them")
    is_suite = len(study) == 1 and not study[0].exists() and study[0].parts[0] in find_installed_suites()
    if is_suite:
        runs = _group_baseline_runs(study[0], strategy)
        registered = registered or (None if tests else 1)
    else:
        runs, new_strategy = _read_runs_to_compare(study, suite)
        strategy = strategy or new_strategy
    plan = plan_power(summarize(runs), difference, chance, tests, strategy, registered=registered, new=is_suite)
    if not plan.needs:
        raise SearchlabError(
            "no two strategies share two seeds with different results on any workload; run more seeds or trials"
        )
    if as_json:
        say_json(plan)
    else:
        _say_power(plan, difference, chance)


def _group_baseline_runs(name: Path, strategy: str) -> ComparedRuns:
    """Return the runs of the baselines of the suite ``name``, of which ``strategy`` must be one."""
    suite = find_suite(name)
    baseline_runs = read_baselines(suite)
    if not strategy:
        baseline_names = ", ".join(baseline.strategy for baseline in baseline_runs)
        raise SearchlabError(f"specify the baseline to compare with as --strategy; choose one of {baseline_names}")
    return group_suite_runs(suite, [], baseline_runs, range(suite.spec.seeds))


def _read_runs_to_compare(study: Sequence[Path], suite: str) -> tuple[ComparedRuns, str]:
    """Return the runs in ``study`` and, if they are a result over a suite with its baselines, the new strategy."""
    paths = [default_logs_dir(path) if path.suffix == ".toml" else path for path in study]
    if not any((path / RESULT_FILE_NAME).is_file() for path in paths):
        return read_runs(*paths), ""
    if len(paths) > 1:
        raise SearchlabError(
            "pass only the directory from `suite run --out`: it is compared with its suite's baselines"
        )
    return against_baselines(paths[0], suite)


def _say_power(plan: PowerPlan, difference: float, chance: float) -> None:
    columns = (
        "pair",
        "varies by seed",
        "by workload",
        "seeds, on one workload",
        f"seeds, on these {plan.workloads}",
        f"workloads like these, {plan.seeds} seeds each",
    )
    rows = (
        (
            f"{need.first}, {need.second}",
            f"{need.variation.seeds:.3f}",
            "-" if need.variation.workloads is None else f"{need.variation.workloads:.3f}",
            *("-" if n is None else f"{n:,}" for n in (need.seeds_alone, need.seeds_together, need.workloads)),
        )
        for need in plan.needs
    )
    tests_text = counted(plan.tests, "registered contrast" if plan.registered else "test")
    title = (
        f"To detect a difference of {difference:g} in area under the curve with a probability of {100 * chance:g} "
        f"%, as one of {tests_text}"
    )
    say_table(columns, rows, right_aligned=columns[1:], title=title, box=SIMPLE_HEAD)
    if plan.workloads == 1:
        out.print(
            "One workload does not show how much workloads vary; run the study on more workloads to plan for "
            "workloads like these."
        )
