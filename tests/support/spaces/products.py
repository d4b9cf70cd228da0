"""Spaces that tests of several packages use."""

from __future__ import annotations

from typing import Any

from searchlab.conformance import toys
from searchlab.space import Config, Knob, ProductSpace
from searchlab_spaces.templates.knobs import ReorderKnob

ORDERS = ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))


class Ordered(ProductSpace):
    """A tile, and an order of three loops as a template defines it: a permutation, which is a tuple and no tile."""

    def __init__(self) -> None:
        knobs = [Knob("tile", toys.list_tiles(8, 3)), ReorderKnob("order", ORDERS, "all")]
        super().__init__(toys.WORKLOAD, toys.TARGET, knobs)

    def schedule(self, config: Config) -> Any:
        raise NotImplementedError


class Product(ProductSpace):
    """4,800 configs of four knobs."""

    def __init__(self) -> None:
        knobs = [Knob("a", range(10)), Knob("b", range(8)), Knob("c", range(6)), Knob("d", range(10))]
        super().__init__(toys.WORKLOAD, toys.TARGET, knobs)

    def schedule(self, config: Config) -> Any:
        raise NotImplementedError
