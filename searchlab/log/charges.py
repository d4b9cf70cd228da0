"""What trials are charged: pure functions over numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Floats = np.ndarray[Any, np.dtype[np.float64]]


def batch_starts(shares: Sequence[tuple[float, float]], size: int) -> list[int]:
    """Where the batches of at most ``size`` trials begin, as their policy gave them.

    shares: of each trial, its share of the seconds of proposing and of training its batch.

    A policy may give fewer configs than it is asked for. A log does not mark where a batch ends, but the trials of a
    batch are charged equal shares: a trial with other shares begins the next batch.
    """
    starts: list[int] = []
    for index, share in enumerate(shares):
        if not starts or index - starts[-1] == size or share != shares[index - 1]:
            starts.append(index)
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
