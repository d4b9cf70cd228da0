"""Cards, which describe the contents of tables and the difficulty of their spaces, computed from the tables alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec

from ..measure.suite import SuiteTable, read_suite
from ..space import Config
from ..stats.random_search import count_draws_needed, difficulty, expected_best, expected_draws
from ..tables.info import NEAR_FRACTIONS, TableInfo, format_date, format_values, format_versions

DRAW_COUNTS = (10, 30, 100)


@dataclass(frozen=True)
class TableCard:
    """A summary of one table."""

    table: SuiteTable

    @cached_property
    def info(self) -> TableInfo:
        return TableInfo(self.table.log)

    @cached_property
    def expected_distances(self) -> dict[int, float]:
        """The expected distance of the best of n draws from the optimum, as a fraction, for n in ``DRAW_COUNTS``."""
        costs = self.table.log.costs
        expected_costs = expected_best(costs, max(DRAW_COUNTS))
        return {draw_count: float(expected_costs[draw_count - 1] / costs.min() - 1) for draw_count in DRAW_COUNTS}

    @property
    def draws_to_near_best(self) -> tuple[float, int] | None:
        """Random draws to come within 5 % of the best: their expected number, and a number that suffices in 95 %."""
        if not (near_best_count := self.info.count_near_best(NEAR_FRACTIONS[0])):
            return None
        return expected_draws(self.info.config_count, near_best_count), count_draws_needed(
            self.info.config_count, near_best_count
        )

    def to_json(self) -> dict[str, Any]:
        """Return the card as plain data, in which ``after_draws`` contains :attr:`expected_distances`."""
        draws, distances = self.draws_to_near_best, self.expected_distances
        return {
            **self.info.to_json(),
            **msgspec.to_builtins(self.table.entry),
            "table": self.table.name,
            "after_draws": {str(draw_count): distance for draw_count, distance in distances.items()} if draws else {},
            "draws": {"expected": draws[0], "enough": draws[1]} if draws else None,
            "sha256": self.table.digest,
        }

    def to_markdown(self) -> str:
        """Return the card as Markdown."""
        log, entry = self.table.log, self.table.entry
        header, options = log.header, {**log.header.space.options}
        options.pop("listed", None)
        rows_by_title = {
            "split": entry.split,
            "workload": f"`{header.workload}`" + (f", {log.flops:,} FLOP" if log.unit == "GFLOPS" else ""),
            "made from": f"`{entry.file}`" if self.table.is_imported else "",
            "space": f"`{header.space.name}`{f' with {format_values(options)}' if options else ''}",
            "threads": "" if self.table.is_imported else str(entry.threads),
            **self.info.describe(),
            **self._make_random_search_rows(),
            "its best config on other devices, of what is possible there": ", ".join(
                f"{device}: {100 * ratio:.0f} %" for device, ratio in self.portability.items()
            ),
            "measured on": format_values({**header.host, **header.machine}),
            "target": f"`{format_values({k: v for k, v in header.target.items() if k != 'caches'})}`",
            "settings": format_values(header.measure),
            "versions": format_versions(log),
            "date": format_date(log),
            "space fingerprint": f"`{header.fingerprint}`",
            "SHA-256": f"`{self.table.digest}`",
        }
        lines = [f"# {self.table.name}", "", "Made from the table by `searchlab suite seal`; do not edit.", ""]
        lines += ["| | |", "|---|---|", *(f"| {title} | {text} |" for title, text in rows_by_title.items() if text)]
        return "\n".join(lines) + "\n"

    @cached_property
    def portability(self) -> dict[str, float]:
        """The best config's throughput on each other device, relative to the optimum there; 0 if the config fails.

        It is empty unless the table was imported, since searchlab measures each suite on one device.
        """
        if not self.table.is_imported:
            return {}
        own_log, own_configs = self.table.log, self.table.positions_by_config.keys()
        best_config = Config(own_log.records[int(own_log.costs.argmin())].config)
        ratios = {}
        for table in read_suite(self.table.directory).tables:
            is_other_device = table.entry.family == self.table.entry.family and table.entry != self.table.entry
            if is_other_device and table.positions_by_config.keys() == own_configs:
                costs = table.log.costs
                ratios[table.entry.name] = float(costs.min() / costs[table.positions_by_config[best_config]])
        return ratios

    def _make_random_search_rows(self) -> dict[str, str]:
        if self.draws_to_near_best is None:
            return {}
        expected_count, sufficient_count = self.draws_to_near_best
        distances = [f"{count} draws: {100 * distance:.1f} %" for count, distance in self.expected_distances.items()]
        rows_by_title = {
            "best of random draws, above the least time": f"{', '.join(distances)} (expected)",
            "random draws to within 5 % of the best": (
                f"{expected_count:.1f} expected; {sufficient_count} in 95 of 100 runs"
            ),
        }
        if self.table.is_imported:
            draw_count = difficulty(self.table.log.costs)
            rows_by_title["difficulty: random draws for 95 % of the way from the median"] = f"{draw_count:.1f} expected"
        return rows_by_title
