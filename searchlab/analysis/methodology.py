"""The scores of ``autotuning_methodology`` for runs over a table: see :mod:`.stats.methodology`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..errors import SearchlabError
from ..log.format import Log, Record
from ..space import Config
from .stats.curves import Floats, best_so_far
from .stats.methodology import Methodology


def methodology_scores(table: Log, runs: Sequence[Log], seed: int = 0) -> tuple[float, float]:
    """The score of a strategy over trials, and over seconds, from its ``runs`` in the space of ``table``.

    table: a log of every config of a space; its times count, not those in the runs. The seconds of a trial are all that
    the table has: training, proposing, building and running, one after the other. seed: of the package's bootstrap.
    Raises SearchlabError if a run has a config that the table does not hold, if the runs are too short to be scored, or
    if the costs of the table do not differ.
    """
    if not runs:
        raise SearchlabError("there is no run to score; give at least one log")
    rows = {Config(record.config): number for number, record in reversed(list(enumerate(table.records)))}
    seconds = np.array([_seconds(record) for record in table.records])
    places = [[rows.get(Config(record.config)) for record in run.records] for run in runs]
    for run, row in zip(runs, places, strict=True):
        if None in row:
            raise SearchlabError(f"trial {row.index(None)} of {run.path} has a config that {table.path} does not hold")
    trials = min(map(len, places))
    at = np.array([row[:trials] for row in places], dtype=np.int64).reshape(len(runs), trials)
    first = sorted(rows.values())
    try:
        space = Methodology.of(table.costs[first], seconds[first])
        so_far: Floats = np.array([best_so_far(costs) for costs in table.costs[at]])
        elapsed = np.cumsum(seconds[at], axis=1)
        return space.score_over_trials(so_far), space.score_over_seconds(so_far, elapsed, seed=seed)
    except ValueError as error:
        raise SearchlabError(f"the runs over {table.path} cannot be scored: {error}") from None


def _seconds(record: Record) -> float:
    return record.train_seconds + record.propose_seconds + record.build_seconds + record.run_seconds
