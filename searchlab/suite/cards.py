"""Cards, which describe the contents of tables and the difficulty of their spaces, computed from the tables alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec

from ..arrays import Floats
from ..log.read import read_log
from ..measure.suite import SuiteTable, read_suite
from ..stats.random_search import count_draws_needed, difficulty, expected_best, expected_draws
from ..tables.info import NEAR, TableInfo, date_of, named_values, versions_text
from .trajectories import RecordedTable

RANDOM_DRAWS = (10, 30, 100)


@dataclass(frozen=True)
class TableCard:
    """A summary of one table."""

    recorded_table: RecordedTable

    @property
    def table(self) -> SuiteTable:
        return self.recorded_table.table

    @cached_property
    def info(self) -> TableInfo:
        return TableInfo(self.recorded_table.log)

    @cached_property
    def distances(self) -> dict[int, float]:
        """The expected distance of the best of n draws from the optimum, as a fraction, for n in ``RANDOM_DRAWS``."""
        costs = self.recorded_table.log.costs
        curve = expected_best(costs, max(RANDOM_DRAWS))
        return {draws: float(curve[draws - 1] / costs.min() - 1) for draws in RANDOM_DRAWS}

    @property
    def draws(self) -> tuple[float, int] | None:
        """Random draws to come within 5 % of the best: their expected number, and a number that suffices in 95 %."""
        if not (good := self.info.near(NEAR[0])):
            return None
        return expected_draws(self.info.configs, good), count_draws_needed(self.info.configs, good)

    def to_json(self) -> dict[str, Any]:
        """Return the card as plain data, in which ``after_draws`` contains :attr:`distances`."""
        return {
            **self.info.to_json(),
            **msgspec.to_builtins(self.table.entry),
            "table": self.table.name,
            "after_draws": {str(draws): part for draws, part in self.distances.items()} if self.draws else {},
            "draws": {"expected": self.draws[0], "enough": self.draws[1]} if self.draws else None,
            "sha256": self.table.digest,
        }

    def text(self) -> str:
        """Return the card as Markdown."""
        log, entry = self.recorded_table.log, self.table.entry
        header, options = log.header, {**log.header.space.options}
        options.pop("listed", None)
        rows = {
            "split": entry.split,
            "workload": f"`{header.workload}`" + (f", {log.flops:,} FLOP" if log.unit == "GFLOPS" else ""),
            "made from": f"`{entry.file}`" if self.table.is_imported else "",
            "space": f"`{header.space.name}`{f' with {named_values(options)}' if options else ''}",
            "threads": "" if self.table.is_imported else str(entry.threads),
            **self.info.facts(),
            **self._random_search(),
            "its best config on other devices, of what is possible there": ", ".join(
                f"{device}: {100 * part:.0f} %" for device, part in self.portability.items()
            ),
            "measured on": named_values({**header.host, **header.machine}),
            "target": f"`{named_values({k: v for k, v in header.target.items() if k != 'caches'})}`",
            "settings": named_values(header.measure),
            "versions": versions_text(log),
            "date": date_of(log),
            "space fingerprint": f"`{header.fingerprint}`",
            "SHA-256": f"`{self.table.digest}`",
        }
        lines = [f"# {self.table.name}", "", "Made from the table by `searchlab suite seal`; do not edit.", ""]
        lines += ["| | |", "|---|---|", *(f"| {name} | {text} |" for name, text in rows.items() if text)]
        return "\n".join(lines) + "\n"

    @cached_property
    def portability(self) -> dict[str, float]:
        """The best config's throughput on each other device, relative to the optimum there; 0 if the config fails.

        It is empty unless the table was imported, since searchlab measures each suite on one device.
        """
        if not self.table.is_imported:
            return {}
        configs, costs = _by_config(self.table)
        best = min(configs, key=lambda text: costs[configs[text]])
        ratios = {}
        for table in read_suite(self.table.directory).tables:
            if table.entry.family == self.table.entry.family and table.entry != self.table.entry:
                positions, table_costs = _by_config(table)
                if positions.keys() == configs.keys():
                    ratios[table.entry.name] = float(table_costs.min() / table_costs[positions[best]])
        return ratios

    def _random_search(self) -> dict[str, str]:
        if self.draws is None:
            return {}
        expected, sufficient = self.draws
        distances = ", ".join(f"{draws} draws: {100 * part:.1f} %" for draws, part in self.distances.items())
        rows = {
            "best of random draws, above the least time": f"{distances} (expected)",
            "random draws to within 5 % of the best": f"{expected:.1f} expected; {sufficient} in 95 of 100 runs",
        }
        if self.table.is_imported:
            draws = difficulty(self.recorded_table.log.costs)
            rows["difficulty: random draws for 95 % of the way from the median"] = f"{draws:.1f} expected"
        return rows


def _by_config(table: SuiteTable) -> tuple[dict[bytes, int], Floats]:
    """Return the index of each config (JSON with sorted knobs) in an imported table, and all costs in seconds."""
    log = read_log(table.path)
    positions = {
        msgspec.json.encode(record.config, order="sorted"): position for position, record in enumerate(log.records)
    }
    return positions, log.costs
