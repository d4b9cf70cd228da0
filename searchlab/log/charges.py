"""What trials are charged: pure functions over the numbers of some runs, one run after the other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..arrays import Floats, Ints


def batch_starts(batches: Ints, lengths: Sequence[int]) -> list[int]:
    """The places of the first trials of all batches.

    Args:
        batches: The number of the batch of each trial, shape (trials,).
        lengths: The number of trials of each run.
    """
    begins = np.zeros(len(batches) + 1, dtype=np.bool_)
    begins[np.cumsum(lengths) - lengths] = True  # of an empty run, where the next run begins
    begins[1:-1] |= batches[1:] != batches[:-1]
    starts: list[int] = np.flatnonzero(begins[:-1]).tolist()
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
