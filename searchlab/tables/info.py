"""Describing a table: its share of the space, the speed of its programs, and how noisy and steady the machine was.

If a table's times depend on when they were measured, drift of the machine looks like an effect of the knobs.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from ..analysis.words import counted
from ..arrays import Floats
from ..console import format_speed
from ..log.format import TABLE_LABEL, Log, Passes
from ..log.reliability import measure_noise
from ..units import VALUES, convert_throughput
from .landscape import Landscape, format_share
from .passes import MAX_DEVIATION

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)

NEAR_FRACTIONS = (0.05, 0.10)
"""The fractions by which the configs that count as near the best are slower than it, at most."""

MIN_BLOCK_READINGS = 64
"""The minimum number of readings in a time block of a table that was timed in passes."""

BLOCK_COUNT = 16
"""The number of time blocks in a table that was timed once."""

MIN_PROGRAMS = 10
"""The minimum number of programs in each of these blocks; a smaller table is not tested."""

SIGNIFICANCE_LEVEL = 1e-3


@dataclass(frozen=True)
class TableInfo:
    """A summary of a table, or any other log, computed from the log alone."""

    log: Log

    @cached_property
    def gflops(self) -> Floats:
        """The throughput of each config that runs, ascending, in GFLOPS or the log's ``unit``."""
        costs = self.log.costs
        return np.sort(self.log.flops / costs[np.isfinite(costs)] / 1e9)

    @property
    def config_count(self) -> int:
        return len(self.log.records)

    @property
    def is_exhaustive(self) -> bool | None:
        """Whether the table contains all configs of the space, or None if the space's size was not recorded."""
        size = self.log.header.space_size
        return None if size is None else self.config_count >= size

    @property
    def best(self) -> float:
        """The throughput of the best config, in the log's unit, or 0 if no config runs."""
        return float(self.gflops[-1]) if len(self.gflops) else 0.0

    def count_near_best(self, fraction: float) -> int:
        """Return the number of configs that reach at least 1 - ``fraction`` of the best throughput."""
        return int((self.gflops >= (1 - fraction) * self.best).sum())

    @property
    def noise(self) -> float | None:
        """The median of (slowest - fastest) / cost over all configs, or None without repeats."""
        return measure_noise(self.log)

    @cached_property
    def landscape(self) -> Landscape:
        return Landscape.from_log(self.log, is_exhaustive=bool(self.is_exhaustive))

    @cached_property
    def unsteady_reason(self) -> str:
        return explain_unsteadiness(self.log)

    @property
    def failure_counts(self) -> dict[str, int]:
        return dict(Counter(str(record.failure) for record in self.log.records if record.failure).most_common())

    @property
    def failure_count(self) -> int:
        return sum(self.failure_counts.values())

    @property
    def nearest(self) -> int:
        return sum(record.nearest for record in self.log.records)

    @property
    def seconds(self) -> float:
        """All seconds charged for the trials in the log."""
        return float(self.log.elapsed_seconds[-1]) if self.log.records else 0.0

    def describe(self) -> dict[str, str]:
        """Return descriptions of the configs, their speed and their noise, by title. Some may be empty."""
        passes = self.log.header.passes
        return {
            "configs": self._describe_configs(),
            "taken from the nearest": f"{self.nearest:,}" if self.nearest else "",
            "failed": self._describe_failures(),
            **self._describe_speeds(),
            **(self.landscape.describe() if self.best else {}),
            "timed": "" if passes is None else _describe_passes(passes),
            "spread of the repeats": "" if self.noise is None else f"{100 * self.noise:.1f} % (median)",
        }

    def _describe_configs(self) -> str:
        size = self.log.header.space_size
        if size is None:
            return f"{self.config_count:,} of a space that was not counted"
        if self.is_exhaustive:
            return f"{self.config_count:,}, all of the space"
        return f"{self.config_count:,} of {size:,} ({100 * self.config_count / size:.1f} %)"

    def _describe_failures(self) -> str:
        if not self.failure_count:
            return "none"
        failure_kinds = ", ".join(f"{name} {count:,}" for name, count in sorted(self.failure_counts.items()))
        return f"{self.failure_count:,} ({100 * self.failure_count / self.config_count:.1f} %): {failure_kinds}"

    def _describe_speeds(self) -> dict[str, str]:
        if not self.best:
            return {"best": "no config runs"}
        throughput = convert_throughput(self.gflops, self.log.unit)
        quantiles = (f"{100 * q:g} %: {np.quantile(throughput, q):.4g}" for q in QUANTILES)
        milliseconds = float(self.log.costs.min()) * 1e3
        descriptions = {"best": f"{self.best:.4g} {self.log.unit}, {milliseconds:.4g} ms"}
        if self.log.unit in VALUES:
            descriptions["best"] = format_speed(self.best, self.log.unit)
        descriptions[f"{self.log.unit} by quantile"] = ", ".join(quantiles)
        for fraction in NEAR_FRACTIONS:
            near_count = self.count_near_best(fraction)
            descriptions[f"within {100 * fraction:g} % of the best"] = (
                f"{counted(near_count, 'config')}, {format_share(near_count / self.config_count)}"
            )
        return descriptions

    def to_json(self) -> dict[str, Any]:
        header = msgspec.to_builtins(self.log.header)
        changes = [{"trials": change.trial_count, "versions": change.versions} for change in self.log.changes]
        header_fields = ("workload", "space", "fingerprint", "target", "measure", "host", "created", "versions")
        data = {"file": str(self.log.path)} | {name: header[name] for name in header_fields}
        data |= {
            "changes": changes,
            "configs": self.config_count,
            "space_size": self.log.header.space_size,
            "exhaustive": self.is_exhaustive,
            "failures": self.failure_counts,
            "nearest": self.nearest,
            "noise": self.noise,
            "unsteady": self.unsteady_reason,
            "passes": header["passes"],
            "seconds": self.seconds,
        }
        if len(self.gflops):
            data |= {
                "unit": self.log.unit,
                "gflops": {"best": self.gflops[-1], "median": np.median(self.gflops), "worst": self.gflops[0]},
                "quantiles": {f"{q:g}": np.quantile(self.gflops, q) for q in QUANTILES},
                "near_best": self.count_near_best(NEAR_FRACTIONS[0]) / self.config_count,
                "landscape": self.landscape.to_json(),
            }
        return data


def _describe_passes(passes: Passes) -> str:
    return (
        f"in {passes.count} passes, each in another order; {passes.repeated_block_count} blocks of "
        f"{passes.block_size} again; the fastest {passes.finalist_count} in turn, {passes.round_count} times"
    )


def make_info_table(info: TableInfo) -> Table:
    """Return a description of a table for the terminal."""
    header = info.log.header
    options = ", ".join(f"{name} = {value}" for name, value in header.space.options.items())
    descriptions = {
        "workload": header.workload,
        "space": header.space.name + (f" with {options}" if options else ""),
        "target": format_values({name: value for name, value in header.target.items() if name != "caches"}),
        "host": ", ".join(map(str, header.host.values())),
        "measured": format_date(info.log) if header.created_at else "",
        "versions": format_versions(info.log),
        **info.describe(),
        "refused": info.unsteady_reason
        and f"{info.unsteady_reason}; rebuild the table in passes when the machine is idle",
        "seconds charged": f"{info.seconds:,.0f}",
    }
    table = Table(title=Text(str(info.log.path), "italic"), title_justify="left", box=SIMPLE_HEAD, show_header=False)
    for name, text in descriptions.items():
        if text:
            table.add_row(Text(name, "bold"), Text(text))
    return table


def format_date(log: Log) -> str:
    """Return the day on which a log was begun, as in ``2026-01-31``."""
    return datetime.fromtimestamp(log.header.created_at, UTC).strftime("%Y-%m-%d")


def format_values(values: dict[str, Any]) -> str:
    """Return names and values on one line, without values that are empty strings."""
    return ", ".join(f"{name} {value}" for name, value in values.items() if value != "")


def format_versions(log: Log) -> str:
    """Return the versions of the libraries that a log records, for the trials before and after each change."""
    (_, first), *later = log.version_spans
    return ", then ".join(
        [format_values(first), *(f"from trial {trial} on {format_values(versions)}" for trial, versions in later)]
    )


def explain_unsteadiness(log: Log) -> str:
    """Return why the times of the table ``log`` are unusable, or "" if they are usable or ``log`` is not a table.

    If the table was timed in passes, its times are unusable if the sentinel ever deviated by more than 10 % from its
    median, or if the programs in any time block deviated by more than 10 % in the median from their times in other
    passes. If it was timed once, in random order, its times are unusable if they differ between time blocks with
    p < 0.001 (Kruskal and Wallis, JASA 47, 1952).
    """
    if log.header.passes is not None:
        return _explain_unsteady_passes(log, log.header.passes)
    return _explain_order_effect(log) if log.header.label == TABLE_LABEL else ""


def _explain_unsteady_passes(log: Log, passes: Passes) -> str:
    usual_seconds = float(np.median([seconds for _, seconds in passes.sentinel_readings] or [1.0]))
    for at, seconds in passes.sentinel_readings:
        if abs(seconds / usual_seconds - 1) > MAX_DEVIATION:
            ratio = seconds / usual_seconds
            return f"the program timed in every block took {ratio:.2f} times as long as usual at {at:g} s"
    # Programs that were timed in turn at the end have readings from only one period.
    records = [record for record in log.records if not record.reused and len(set(record.measured_at)) > 1]
    deviations = sorted(
        (at, math.log(seconds / record.measurement.cost))
        for record in records
        for at, seconds in zip(record.measured_at, record.seconds, strict=True)
    )
    starts = [0]
    for i, (at, _) in enumerate(deviations):
        if i - starts[-1] >= MIN_BLOCK_READINGS and at != deviations[i - 1][0]:
            starts.append(i)
    for first, end in zip(starts, [*starts[1:], len(deviations)], strict=True):
        ratio = math.exp(float(np.median([value for _, value in deviations[first:end]] or [0.0])))
        if abs(ratio - 1) > MAX_DEVIATION:
            return (
                f"the programs timed from {deviations[first][0]:g} to {deviations[end - 1][0]:g} s took {ratio:.2f} "
                f"times as long as in other passes"
            )
    return ""


def _explain_order_effect(log: Log) -> str:
    from scipy.stats import kruskal  # importing scipy.stats takes most of a second

    costs, finite = log.costs, np.isfinite(log.costs)
    if finite.sum() < BLOCK_COUNT * MIN_PROGRAMS:
        return ""
    blocks = [block[np.isfinite(block)] for block in np.array_split(costs, BLOCK_COUNT)]
    p = float(kruskal(*blocks).pvalue)
    if not p < SIGNIFICANCE_LEVEL:
        return ""
    ratios = [float(np.median(block)) / float(np.median(costs[finite])) for block in blocks]
    worst_block_index = max(range(BLOCK_COUNT), key=lambda block_index: abs(math.log(ratios[block_index])))
    return (
        f"times depend on the order of measurement (Kruskal-Wallis over {BLOCK_COUNT} time blocks, p = {p:.1g}): the "
        f"median of block {worst_block_index + 1} is {ratios[worst_block_index]:.2f} times that of the table"
    )
