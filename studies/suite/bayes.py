"""The Bayesian signed-rank test, by which studies/suite/results.py compares strategies over all tables."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from searchlab.arrays import Floats
from searchlab.stats.inference import ROPE

DRAWS = 20_000  # for which the standard error of a probability is at most 0.004


class Equivalence(NamedTuple):
    """Probabilities that the first strategy is better, practically the same, and worse; they sum to 1."""

    better: float
    same: float
    worse: float


def bayesian_signed_rank(differences: Floats, rope: float = ROPE, *, draws: int = DRAWS) -> Equivalence:
    """Perform the Bayesian signed-rank test of the mean difference on each workload, first minus second.

    The prior of the differences is a Dirichlet process with weight 1/2 at 0. For each draw w_0 ... w_n from the
    posterior Dirichlet(1/2, 1, ... 1), with z_0 = 0 and z_i the differences, the weights of the outer regions are

        better = sum_ij w_i w_j [z_i + z_j > 2 rope],   worse = sum_ij w_i w_j [z_i + z_j < -2 rope],

    and the region ``same`` has the remaining weight; a sum on a boundary counts half for each side. The probability of
    a region is the fraction of draws in which it has the most weight (Benavoli, Corani, Demsar and Zaffalon, "Time for
    a change: a tutorial for comparing multiple classifiers through Bayesian analysis", JMLR 18(77), 2017, section 4.2).

    Args:
        differences: The mean difference on each workload: shape (workloads,).
        rope: Half the width of the region of practical equivalence, or 0 for none.
        draws: The number of draws from the posterior.
    """
    z = np.concatenate(([0.0], differences))
    sums = z[:, np.newaxis] + z
    weights = _posterior(len(differences), draws)
    better, worse = (
        np.einsum("di,di->d", weights @ np.heaviside(region - 2 * rope, 0.5), weights) for region in (sums, -sums)
    )
    most = np.argmax(np.stack((worse, 1 - better - worse, better)), axis=0)
    shares = (np.bincount(most, minlength=3) / draws).tolist()
    return Equivalence(better=shares[2], same=shares[1], worse=shares[0])


@lru_cache(maxsize=2)  # every pair of strategies has the same number of workloads
def _posterior(number: int, draws: int) -> Floats:
    return np.random.default_rng(0).dirichlet([0.5, *[1.0] * number], draws)
