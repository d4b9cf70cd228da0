"""Which knobs of a space matter, and how good each of their values is, from all configs that any strategy measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, Self

import msgspec
import numpy as np

from ..arrays import Array, Floats, make_object_array
from ..stats.curves import compute_gflops, quartiles
from .words import format_percent, listed

TOP_FRACTION = 0.1  # the fraction of all configs in which important knobs have other values than elsewhere
MAX_VALUES = 16  # maximum number of values of a knob that are shown: those with the fastest programs


@dataclass(frozen=True)
class MeasuredSpace:
    """The different configs of a space that were measured on a workload.

    Attributes:
        space: The name of the space.
        knobs: The value of each knob in each config as JSON, or a dash in configs without this knob: shape (configs,).
        throughput: The median GFLOPS of each config, 0 for failures: shape (configs,).
    """

    space: str
    knobs: Mapping[str, Array]
    throughput: Floats

    @classmethod
    def from_costs(cls, space: str, costs: Mapping[bytes, Sequence[float]], flops: int) -> Self:
        """Return the measured configs of the space called ``space``.

        Args:
            space: The name of the space.
            costs: The costs in seconds of each config.
            flops: The FLOPs of the workload.
        """
        configs: list[dict[str, Any]] = [msgspec.json.decode(config_json) for config_json in costs]
        median_costs = np.array([np.median(config_costs) for config_costs in costs.values()])
        names = dict.fromkeys(knob for config in configs for knob in config)
        knobs = {knob: make_object_array([format_knob(config, knob) for config in configs]) for knob in names}
        return cls(space, knobs, compute_gflops(median_costs, flops))

    @cached_property
    def importances(self) -> dict[str, float]:
        """The importance of each knob that has several values, as fractions of 1, largest first.

        They are those of PED-ANOVA (Watanabe, Bansal and Hutter, "PED-ANOVA: Efficiently quantifying hyperparameter
        importance in arbitrary subspaces", IJCAI 2023) for the fastest tenth of all configs, as Optuna computes them
        for categorical parameters.
        """
        limit = np.sort(self.throughput)[-math.ceil(TOP_FRACTION * len(self.throughput))]
        is_fastest = self.throughput >= limit
        divergences = {}
        for knob, values in self.knobs.items():
            _, indices = np.unique(values, return_inverse=True)
            density = estimate_density(np.bincount(indices))
            fastest_density = estimate_density(np.bincount(indices[is_fastest], minlength=len(density)))
            if len(density) > 1:
                divergences[knob] = float(density @ (fastest_density / density - 1) ** 2)
        total = math.fsum(divergences.values())
        knobs = sorted(divergences, key=lambda knob: (-divergences[knob], knob))
        return {knob: divergences[knob] / total for knob in knobs} if total else {}

    def summarize_values(self, *knobs: str) -> list[dict[str, Any]]:
        """Return a row for each combination of values of ``knobs``: the throughput of the working configs with it.

        Only the values of each knob with the fastest programs have rows, in ascending order.
        """
        throughputs_by_values: dict[tuple[str, ...], list[float]] = {
            values: [] for values in product(*(self.find_best_values(knob) for knob in knobs))
        }
        for *config_values, throughput in zip(*(self.knobs[knob] for knob in knobs), self.throughput, strict=True):
            if (values := tuple(config_values)) in throughputs_by_values:
                throughputs_by_values[values].append(throughput)
        rows: list[dict[str, Any]] = []
        for values, throughputs in throughputs_by_values.items():
            successes = np.array([throughput for throughput in throughputs if throughput > 0])
            if len(successes):
                lower, median, upper = quartiles(successes).tolist()
                rows.append(
                    dict(zip(("value", "other"), values, strict=False))
                    | {"configs": len(throughputs), "failed": len(throughputs) - len(successes)}
                    | {"lower": lower, "median": median, "upper": upper}
                    | {"best": float(successes.max()), "worst": float(successes.min())}
                )
        return rows

    def find_best_values(self, knob: str) -> list[str]:
        """Return the values of ``knob`` with the fastest programs, in ascending order."""
        best_throughputs: dict[str, float] = {}
        for value, throughput in zip(self.knobs[knob], self.throughput, strict=True):
            best_throughputs[value] = max(throughput, best_throughputs.get(value, 0.0))
        best_values = sorted(best_throughputs, key=lambda value: -best_throughputs[value])[:MAX_VALUES]
        return sorted(best_values, key=_get_sort_key)


def estimate_density(counts: Array) -> Floats:
    """Return Optuna's estimate of the probabilities of a categorical parameter's choices, given their ``counts``."""
    total, kernel_count = counts.sum(), np.count_nonzero(counts) + 1
    smoothed_counts = (counts + total / kernel_count) / (1 + len(counts) / kernel_count)
    return np.asarray((smoothed_counts + 1 / len(counts)) / (total + 1))


def describe_important_knobs(spaces: Sequence[MeasuredSpace]) -> str:
    """Return which knobs matter most in each space: "tile_k matters most (62 %; fastest with 32), then ..."."""
    sentences = []
    for space in spaces:
        fastest = space.throughput.argmax()
        texts = [
            f"{knob} ({format_percent(share)}; fastest with {space.knobs[knob][fastest]})"
            for knob, share in list(space.importances.items())[:3]
        ]
        if texts:
            prefix = f"in {space.space}, " if len(spaces) > 1 else ""
            rest = f", then {listed(texts[1:])}" if len(texts) > 1 else ""
            sentences.append(f"{prefix}{texts[0]} matters most{rest}")
    return "; ".join(sentences)


def format_knob(config: Mapping[str, Any], knob: str) -> str:
    if knob not in config:
        return "-"
    value = config[knob]
    return value if isinstance(value, str) else msgspec.json.encode(value).decode().replace(",", ", ")


def _get_sort_key(value: str) -> tuple[bool, list[float], str]:
    """Return the key by which values are sorted: by their numbers, and then as texts."""
    numbers = []
    for number in value.strip("[]").split(", "):
        with suppress(ValueError):
            numbers.append(float(number))
    return (not numbers, numbers, value)
