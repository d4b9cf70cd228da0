"""The contract of a search policy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from .records import Trial
from .space import Config, Space


class Policy(ABC):
    """A search strategy, asked for configs and told what they cost.

    Its state is a function of (space, options, seed, the trials told so far in order) and of nothing else:
    no clock, no global random state, no thread count. So a run is resumed by running it again.

    Options are keyword arguments of the constructor, with defaults. A constructor that names ``cost_model``
    is given a :class:`~searchlab.costmodel.Surrogate`: the cost model that the study chose, with its features.
    """

    def __init__(self, space: Space, *, seed: int) -> None:
        self.space = space
        self.seed = seed

    @abstractmethod
    def ask(self, n: int) -> Sequence[Config]:
        """Up to ``n`` configs to measure next, none of them ever proposed before; none when the space is done."""

    @abstractmethod
    def tell(self, trials: Sequence[Trial]) -> None:
        """Learn from measured trials: those just asked for, in order, or (before any ask) those of another log."""
