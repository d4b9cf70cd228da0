"""A table of recorded measurements that stands in for the machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from ..errors import SearchlabError
from ..log import read_log
from ..records import Measurement
from ..space import Config, Space
from . import Measurer


def find_logs(path: Path) -> list[Path]:
    """The log at ``path``, or those in the directory that it is. Raises SearchlabError where there is none."""
    found = sorted(p for p in path.rglob("*.jsonl")) if path.is_dir() else [path]
    if not found:
        raise SearchlabError(f"there is no log (*.jsonl) in {path}")
    return found


class TableMeasurer(Measurer):
    """Answers from logs of the same workload and space; the first measurement of a config counts.

    Building is charged as it was recorded, on as many workers. Raises SearchlabError where no log is of the
    space, or a config was never measured: nothing is invented.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths = [str(path) for path in paths]
        self._tables: dict[tuple[str, str], dict[Config, Measurement]] = {}
        logs = [read_log(path) for given in paths for path in find_logs(given)]
        built_on = sorted({log.header.workers for log in logs})
        if len(built_on) > 1:
            raise SearchlabError(
                f"the logs in {', '.join(self.paths)} were built on {' and '.join(map(str, built_on))} workers, so "
                f"their times are not on one footing; choose logs of one machine"
            )
        self.workers = built_on[0]
        for log in logs:
            table = self._tables.setdefault((log.header.workload, log.header.fingerprint), {})
            for trial in log.trials:
                table.setdefault(trial.config, replace(trial.measurement, reused=False))

    def measure(self, space: Space, configs: Sequence[Config]) -> Iterator[Measurement]:
        table = self._tables.get((str(space.workload), space.fingerprint))
        where = ", ".join(self.paths)
        if table is None:
            held = ", ".join(sorted({workload for workload, _ in self._tables}))
            raise SearchlabError(
                f"no log in {where} was made in this space for {space.workload} and this target; "
                f"the logs there are of {held}, each in its own space and target"
            )
        for config in configs:
            if config not in table:
                raise SearchlabError(
                    f"{config.to_json()} was never measured in {where}; "
                    f"a table must hold every config that a policy may ask for"
                )
            yield table[config]
