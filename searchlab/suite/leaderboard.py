"""Leaderboards: for each split of a suite, a page with a sortable table of its baselines and of accepted bundles."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import msgspec
import numpy as np

from ..analysis.page.render import make_environment, make_page_assets
from ..analysis.publish import LEADERBOARD_PREFIX, Publication
from ..analysis.runs import TARGET_FRACTION
from ..arrays import Floats
from ..errors import SearchlabError
from ..files import copy_file, read_text, write_csv, write_file
from ..measure.suite import SPLITS, Suite, find_suite
from ..schema import UNREADABLE, convert
from ..stats.inference import Answer, paired_difference
from ..stats.intervals import Interval, mean_of_means_interval
from ..stats.ranks import ALPHA, holm
from .bundle import BUNDLE_SUFFIX, Bundle, find_bundle_problems, read_bundle
from .compare import choose_baselines, group_suite_runs
from .confined import BundleVerification
from .trajectories import RANDOM, Trajectories, read_baselines

CITATION_FILE = "CITATION.cff"

BUDGET_FRACTIONS = (1.0, 0.5, 0.25)
"""The shares of the protocol's trials after which strategies are compared."""

COLUMN_MEANINGS = {
    "strategy": "",
    "class": "Baseline, or what a submission's options were tuned on.",
    "area": "Mean over tables of the mean area under the curve over seeds, with its 95 % interval for these tables.",
    "group": "Strategies that share a letter cannot be told apart (paired t tests, corrected by Holm's procedure).",
    "over random": "The difference in area from random search, with its 95 % interval.",
    "behind the leader": "The difference in area from the strategy with the largest, with its 95 % interval.",
    "trials to 95\N{NO-BREAK SPACE}%": "The median number of trials until 95 % of the best throughput is reached.",
    "failed": "The share of trials that failed.",
    "CPU ms a trial": "The CPU time for proposing and learning, divided by the number of trials, on the authors' CPU.",
}
"""The columns, with their meanings."""


@dataclass(frozen=True)
class LeaderboardRow:
    """A strategy in a leaderboard.

    Attributes:
        behind_leader: The difference in area from the leader, or None for the leader.
        trials_to_target: The median number of trials until the target is reached, infinite if it is not.
        failed_fraction: The share of its trials that failed.
    """

    strategy: str
    track: str
    area: Interval
    over_random: Interval | None
    behind_leader: Interval | None
    group: str
    trials_to_target: float
    failed_fraction: float
    cpu_milliseconds_per_trial: float

    def format_cells(self) -> list[str]:
        """Return the texts of the columns after the first."""
        return [
            self.track,
            self.area.text(),
            self.group,
            "-" if self.over_random is None else self.over_random.text("+"),
            "-" if self.behind_leader is None else self.behind_leader.text(),
            f"{self.trials_to_target:.0f}" if np.isfinite(self.trials_to_target) else "not reached",
            f"{100 * self.failed_fraction:.1f} %",
            f"{self.cpu_milliseconds_per_trial:.3g}",
        ]


class Leaderboard:
    """The strategies that ran on every table of a split, ranked on all or some of its tables.

    Args:
        suite_part: A split of a suite.
        results: The result of each strategy.
        tracks: The class of each submission, by strategy; all others are baselines.
    """

    def __init__(self, suite_part: Suite, results: Sequence[Trajectories], tracks: Mapping[str, str]) -> None:
        table_names = [table.entry.name for table in suite_part.tables]
        self.suite_part, self._tracks_by_strategy = suite_part, tracks
        self._results_by_strategy = {
            result.strategy: result for result in results if {*table_names} <= result.tables.keys()
        }
        self._curves: dict[tuple[str, str], Floats] = {}
        self._failed_fractions: dict[tuple[str, str], Floats] = {}
        for table in suite_part.tables:
            for strategy, result in self._results_by_strategy.items():
                key = strategy, table.entry.name
                self._curves[key] = result.compute_curves(table, suite_part.spec.trials)
                self._failed_fractions[key] = np.array([np.isinf(costs).mean() for costs in result.costs_on(table)])

    def list_selections(self) -> dict[str, list[str]]:
        """Return the sets of tables to choose from: all of them, and those of each family and device."""
        tables_by_selection: dict[str, list[str]] = {f"all {len(self.suite_part.tables)} tables": []}
        for table in self.suite_part.tables:
            tables_by_selection[next(iter(tables_by_selection))].append(table.entry.name)
            for selection in filter(None, (table.entry.family, table.entry.workload.partition("@")[2])):
                tables_by_selection.setdefault(selection, []).append(table.entry.name)
        return tables_by_selection

    def make_rows(self, table_names: Sequence[str], trial_count: int) -> list[LeaderboardRow]:
        """Return the strategies by area after ``trial_count`` trials on ``table_names``, the largest first."""
        areas = {
            strategy: [self._curves[strategy, name][:, :trial_count].mean(axis=1) for name in table_names]
            for strategy in self._results_by_strategy
        }
        ranked_strategies = sorted(
            areas, key=lambda strategy: -float(np.mean([area.mean() for area in areas[strategy]]))
        )
        differences: dict[tuple[str, str], Answer] = {}
        for first, second in combinations(ranked_strategies, 2):
            if all(len(a) == len(b) for a, b in zip(areas[first], areas[second], strict=True)):
                differences[first, second] = paired_difference(areas[first], areas[second]).on_these
        group_letters = _assign_groups(ranked_strategies, differences)
        rows = []
        for strategy in ranked_strategies:
            result = self._results_by_strategy[strategy]
            curves = [self._curves[strategy, name][:, :trial_count] for name in table_names]
            is_reached = [curve >= TARGET_FRACTION for curve in curves]
            first_trials = [np.where(run.any(axis=1), run.argmax(axis=1) + 1, np.inf) for run in is_reached]
            rows.append(
                LeaderboardRow(
                    strategy=strategy,
                    track=self._tracks_by_strategy.get(strategy, "baseline"),
                    area=mean_of_means_interval(areas[strategy]),
                    over_random=_find_difference(differences, strategy, RANDOM),
                    behind_leader=_find_difference(differences, strategy, ranked_strategies[0]),
                    group=group_letters[strategy],
                    trials_to_target=float(np.median(np.concatenate(first_trials))),
                    failed_fraction=float(
                        np.mean([self._failed_fractions[strategy, name].mean() for name in table_names])
                    ),
                    cpu_milliseconds_per_trial=1e3 * result.own_seconds / result.trial_count,
                )
            )
        return rows


def _find_difference(differences: Mapping[tuple[str, str], Answer], first: str, second: str) -> Interval | None:
    """Return the area of ``first`` minus that of ``second``."""
    if (first, second) in differences:
        return differences[first, second].difference
    return -differences[second, first].difference if (second, first) in differences else None


def _assign_groups(ranked_strategies: Sequence[str], differences: Mapping[tuple[str, str], Answer]) -> dict[str, str]:
    """Return the letters of each strategy's groups, in which no two strategies can be told apart."""
    tested_pairs = [pair for pair, answer in differences.items() if answer.p is not None]
    corrected_p_values = holm(np.array([differences[pair].p for pair in tested_pairs]))
    p_values = dict(zip(tested_pairs, corrected_p_values.tolist(), strict=True))
    group_bounds: list[tuple[int, int]] = []  # the first and last position of each group
    for start in range(len(ranked_strategies)):
        end = start
        while end + 1 < len(ranked_strategies) and all(
            p_values.get((ranked_strategies[i], ranked_strategies[end + 1]), 1.0) > ALPHA for i in range(start, end + 1)
        ):
            end += 1
        if not group_bounds or end > group_bounds[-1][1]:
            group_bounds.append((start, end))
    return {
        name: "".join(
            chr(ord("a") + number) for number, (start, end) in enumerate(group_bounds) if start <= position <= end
        )
        for position, name in enumerate(ranked_strategies)
    }


# --- the site ---------------------------------------------------------------------------------------------------------


def make_bundle_publication(path: Path, suite_path: str = "") -> Publication:
    """Return the result to publish from a bundle, with ``NAME.json`` from ``suite verify --out`` if it is next to it.

    Raises SearchlabError if the bundle is refused, or if the verification is of another bundle or has found a problem.
    """
    bundle = read_bundle(path)
    submission = bundle.submission
    suite = find_suite(suite_path or submission.suite).select_split(None)
    if problems := list(find_bundle_problems(bundle, suite)):
        raise SearchlabError(f"the bundle {path} is refused: {'; '.join(problems)}")
    statements = ["Its data agree with the suite, but its runs have not been replayed."]
    paths = [path]
    if (verification_path := path.with_suffix(".json")).is_file():
        verification = _read_verification(verification_path, bundle)
        paths.append(verification_path)
        statements = [
            f"{verification.runs:,} of {verification.total:,} runs were replayed on {verification.date}.",
            *(f"Not checked: {reason}." for reason in verification.unchecked),
        ]
    result = bundle.results.get("test") or bundle.results["dev"]
    suite_part = suite.select_split("test" if "test" in bundle.results else "dev")
    baseline_runs = read_baselines(suite, choose_baselines(suite))
    seeds = {run.seed for _, run in result.named_runs}
    return Publication(
        f"{submission.name} on {submission.suite}",
        [f"searchlab suite verify {path.name} --all --trust  # runs the code below"],
        group_suite_runs(suite_part, [result], baseline_runs, seeds),
        files=paths,
        machine=result.host,
        cite=[
            submission.citation,
            f"Also cite the suite {suite.spec.version}: its directory contains a {CITATION_FILE}.",
        ],
        about=[submission.description, f"By {', '.join(submission.authors)}. Licence: {submission.licence or 'none'}."],
        source={name: content.decode() for name, content in bundle.source_files.items()},
        verified=statements,
    )


def _read_verification(path: Path, bundle: Bundle) -> BundleVerification:
    try:
        verification: BundleVerification = convert(msgspec.json.decode(read_text(path)), BundleVerification, str(path))
    except UNREADABLE as error:
        raise SearchlabError(
            f"{path} is damaged: {error}; write it again with `searchlab suite verify --out`"
        ) from None
    if verification.bundle != bundle.digest or verification.problems:
        raise SearchlabError(
            f"{path} does not verify {bundle.path}: it "
            + (f"found that {verification.problems[0]}" if verification.problems else "is of another bundle")
        )
    return verification


def write_leaderboards(site_dir: Path, suites: Collection[str] = (), suite_path: str = "") -> list[str]:
    """Write the leaderboards of ``suites`` and of all bundles' suites to ``site_dir``, and return their file names.

    Each leaderboard has a table for each set of tables and budget. ``suite_path`` is the path of the bundles' suite, if
    it cannot be found by name.
    """
    bundles = {path.parent.name: read_bundle(path) for path in sorted(site_dir.glob(f"[!.]*/*{BUNDLE_SUFFIX}"))}
    page_names = []
    for name in dict.fromkeys([*suites, *(suite_path or bundle.submission.suite for bundle in bundles.values())]):
        suite = find_suite(name).select_split(None)
        baseline_runs = read_baselines(suite)
        suite_bundles = {
            folder: bundle for folder, bundle in bundles.items() if bundle.submission.suite == suite.spec.version
        }
        for split in SPLITS:
            suite_part = suite.select_split(split)
            submitted_bundles = {folder: bundle for folder, bundle in suite_bundles.items() if split in bundle.results}
            if suite_part.tables and (baseline_runs or submitted_bundles):
                page_names.append(_write_leaderboard(site_dir, suite_part, baseline_runs, submitted_bundles))
    return page_names


def _write_leaderboard(
    site_dir: Path, suite_part: Suite, baseline_runs: Sequence[Trajectories], submitted_bundles: Mapping[str, Bundle]
) -> str:
    version, split = suite_part.spec.version, suite_part.split or "dev"
    tracks = {bundle.submission.name: bundle.submission.track for bundle in submitted_bundles.values()}
    folders = {bundle.submission.name: folder for folder, bundle in submitted_bundles.items()}
    leaderboard = Leaderboard(
        suite_part, [*(bundle.results[split] for bundle in submitted_bundles.values()), *baseline_runs], dict(tracks)
    )
    trial_counts = [round(fraction * suite_part.spec.trials) for fraction in BUDGET_FRACTIONS]
    selections = leaderboard.list_selections()
    rankings = [
        (title, trial_count, leaderboard.make_rows(names, trial_count))
        for title, names in selections.items()
        for trial_count in trial_counts
    ]
    file_stem = f"{LEADERBOARD_PREFIX}{version}-{split}"
    csv_rows = [
        [title, str(trials), row.strategy, *row.format_cells()] for title, trials, rows in rankings for row in rows
    ]
    write_csv(site_dir / f"{file_stem}.csv", ["tables", "trials", *COLUMN_MEANINGS], csv_rows)
    data_files = [f"{file_stem}.csv"]
    if (suite_part.directory / CITATION_FILE).is_file():
        copy_file(
            suite_part.directory / CITATION_FILE, site_dir / f"{version}-{CITATION_FILE}", under=suite_part.directory
        )
        data_files.append(f"{version}-{CITATION_FILE}")
    template_variables = {
        "title": f"Leaderboard of {version}, {split} split",
        "columns": COLUMN_MEANINGS,
        "tables": rankings,
        "selections": list(selections),
        "budgets": trial_counts,
        "classes": list(dict.fromkeys(["baseline", *tracks.values()])),
        "folders": folders,
        "files": data_files,
        "seeds": suite_part.spec.seeds,
    }
    template = make_environment().get_template("leaderboard.html.jinja")
    write_file(
        site_dir / f"{file_stem}.html",
        template.render(make_page_assets("sort.js", "leaderboard.js") | template_variables),
    )
    return f"{file_stem}.html"
