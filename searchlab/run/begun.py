"""What runs that start from a store took from it as they began: their logs say it, and a store may have grown since."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..errors import SearchlabError
from ..log.format import read_held
from ..log.header import Header
from .plan import Run
from .warm_start import EarlierRun, usable


def as_begun(runs: Sequence[Run]) -> list[Run]:
    """``runs``, whose logs lie in one directory for each strategy; those that start from a store go on as they began.

    The first log of a strategy that exists decides for all its runs, so that all seeds start from the same trials.
    Raises SearchlabError if the log is damaged, or if its stores do not hold any more what it started from.
    """
    begun: dict[Path, Header] = {}
    for run in runs:
        if run.warm_start.stores and run.log.parent not in begun and (held := read_held(run.log)) is not None:
            begun[run.log.parent] = held.header
    return [
        _from(run, begun[run.log.parent]) if run.warm_start.stores and run.log.parent in begun else run for run in runs
    ]


def _from(run: Run, header: Header) -> Run:
    """``run`` with the warm start of ``header``. Logs that were named since are added, and so refused later."""
    warm = run.warm_start
    known = {one.digest: one for one in (*warm.own, *warm.others)}
    runs = [known.get(digest) or _stored(run, digest) for digest in header.warm_start]
    runs += [one for digest, one in known.items() if not one.stored and digest not in header.warm_start]
    again = usable(runs, run.searched.plugin, run.space, run.strategy.features)
    return replace(run, warm_start=replace(again, stores=warm.stores))


def _stored(run: Run, digest: str) -> EarlierRun:
    for store in run.warm_start.stores:
        if (log := store.log_of(digest)) is not None:
            return EarlierRun(log, digest, run.settings.statistic, stored=True)
    paths = ", ".join(str(store.path) for store in run.warm_start.stores)
    raise SearchlabError(
        f"a run in {run.log.parent} started from a log, of digest {digest}, that {paths} does not hold; add that log "
        f"to the store, or choose another place for the log of this run"
    )
