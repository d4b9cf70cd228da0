"""What trials are charged: pure functions over the numbers of some runs, one run after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Floats = np.ndarray[Any, np.dtype[np.float64]]
Ints = np.ndarray[Any, np.dtype[np.int64]]


def batch_starts(shares: Floats, sizes: Sequence[int], lengths: Sequence[int]) -> list[int]:
    """Where batches begin, as their policies gave them: the places of their first trials.

    shares: of each trial, its share of the seconds of proposing and of training its batch, shape (trials, 2). sizes: of
    each run, the most trials of a batch. lengths: the number of trials of each run.

    A policy may give fewer configs than it is asked for. A log does not mark where a batch ends, but the trials of a
    batch are charged equal shares: a trial with other shares begins the next batch.
    """
    first = np.zeros(len(shares), dtype=np.int64)  # of the trials in a row that have the same shares
    begins = (np.cumsum(lengths) - lengths)[np.asarray(lengths) > 0]
    others = np.flatnonzero((shares[1:, 0] != shares[:-1, 0]) | (shares[1:, 1] != shares[:-1, 1])) + 1
    first[begins], first[others] = begins, others
    past = np.arange(len(shares)) - np.maximum.accumulate(first)
    starts: list[int] = np.flatnonzero(past % _of_each_trial(sizes, lengths) == 0).tolist()
    return starts


def charged(spent: Floats, starts: Sequence[int], workers: Sequence[int], lengths: Sequence[int]) -> Floats:
    """Seconds charged for proposing, training, building and running each trial: shape (trials, 4).

    spent: the seconds that these took. starts: see :func:`batch_starts`. workers: of each run. A batch is built by at
    most as many workers as it has programs; the seconds of building are divided by their number.
    """
    sizes = np.diff(np.append(np.asarray(starts, dtype=np.int64), len(spent)))
    charges = spent.copy()
    charges[:, 2] /= np.minimum(_of_each_trial(workers, lengths), np.repeat(sizes, sizes))
    return charges


def _of_each_trial(numbers: Sequence[int], lengths: Sequence[int]) -> Ints:
    """A number of each run, for each of its trials. A log may say any number; one for all its trials is enough."""
    bounded = [number if 0 < number < trials else trials for number, trials in zip(numbers, lengths, strict=True)]
    return np.repeat(np.array(bounded, dtype=np.int64), lengths)
