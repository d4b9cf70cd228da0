"""The contract of a feature extractor."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from ...arrays import Floats
from ...space import Config, Space

Columns = list[tuple[str, int | str]]
"""For each column its knob, and which part of the choice it holds; empty if all configs have the same columns."""


class Features(ABC):
    """Turns configs of one space into a matrix with a row for each."""

    name: ClassVar[str] = ""
    """Its name in a study file."""

    builds_programs: ClassVar[bool] = False
    """Whether a row needs a scheduled program, which takes milliseconds and not microseconds."""

    columns_per_store: ClassVar[int] = 0
    """How many columns each store has, if a row holds the stores of a program one after the other; else 0."""

    absent: ClassVar[float] = np.nan
    """The value of a column that a shorter row lacks, where the rows of two spaces differ in length."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.columns: Columns = []

    def learn(self, configs: Sequence[Config]) -> None:
        """Choose the columns from the configs that a model is about to be trained on."""

    def settle(self, columns: Columns) -> None:
        """Take the columns that were learned elsewhere."""

    @abstractmethod
    def __call__(self, configs: Sequence[Config]) -> Floats:
        """Features (n, d); NaN for a feature that a config does not have."""


def widened(matrix: Floats, width: int, absent: float) -> Floats:
    """``matrix`` (n, d) with ``width`` >= d columns; the new ones are ``absent``, but NaN where a row is all NaN."""
    if matrix.shape[1] == width:
        return matrix
    wide = np.full((len(matrix), width), absent)
    wide[:, : matrix.shape[1]] = matrix
    wide[np.isnan(matrix).all(axis=1)] = np.nan
    return wide


def laid_out(features: Features | type[Features], matrix: Floats, width: int) -> Floats:
    """``matrix`` with the ``width`` columns that a model was trained on; or with its own, if these are of stores."""
    return matrix if features.columns_per_store else widened(matrix[:, :width], width, features.absent)
