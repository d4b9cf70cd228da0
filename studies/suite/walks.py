"""Measures random walks through the spaces of a study, whose autocorrelation shows how smooth the spaces are.

    python studies/suite/walks.py studies/real.toml --out results/walks    # about 5 minutes; repeat to resume
    python studies/suite/questions.py real v1/test hub-v1/test --runs results/real --walks results/walks

Every step moves to a uniformly drawn neighbour, a config that differs in one knob. A walk has 64 steps and begins at a
random config. Source: Weinberger, "Correlated and uncorrelated fitness landscapes and how to tell the difference"
(Biological Cybernetics 63, 1990).
"""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from searchlab import Config, Space, Study
from searchlab.policy import NeverTwice
from searchlab_policies.neighbours import draw_neighbour

STEPS, WALKS = 64, 8


class RandomWalk(NeverTwice):
    """Proposes the configs of random walks, whatever their cost. A config that is met again takes no trial."""

    def __init__(self, space: Space, *, seed: int) -> None:
        super().__init__(space, seed=seed)
        self._at: Config | None = None
        self._steps = 0

    def propose(self, n: int, rng: np.random.Generator) -> Iterator[Config]:
        for _ in range(STEPS * n):
            if self._at is None or self._steps % STEPS == 0:
                self._at = self.space.sample(rng)
            else:
                self._at = draw_neighbour(self.space, self._at, rng)
            self._steps += 1
            if self._at not in self.seen:
                yield self._at


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path)
    parser.add_argument("--out", type=Path, default=Path("results/walks"))
    options = parser.parse_args(arguments)
    spec = tomllib.loads(options.study.read_text(encoding="utf-8"))
    settings: dict[str, Any] = {key: spec[key] for key in ("workloads", "spaces", "target", "measure") if key in spec}
    walk = {"name": RandomWalk, "label": "random-walk", "batch": STEPS}
    Study.from_dict({**settings, "policies": [walk], "trials": STEPS * WALKS}).run(options.out)


if __name__ == "__main__":
    main()
