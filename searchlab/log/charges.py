"""What trials are charged: pure functions over numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Floats = np.ndarray[Any, np.dtype[np.float64]]


def batch_starts(shares: Floats, size: int) -> list[int]:
    """Where the batches of at most ``size`` trials begin, as their policy gave them.

    shares: of each trial, its share of the seconds of proposing and of training its batch: shape (trials, 2).

    A policy may give fewer configs than it is asked for. A log does not mark where a batch ends, but the trials of a
    batch are charged equal shares: a trial with other shares begins the next batch.
    """
    trials = np.arange(len(shares))
    others = np.zeros(len(shares), dtype=np.bool_)  # whose shares are not those of the trial before
    others[1:] = (shares[1:] != shares[:-1]).any(axis=1)
    first = np.maximum.accumulate(np.where(others, trials, 0))  # of the trials in a row that have these shares
    starts: list[int] = np.flatnonzero((trials - first) % size == 0).tolist()
    return starts


def charged(spent: Floats, starts: Sequence[int], workers: int) -> Floats:
    """Seconds charged for proposing, training, building and running each trial: shape (trials, 4).

    spent: the seconds that these took. A batch is built by at most as many workers as it has programs; the seconds of
    building are divided by their number.
    """
    sizes = np.diff([*starts, len(spent)])
    builders = np.minimum(min(workers, len(spent)), sizes)  # a log may say any number of workers
    charges = spent.copy()
    charges[:, 2] /= np.repeat(builders, sizes)
    return charges
