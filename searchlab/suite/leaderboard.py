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
from .bundle import BUNDLE_SUFFIX, Bundle, bundle_problems, read_bundle
from .compare import compare, default_baselines
from .confined import BundleVerification
from .trajectories import RANDOM, RecordedTables, Trajectories, baselines

CITATION = "CITATION.cff"

BUDGETS = (1.0, 0.5, 0.25)
"""The shares of the protocol's trials after which strategies are compared."""

COLUMNS = {
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
        behind: The difference from the leader, or None for the leader.
        folder: The folder of its page, if it is a bundle.
    """

    strategy: str
    track: str
    area: Interval
    over_random: Interval | None
    behind: Interval | None
    group: str
    trials: float
    failed: float
    milliseconds: float
    folder: str = ""

    def cells(self) -> list[str]:
        """Return the texts of the columns after the first."""
        return [
            self.track,
            self.area.text(),
            self.group,
            "-" if self.over_random is None else self.over_random.text("+"),
            "-" if self.behind is None else self.behind.text(),
            f"{self.trials:.0f}" if np.isfinite(self.trials) else "not reached",
            f"{100 * self.failed:.1f} %",
            f"{self.milliseconds:.3g}",
        ]


class Leaderboard:
    """The strategies that ran on every table of a split, ranked on all or some of its tables.

    Args:
        part: A split of a suite.
        results: The result of each strategy.
        tracks: The class of each submission, by strategy; all others are baselines.
    """

    def __init__(self, part: Suite, results: Sequence[Trajectories], tracks: Mapping[str, str]) -> None:
        names = [table.entry.name for table in part.tables]
        self.part, self._tracks = part, tracks
        self._results = {result.strategy: result for result in results if {*names} <= result.tables.keys()}
        self._curves: dict[tuple[str, str], Floats] = {}
        self._failed: dict[tuple[str, str], Floats] = {}
        recorded_tables = RecordedTables(part)
        for name in names:
            table = recorded_tables[name]
            for strategy, result in self._results.items():
                self._curves[strategy, name] = table.curves(result, part.spec.trials)
                self._failed[strategy, name] = np.array([np.isinf(costs).mean() for costs in table.costs_of(result)])

    def selections(self) -> dict[str, list[str]]:
        """Return the sets of tables to choose from: all of them, and those of each family and device."""
        sets: dict[str, list[str]] = {f"all {len(self.part.tables)} tables": []}
        for table in self.part.tables:
            sets[next(iter(sets))].append(table.entry.name)
            for key in filter(None, (table.entry.family, table.entry.workload.partition("@")[2])):
                sets.setdefault(key, []).append(table.entry.name)
        return sets

    def rows(self, tables: Sequence[str], trials: int) -> list[LeaderboardRow]:
        """Return the strategies by area after ``trials`` trials on ``tables``, the largest first."""
        areas = {
            strategy: [self._curves[strategy, name][:, :trials].mean(axis=1) for name in tables]
            for strategy in self._results
        }
        order = sorted(areas, key=lambda strategy: -float(np.mean([area.mean() for area in areas[strategy]])))
        differences: dict[tuple[str, str], Answer] = {}
        for first, second in combinations(order, 2):
            if all(len(a) == len(b) for a, b in zip(areas[first], areas[second], strict=True)):
                differences[first, second] = paired_difference(areas[first], areas[second]).on_these
        groups = _groups(order, differences)
        rows = []
        for strategy in order:
            result, curves = self._results[strategy], [self._curves[strategy, name][:, :trials] for name in tables]
            is_reached = [curve >= TARGET_FRACTION for curve in curves]
            first_trials = [np.where(run.any(axis=1), run.argmax(axis=1) + 1, np.inf) for run in is_reached]
            rows.append(
                LeaderboardRow(
                    strategy=strategy,
                    track=self._tracks.get(strategy, "baseline"),
                    area=mean_of_means_interval(areas[strategy]),
                    over_random=_difference(differences, strategy, RANDOM),
                    behind=_difference(differences, strategy, order[0]),
                    group=groups[strategy],
                    trials=float(np.median(np.concatenate(first_trials))),
                    failed=float(np.mean([self._failed[strategy, name].mean() for name in tables])),
                    milliseconds=1e3 * result.own_seconds / result.trials,
                )
            )
        return rows


def _difference(differences: Mapping[tuple[str, str], Answer], first: str, second: str) -> Interval | None:
    """Return the area of ``first`` minus that of ``second``."""
    if (first, second) in differences:
        return differences[first, second].difference
    return -differences[second, first].difference if (second, first) in differences else None


def _groups(order: Sequence[str], differences: Mapping[tuple[str, str], Answer]) -> dict[str, str]:
    """Return the letters of each strategy's groups, in which no two strategies can be told apart."""
    pairs = [pair for pair, answer in differences.items() if answer.p is not None]
    p_values = dict(zip(pairs, holm(np.array([differences[pair].p for pair in pairs])).tolist(), strict=True))
    ends: list[tuple[int, int]] = []  # the first and last position of each group
    for start in range(len(order)):
        end = start
        while end + 1 < len(order) and all(
            p_values.get((order[i], order[end + 1]), 1.0) > ALPHA for i in range(start, end + 1)
        ):
            end += 1
        if not ends or end > ends[-1][1]:
            ends.append((start, end))
    return {
        name: "".join(chr(ord("a") + k) for k, (start, end) in enumerate(ends) if start <= position <= end)
        for position, name in enumerate(order)
    }


# --- the site ---------------------------------------------------------------------------------------------------------


def bundle_result(path: Path, suite_path: str = "") -> Publication:
    """Return the result to publish from a bundle, with ``NAME.json`` from ``suite verify --out`` if it is next to it.

    Raises SearchlabError if the bundle is refused, or if the verification is of another bundle or has found a problem.
    """
    bundle = read_bundle(path)
    submission = bundle.submission
    suite = find_suite(suite_path or submission.suite).select_split(None)
    if problems := list(bundle_problems(bundle, suite)):
        raise SearchlabError(f"the bundle {path} is refused: {'; '.join(problems)}")
    statements = ["Its data agree with the suite, but its runs have not been replayed."]
    files = [path]
    if (record := path.with_suffix(".json")).is_file():
        verification = _read_verification(record, bundle)
        files.append(record)
        statements = [
            f"{verification.runs:,} of {verification.total:,} runs were replayed on {verification.date}.",
            *(f"Not checked: {reason}." for reason in verification.unchecked),
        ]
    result = bundle.results.get("test") or bundle.results["dev"]
    part = suite.select_split("test" if "test" in bundle.results else "dev")
    baseline_runs = baselines(suite, default_baselines(suite))
    seeds = {run.seed for table_runs in result.tables.values() for run in table_runs.runs}
    return Publication(
        f"{submission.name} on {submission.suite}",
        [f"searchlab suite verify {path.name} --all --trust  # runs the code below"],
        compare(part, [result], baseline_runs, seeds),
        files=files,
        machine=result.host,
        cite=[submission.citation, f"Also cite the suite {suite.spec.version}: its directory contains a {CITATION}."],
        about=[submission.description, f"By {', '.join(submission.authors)}. Licence: {submission.licence or 'none'}."],
        source={name: content.decode() for name, content in bundle.source.items()},
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


def write_leaderboards(site: Path, suites: Collection[str] = (), suite_path: str = "") -> list[str]:
    """Write the leaderboards of ``suites``, and of the suites of all bundles on ``site``, and return their file names.

    Each leaderboard has a table for each set of tables and budget. ``suite_path`` is the path of the bundles' suite, if
    it cannot be found by name.
    """
    bundles = {path.parent.name: read_bundle(path) for path in sorted(site.glob(f"[!.]*/*{BUNDLE_SUFFIX}"))}
    standings = []
    for name in dict.fromkeys([*suites, *(suite_path or bundle.submission.suite for bundle in bundles.values())]):
        suite = find_suite(name).select_split(None)
        baseline_runs = baselines(suite)
        suite_bundles = {
            key: bundle for key, bundle in bundles.items() if bundle.submission.suite == suite.spec.version
        }
        for split in SPLITS:
            part = suite.select_split(split)
            submitted_bundles = {folder: bundle for folder, bundle in suite_bundles.items() if split in bundle.results}
            if part.tables and (baseline_runs or submitted_bundles):
                standings.append(_write_leaderboard(site, part, baseline_runs, submitted_bundles))
    return standings


def _write_leaderboard(
    site: Path, part: Suite, baseline_runs: Sequence[Trajectories], submitted_bundles: Mapping[str, Bundle]
) -> str:
    version, split = part.spec.version, part.split or "dev"
    tracks = {bundle.submission.name: bundle.submission.track for bundle in submitted_bundles.values()}
    folders = {bundle.submission.name: folder for folder, bundle in submitted_bundles.items()}
    board = Leaderboard(
        part, [*(bundle.results[split] for bundle in submitted_bundles.values()), *baseline_runs], dict(tracks)
    )
    budgets = [round(share * part.spec.trials) for share in BUDGETS]
    selections = board.selections()
    tables = [(title, trials, board.rows(names, trials)) for title, names in selections.items() for trials in budgets]
    stem = f"{LEADERBOARD_PREFIX}{version}-{split}"
    lines = [[title, str(trials), row.strategy, *row.cells()] for title, trials, rows in tables for row in rows]
    write_csv(site / f"{stem}.csv", ["tables", "trials", *COLUMNS], lines)
    files = [f"{stem}.csv"]
    if (part.directory / CITATION).is_file():
        copy_file(part.directory / CITATION, site / f"{version}-{CITATION}", under=part.directory)
        files.append(f"{version}-{CITATION}")
    fields = {
        "title": f"Leaderboard of {version}, {split} split",
        "columns": COLUMNS,
        "tables": tables,
        "selections": list(selections),
        "budgets": budgets,
        "classes": list(dict.fromkeys(["baseline", *tracks.values()])),
        "folders": folders,
        "files": files,
        "seeds": part.spec.seeds,
    }
    template = make_environment().get_template("leaderboard.html.jinja")
    write_file(site / f"{stem}.html", template.render(make_page_assets("sort.js", "leaderboard.js") | fields))
    return f"{stem}.html"
