"""Describing a table: how much of the space it holds, how fast the programs are, and how noisy the machine was."""

from __future__ import annotations

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

from ..arrays import Floats
from ..log.format import Log
from ..log.result import noise
from .steadiness import unsteady

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
NEAR = 0.95
"""A config with at least this share of the best GFLOPS counts as near the best."""


@dataclass(frozen=True)
class TableInfo:
    """A table, or any log, as a picture of its space. It needs nothing but the log."""

    log: Log

    @cached_property
    def gflops(self) -> Floats:
        """Throughput of each config that runs, by its cost, ascending: in GFLOPS, or in the ``unit`` of the log."""
        costs = self.log.costs
        return np.sort(self.log.flops / costs[np.isfinite(costs)] / 1e9)

    @property
    def exhaustive(self) -> bool | None:
        """Whether it holds the whole space; None if the size of the space was not recorded."""
        size = self.log.header.space_size
        return None if size is None else len(self.log.records) >= size

    @property
    def near_best(self) -> float:
        """Share of all configs, failed ones included, that are within 5 % of the best."""
        return float((self.gflops >= NEAR * self.gflops[-1]).sum()) / len(self.log.records)

    @property
    def noise(self) -> float | None:
        """Median over configs of (slowest - fastest) / cost; None without repeats."""
        return noise(self.log)

    @cached_property
    def unsteady(self) -> str:
        """Why a table is refused, since its times depend on when they were read; empty if they do not."""
        return unsteady(self.log)

    @property
    def timed(self) -> str:
        """How its programs were timed, if in passes."""
        passes = self.log.header.passes
        if passes is None:
            return ""
        return (
            f"in {passes.count} passes, each in another order; {passes.again} blocks of {passes.block} again; the "
            f"fastest {passes.finalists} in turn, {passes.rounds} times"
        )

    @property
    def failures(self) -> dict[str, int]:
        return dict(Counter(str(r.failure) for r in self.log.records if r.failure).most_common())

    @property
    def seconds(self) -> float:
        """All seconds charged: building on all workers, and running."""
        return float(self.log.elapsed[-1]) if self.log.records else 0.0

    def to_json(self) -> dict[str, Any]:
        header = msgspec.to_builtins(self.log.header)
        facts = {"file": str(self.log.path)} | {
            name: header[name]
            for name in ("workload", "space", "fingerprint", "target", "measure", "host", "created", "versions")
        }
        facts |= {
            "configs": len(self.log.records),
            "space_size": self.log.header.space_size,
            "exhaustive": self.exhaustive,
            "failures": self.failures,
            "nearest": sum(record.nearest for record in self.log.records),
            "noise": self.noise,
            "unsteady": self.unsteady,
            "passes": header["passes"],
            "seconds": self.seconds,
        }
        if len(self.gflops):
            facts |= {
                "unit": self.log.unit,
                "gflops": {"best": self.gflops[-1], "median": np.median(self.gflops), "worst": self.gflops[0]},
                "quantiles": {f"{q:g}": np.quantile(self.gflops, q) for q in QUANTILES},
                "near_best": self.near_best,
            }
        return facts


def info_table(info: TableInfo) -> Table:
    """The content of :meth:`TableInfo.to_json`, for the terminal."""
    header = info.log.header
    options = ", ".join(f"{name} = {value}" for name, value in header.space.options.items())
    date = datetime.fromtimestamp(header.created, UTC).strftime("%Y-%m-%d") if header.created else ""
    target = {name: value for name, value in header.target.items() if name != "caches"}

    nearest = sum(record.nearest for record in info.log.records)
    rows = {
        "workload": header.workload,
        "space": header.space.name + (f" with {options}" if options else ""),
        "target": named_values(target),
        "host": ", ".join(map(str, header.host.values())),
        "measured": date,
        "versions": named_values(header.versions),
        "configs": _configs(info),
        "answered by the nearest": f"{nearest:,}" if nearest else "",
        "failed": ", ".join(f"{name} {count:,}" for name, count in info.failures.items()) or "none",
        **_speeds(info),
        "spread of the repeats": f"{100 * info.noise:.1f} % (median)" if info.noise is not None else "",
        "timed": info.timed,
        "refused": info.unsteady and f"{info.unsteady}; build it again, in passes, when the machine is idle",
        "seconds charged": f"{info.seconds:,.0f}",
    }
    table = Table(title=Text(str(info.log.path), "italic"), title_justify="left", box=SIMPLE_HEAD, show_header=False)
    for name, text in rows.items():
        if text:
            table.add_row(Text(name, "bold"), Text(text))
    return table


def _configs(info: TableInfo) -> str:
    count, size = len(info.log.records), info.log.header.space_size
    if size is None:
        return f"{count:,} of a space that was not counted"
    return f"{count:,}, all of the space" if info.exhaustive else f"{count:,} of {size:,} ({100 * count / size:.1f} %)"


def _speeds(info: TableInfo) -> dict[str, str]:
    unit = info.log.unit
    if not len(info.gflops):
        return {unit: "no config runs"}
    best, median, worst = info.gflops[-1], np.median(info.gflops), info.gflops[0]
    return {
        unit: f"best {best:.4g}, median {median:.4g}, worst {worst:.4g}",
        "quantiles": ", ".join(f"{100 * q:g} % {np.quantile(info.gflops, q):.4g}" for q in QUANTILES),
        "within 5 % of the best": f"{100 * info.near_best:.2g} % of the configs",
    }


def named_values(values: dict[str, Any]) -> str:
    """Names and values in a line, as cards have them; a value that is an empty text is left out."""
    return ", ".join(f"{name} {value}" for name, value in values.items() if value != "")
