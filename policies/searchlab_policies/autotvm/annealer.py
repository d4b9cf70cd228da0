"""AutoTVM's simulated annealing on a cost model (``SimulatedAnnealingOptimizer`` in ``sa_model_optimizer.py``)."""

from __future__ import annotations

from collections.abc import Container, Sequence
from itertools import count

import numpy as np

from searchlab.costmodel import BoundCostModel
from searchlab.space import Config, Knob, ProductSpace, Space

from ..model_guided import BestConfigs, predict_scores


class Annealer:
    """Annealing chains that continue where the previous search left off; the policy documents the options."""

    def __init__(self, space: Space, *, chains: int, steps: int, early_stop: int, temperature: float) -> None:
        self.space = space
        self.chains, self.steps, self.early_stop, self.temperature = chains, steps, early_stop, temperature
        self._points: list[Config] = []

    def find_maxima(
        self, model: BoundCostModel, n: int, exclude: Container[Config], rng: np.random.Generator
    ) -> list[Config]:
        """Return up to ``n`` visited configs with predictions >= 0 that are not in ``exclude``, best first."""
        points = self._points or self.space.sample_new(rng, self.chains, ())
        # Trees predict many equal scores. AutoTVM breaks such ties by dropping the lowest index first.
        numbers = count()
        number_config = self.space.index_of if isinstance(self.space, ProductSpace) else lambda _: next(numbers)
        best = BestConfigs(n, exclude, number_config)
        predictions: dict[Config, float] = {}
        knobs_by_point: dict[Config, Sequence[Knob]] = {}  # cached, because a chain stays at a point for many steps
        scores = predict_scores(model.predict, points, predictions)
        best.offer(points, scores)
        temperature, cooling = self.temperature, self.temperature / (self.steps + 1)
        step = last_change = 0
        while step < self.steps and step < last_change + self.early_stop:
            for point in points:
                if point not in knobs_by_point:
                    knobs_by_point[point] = self.space.knobs(point)
            neighbours = [redraw_until_changed(self.space, point, knobs_by_point[point], rng) for point in points]
            new_scores = predict_scores(model.predict, neighbours, predictions)
            is_accepted = rng.random(len(points)) < np.exp(np.minimum((new_scores - scores) / (temperature + 1e-5), 1))
            points = [
                neighbour if accept else current
                for neighbour, current, accept in zip(neighbours, points, is_accepted, strict=True)
            ]
            scores = np.where(is_accepted, new_scores, scores)
            if best.offer(neighbours, new_scores):
                last_change = step
            step += 1
            temperature -= cooling
        self._points = points
        ranked = sorted(best.list_entries(), key=lambda entry: -entry[0])
        return [config for score, _, config in ranked if score >= 0]


def redraw_until_changed(space: Space, config: Config, knobs: Sequence[Knob], rng: np.random.Generator) -> Config:
    """Redraw one random knob of ``config`` at a time until the config has changed (``random_walk``).

    ``knobs`` are those of ``config``.
    """
    new_config = config
    if all(len(knob.choices) == 1 for knob in knobs):
        return config
    while new_config == config:
        knob = knobs[int(rng.integers(len(knobs)))]
        value = knob.choices[int(rng.integers(len(knob.choices)))]
        if value != config[knob.name]:
            new_config = space.repair({**config, knob.name: value}, rng)
    return new_config
