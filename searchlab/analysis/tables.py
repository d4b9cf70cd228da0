"""The tables of numbers that a report writes to files, and that Python returns as pandas frames."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ..log.plan import Claim
from ..units import VALUES, convert_throughput
from .measures import OverallStrategy, StrategySummary
from .model import Comparand, Contrast, Summary
from .programs import BestProgram
from .runs import ComparedRuns

if TYPE_CHECKING:
    import pandas as pd


class Rows(NamedTuple):
    """A table whose rows have a value or None for each of ``columns``. The rows can be iterated over only once."""

    columns: Sequence[str]
    rows: Iterable[Sequence[Any]]

    def frame(self) -> pd.DataFrame:
        """Return the table as a pandas frame, with NaN instead of None so that columns of numbers are numeric."""
        import pandas as pd

        data = [[math.nan if value is None else value for value in row] for row in self.rows]
        return pd.DataFrame(data, columns=list(self.columns))


CONTRAST_COLUMNS = (
    *("first", "second", "test", "runs", "difference", "lower", "upper", "p", "adjusted_p"),
    *("others_lower", "others_upper", "others_adjusted_p"),
)
CLAIM_COLUMNS = tuple(name for name in Claim.__struct_fields__ if name != "against")
RUN_COLUMNS = (
    *("workload", "space", "strategy", "seed", "trials", "compared", "area", "area_by_seconds", "score", "best_gflops"),
    *("trials_to_target", "seconds_to_target", "failed_trials", "optimum_gflops", "unit"),
)
COMPRESSED = ("runs", "contrasts", "programs")  # the tables with a row for each run or pair


def number_tables(summary: Summary, comparison: ComparedRuns, programs: Iterable[BestProgram] = ()) -> dict[str, Rows]:
    """Return the tables that a report writes, by name; see :func:`report`."""
    items, overall = summary.workloads, summary.overall
    ranks = overall.ranks if overall else {}
    strategies = ((item.workload, row.strategy, *row.cells, item.unit) for item in items for row in item.strategies)
    contrasts = [*((item.workload, item.contrasts) for item in items), *([("", overall.contrasts)] if overall else [])]
    over_all = ((row.strategy, ranks[row.strategy], *row.cells) for row in (overall.strategies if overall else ()))
    return {
        "summary": _in_units(Rows(("workload", "strategy", *StrategySummary.names(), "unit"), strategies)),
        "runs": _in_units(Rows(RUN_COLUMNS, run_rows(summary, comparison))),
        "contrasts": Rows(
            ("workload", *CONTRAST_COLUMNS),
            ((name, *_contrast_values(contrast)) for name, compared in contrasts for contrast in compared),
        ),
        "importances": Rows(
            ("workload", "space", "knob", "importance", "values", "best_value"),
            (
                (item.workload, space.space, knob, importance, len(set(values)), values[space.throughput.argmax()])
                for item in comparison.values()
                for space in item.spaces
                for knob, importance in space.importances.items()
                for values in [space.knobs[knob]]
            ),
        ),
        "programs": _in_units(
            Rows(
                BestProgram.__struct_fields__,
                ([_value_text(value) for value in msgspec.structs.astuple(program)] for program in programs),
            )
        ),
        "overall": Rows(("strategy", "rank", *OverallStrategy.names()), over_all),
        "published_claims": Rows(
            ("claim", *CLAIM_COLUMNS, "claim_verdict", *Comparand.__struct_fields__),
            (
                (
                    number,
                    *(getattr(verdict.claim, name) for name in CLAIM_COLUMNS),
                    verdict.verdict,
                    *msgspec.structs.astuple(other),
                )
                for number, verdict in enumerate(summary.claims, 1)
                for other in verdict.against
            ),
        ),
    }


def _in_units(table: Rows) -> Rows:
    """Return the table with values instead of throughputs in the rows of functions that are maximised or minimised."""

    def convert(name: str, value: Any, unit: str) -> Any:
        is_number = unit in VALUES and "gflops" in name and value is not None
        return float(f"{convert_throughput(value, unit):.9g}") if is_number else value

    at = table.columns.index("unit")
    rows = (
        [convert(name, value, row[at]) for name, value in zip(table.columns, row, strict=True)] for row in table.rows
    )
    return Rows(table.columns, rows)


def _contrast_values(contrast: Contrast) -> tuple[Any, ...]:
    difference, these, others = contrast.difference, contrast.difference.on_these, contrast.difference.on_others
    return (
        *(contrast.first, contrast.second, contrast.test, contrast.runs),
        difference.value if difference.workloads else None,
        *(these.difference.lower, these.difference.upper, contrast.p, contrast.adjusted),
        *(others.difference.lower, others.difference.upper, others.p),
    )


def _value_text(value: Any) -> Any:
    """Return a config as JSON, the numbers in a list as a text, and other values as they are."""
    if isinstance(value, dict):
        return msgspec.json.encode(value).decode()
    return " ".join(map(str, value)) if isinstance(value, list) else value


def run_rows(summary: Summary, comparison: ComparedRuns) -> Iterator[tuple[Any, ...]]:
    """Iterate over the rows of ``runs.csv.gz``: a row for each run that has trials."""
    for item in summary.workloads:
        for name, group in comparison[item.workload].strategies.items():
            row = item.by_strategy[name]
            missing = [None] * len(row.seeds)
            areas = row.area.by_seed, row.area_by_seconds.by_seed if row.area_by_seconds else missing
            times = row.trials_to_target.by_seed, row.seconds_to_target.by_seed
            by_seed = dict(zip(row.seeds, zip(*areas, row.score_by_seed or missing, *times, strict=True), strict=True))
            for run in group.runs:
                *own_areas, trials, seconds = by_seed.get(run.seed, [None] * 5)
                best = float(run.curve[: item.horizon][-1])
                labels = (item.workload, run.space, name, run.seed, run.log.trials, run.seed in by_seed)
                optimum = run.log.header.optimum
                optimum_gflops = run.log.flops / optimum / 1e9 if optimum else None
                failed = int((run.log.failures >= 0).sum())
                numbers = [*own_areas, best, trials, seconds]
                digits = [None if number is None else float(f"{number:.9g}") for number in numbers]
                yield *labels, *digits, failed, optimum_gflops, run.log.unit
