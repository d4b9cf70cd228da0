"""Likelihood-free Bayesian optimisation with neighbours guided by decision trees: Helion's default autotuner.

Sources: ``LFBOTreeSearch`` in ``helion/autotuner/surrogate_pattern_search.py`` of pytorch/helion (pull request 1521,
February 2026), with the corrections of pull requests 3518 and 3524 (September 2026), which :mod:`.lfbo` describes;
Mišić, "Optimization of Tree Ensembles" (Operations Research 68(5), 2020), which its authors cite.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import numpy as np

from searchlab.arrays import Floats
from searchlab.options import Between, Count, Natural, NonNegative
from searchlab.policy import Origin
from searchlab.space import Config, Knob, Space, Value

from .lfbo import Lfbo, is_tile

if TYPE_CHECKING:
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.tree import DecisionTreeClassifier


class LfboTree(Lfbo):
    """Helion's LFBO tree search: the policy ``lfbo``, with neighbours that single trees of the forest consider good.

    From the second generation on, a neighbour is not drawn at random. Instead, a tree of the forest is drawn. The knobs
    that it tests on the path of the copy's config, and a random tile, are changed one after another: each takes the
    value, at most ``radius`` steps away, for which this tree predicts the highest probability that the config is good.
    Ties are broken at random. Which of these neighbours to measure is then decided by the complete forest, as in
    ``lfbo``, and so is everything else.

    Args:
        n_startup: The number of random trials before the first generation (in Helion 100, or 30 at low effort).
        copies: The number of best configs from which a copy of the search starts. With fewer copies, the search
            ends sooner.
        neighbours: The number of neighbours that a copy draws in a generation; see ``lfbo``.
        radius: The maximum number of steps by which a knob changes, and of knobs in the first generation.
        selected: The fraction of the neighbours to measure.
        quantile: The fraction of the trials that count as good when the forest is trained.
        similarity: The penalty for a config's mean similarity to those already selected.
        patience: The number of generations without improvement that a copy survives.
        polish: The maximum number of steps of the final descent; 0 to omit it.
    """

    origin = Origin(
        "Helion's LFBOTreeSearch",
        "pull requests 1521, 3518 and 3524 (September 2026)",
        "helion/autotuner/surrogate_pattern_search.py in pytorch/helion",
        "relative",
        (
            "checked against the source, not against recorded runs, which would require a GPU",
            "30 random trials first instead of 100",
            "a knob that no tree tests is added only if it is a tile; Helion also adds the number of warps",
            "a step moves a prime factor of a tile; illegal configs are repaired",
            "no trial is measured again, there is no limit on generations, and a generation's trials are measured best "
            "first",
        ),
    )

    def __init__(
        self,
        space: Space,
        *,
        seed: int,
        n_startup: Count = 30,
        copies: Count = 5,
        neighbours: Count = 200,
        radius: Count = 2,
        selected: Annotated[float, Between(1e-6, 1)] = 0.1,
        quantile: Annotated[float, Between(1e-6, 1)] = 0.1,
        similarity: NonNegative = 1.0,
        patience: Natural = 1,
        polish: Natural = 10,
    ) -> None:
        super().__init__(
            space,
            seed=seed,
            n_startup=n_startup,
            copies=copies,
            neighbours=neighbours,
            radius=radius,
            selected=selected,
            quantile=quantile,
            similarity=similarity,
            patience=patience,
            polish=polish,
        )
        self._features_by_choice: dict[tuple[str, Value], Floats] = {}

    def _draw_neighbours(
        self, config: Config, forest: RandomForestClassifier | None, rng: np.random.Generator
    ) -> list[Config]:
        if forest is None or self.generation == 0:
            return super()._draw_neighbours(config, forest, rng)
        knobs = [knob for knob in self.space.knobs(config) if len(knob.choices) > 1]
        trees = rng.integers(len(forest.estimators_), size=self.neighbours).tolist()
        return [self._improve_config(config, knobs, forest.estimators_[i], rng) for i in trees]

    def _improve_config(
        self, config: Config, knobs: Sequence[Knob], tree: DecisionTreeClassifier, rng: np.random.Generator
    ) -> Config:
        """Return a neighbour of ``config``: each knob on the tree's path has the value that the tree prefers."""
        row = self.space.features(config)
        values = dict(config.items())
        for knob in self._find_knobs_on_path(knobs, values, row, tree, rng):
            choices = [values[knob.name], *find_choices_within(knob, values[knob.name], self.radius)]
            rows = np.tile(row, (len(choices), 1))
            for candidate, choice in zip(rows, choices, strict=True):
                choice_features = self._encode_choice(knob.name, choice)
                np.copyto(candidate, choice_features, where=~np.isnan(choice_features))
            # The last column is the probability of the second of two classes, up to a factor.
            probabilities = tree.tree_.predict(rows.astype(np.float32))[:, -1]
            best = int(rng.choice(np.flatnonzero(probabilities == probabilities.max())))
            values[knob.name], row = choices[best], rows[best]
        return self.space.repair(values, rng)

    def _find_knobs_on_path(
        self,
        knobs: Sequence[Knob],
        values: dict[str, Value],
        row: Floats,
        tree: DecisionTreeClassifier,
        rng: np.random.Generator,
    ) -> list[Knob]:
        """Return the knobs that the tree tests for ``row``, in the order of the tests, and a random tile."""
        columns = tree.tree_.feature[tree.tree_.decision_path(row.astype(np.float32)[None]).indices].tolist()
        knobs_by_column = {
            column: knob
            for knob in knobs
            for column in np.flatnonzero(~np.isnan(self._encode_choice(knob.name, values[knob.name]))).tolist()
        }
        tested_knobs = {
            knobs_by_column[column].name: knobs_by_column[column] for column in columns if column in knobs_by_column
        }
        if tiles := [knob for knob in knobs if is_tile(knob)]:
            tile = tiles[int(rng.integers(len(tiles)))]
            tested_knobs.setdefault(tile.name, tile)
        return list(tested_knobs.values())

    def _encode_choice(self, name: str, value: Value) -> Floats:
        """Return the features of one knob's value, with NaN in the columns of all other knobs."""
        if (name, value) not in self._features_by_choice:
            self._features_by_choice[name, value] = self.space.features({name: value})
        return self._features_by_choice[name, value]


def find_choices_within(knob: Knob, value: Value, radius: int) -> list[Value]:
    """Return the other choices of a knob that are at most ``radius`` steps away, in the order of their distance."""
    choices = {value: None}
    frontier = [value]
    for _ in range(radius):
        frontier = list(
            dict.fromkeys(new for choice in frontier for new in knob.adjacent(choice) if new not in choices)
        )
        choices.update(dict.fromkeys(frontier))
    return list(choices)[1:]
