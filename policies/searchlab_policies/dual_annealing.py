"""scipy's dual annealing, as Kernel Tuner uses it.

Sources: Xiang et al., "Generalized Simulated Annealing Algorithm and Its Application to the Thomson Model" (Physics
Letters A 233, 1997), as implemented in ``scipy.optimize.dual_annealing``; ``kernel_tuner/strategies/dual_annealing.py``
of Kernel Tuner 1.0.
"""

from __future__ import annotations

from functools import partial
from typing import Literal

import numpy as np
from scipy.optimize import dual_annealing

from searchlab.arrays import Floats
from searchlab.policy import Origin
from searchlab.space import Space

from .minimiser import Box, Minimiser, Objective

Method = Literal["COBYLA", "L-BFGS-B", "Nelder-Mead", "Powell"]


class DualAnnealing(Minimiser):
    """Simulated annealing with jumps from a heavy-tailed distribution, combined with local searches.

    Each knob is a real number that selects one of its choices. scipy's minimiser needs the result of a trial before it
    proposes the next, so use ``batch = 1``: in larger batches, each config comes from a separate annealing run. With a
    warm start, the first of them starts from the fastest trial.

    Args:
        method: The method of the local searches, from ``scipy.optimize.minimize``.
    """

    origin = Origin(
        "scipy's dual_annealing, as in Kernel Tuner",
        "scipy 1.17",
        "scipy.optimize.dual_annealing; kernel_tuner/strategies/dual_annealing.py",
        "original",
        (
            "the function is the logarithm of the cost; a failed trial has the value 10",
            "a knob's number selects among the choices that constraints allow; in Kernel Tuner, a config that they "
            "exclude has an infinite cost",
            "a batch contains one config from each of several annealings; with batch = 1, there is only one",
            "an annealing that ends is followed by another",
            "a random config follows 1,024 calls for known configs, or 64 if each builds a program",
        ),
    )

    def __init__(self, space: Space, *, seed: int, method: Method = "COBYLA") -> None:
        super().__init__(space, seed=seed, minimise=partial(anneal, method=method))


def anneal(objective: Objective, *, box: Box, start: Floats, rng: np.random.Generator, method: Method) -> None:
    """Run scipy's dual annealing with Kernel Tuner's settings for the local search."""
    local_search_options: dict[str, object] = {"method": method, "options": {"maxiter": 100}}
    if method == "COBYLA":
        local_search_options["options"] = {"maxiter": 100, "rhobeg": box.step}
    elif method == "L-BFGS-B":
        local_search_options |= {"options": {"maxiter": 100, "maxfun": 100, "eps": box.step}, "bounds": box.bounds}
    dual_annealing(objective, box.bounds, minimizer_kwargs=local_search_options, x0=start, seed=rng)
