"""Random search without replacement, the baseline for all other policies.

Source: Bergstra and Bengio, "Random Search for Hyper-Parameter Optimization" (JMLR 13, 2012).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from searchlab.policy import NeverTwice
from searchlab.space import Config


class Random(NeverTwice):
    """Random search without replacement: each knob is drawn uniformly from its choices."""

    def propose(self, n: int, rng: np.random.Generator) -> Iterable[Config]:
        return self.space.sample_new(rng, n, self.seen)
