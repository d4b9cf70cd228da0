"""Which knobs of a space matter, and how good each of their values is, from all configs that any strategy measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import msgspec
import numpy as np

from ..arrays import Array, Floats
from ..log.columns import make_object_array
from ..stats.curves import gflops, quartiles

TOP = 0.1  # the fraction of all configs in which important knobs have other values than elsewhere
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

    @cached_property
    def importances(self) -> dict[str, float]:
        """The importance of each knob that has several values, as fractions of 1, largest first.

        They are those of PED-ANOVA (Watanabe, Bansal and Hutter, "PED-ANOVA: Efficiently quantifying hyperparameter
        importance in arbitrary subspaces", IJCAI 2023) for the fastest tenth of all configs, as Optuna computes them
        for categorical parameters.
        """
        limit = np.sort(self.throughput)[-math.ceil(TOP * len(self.throughput))]
        fastest = self.throughput >= limit
        divergences = {}
        for knob, values in self.knobs.items():
            _, indices = np.unique(values, return_inverse=True)
            all_configs, top = (
                density(np.bincount(group, minlength=indices.max() + 1)) for group in (indices, indices[fastest])
            )
            if len(all_configs) > 1:
                divergences[knob] = float(all_configs @ (top / all_configs - 1) ** 2)
        total = math.fsum(divergences.values())
        names = sorted(divergences, key=lambda knob: (-divergences[knob], knob))
        return {knob: divergences[knob] / total for knob in names} if total else {}

    def values(self, *knobs: str) -> list[dict[str, Any]]:
        """Return a row for each combination of values of ``knobs``: the throughput of the working configs with it.

        Only the values of each knob with the fastest programs have rows, in ascending order.
        """
        columns = [self.knobs[knob] for knob in knobs]
        groups: dict[tuple[str, ...], list[float]] = {
            key: [] for key in product(*(self.best_values(knob) for knob in knobs))
        }
        for *values, throughput in zip(*columns, self.throughput, strict=True):
            if (key := tuple(values)) in groups:
                groups[key].append(throughput)
        rows = []
        for key, throughputs in groups.items():
            successes = np.array([throughput for throughput in throughputs if throughput > 0])
            if len(successes):
                ends = *quartiles(successes).tolist(), float(successes.max()), float(successes.min())
                row: dict[str, Any] = dict(zip(("value", "other"), key, strict=False))
                row |= {"configs": len(throughputs), "failed": len(throughputs) - len(successes)}
                rows.append(row | dict(zip(("lower", "median", "upper", "best", "worst"), ends, strict=True)))
        return rows

    def best_values(self, knob: str) -> list[str]:
        """Return the values of ``knob`` with the fastest programs, in ascending order."""
        best: dict[str, float] = {}
        for value, throughput in zip(self.knobs[knob], self.throughput, strict=True):
            best[value] = max(throughput, best.get(value, 0.0))
        fastest = sorted(best, key=lambda value: -best[value])[:MAX_VALUES]
        return sorted(fastest, key=_order)


def density(counts: Array) -> Floats:
    """Return Optuna's estimate of the probabilities of a categorical parameter's choices, given their ``counts``."""
    number, kernels = counts.sum(), np.count_nonzero(counts) + 1
    smoothed = (counts + number / kernels) / (1 + len(counts) / kernels)
    return np.asarray((smoothed + 1 / len(counts)) / (number + 1))


def measured_spaces(costs: Mapping[tuple[str, bytes], Sequence[float]], flops: int) -> list[MeasuredSpace]:
    """Return the spaces in which at least one config works, by name.

    Args:
        costs: The costs in seconds of each config in each space; see :func:`~searchlab.analysis.runs.by_config`.
        flops: The FLOPs of the workload.
    """
    by_space: dict[str, list[tuple[dict[str, Any], float]]] = {}
    for (space, config), config_costs in costs.items():
        by_space.setdefault(space, []).append((msgspec.json.decode(config), float(np.median(config_costs))))
    spaces = []
    for space, configs in sorted(by_space.items()):
        throughput = gflops(np.array([cost for _, cost in configs]), flops)
        names = {name: None for config, _ in configs for name in config}
        knobs = {name: make_object_array([knob_text(config, name) for config, _ in configs]) for name in names}
        if throughput.any():
            spaces.append(MeasuredSpace(space, knobs, throughput))
    return spaces


def knob_text(config: Mapping[str, Any], knob: str) -> str:
    if knob not in config:
        return "-"
    value = config[knob]
    return value if isinstance(value, str) else msgspec.json.encode(value).decode().replace(",", ", ")


def _order(value: str) -> tuple[bool, list[float], str]:
    """Return the key by which values are sorted: by their numbers, and then as texts."""
    numbers = []
    for number in value.strip("[]").split(", "):
        with suppress(ValueError):
            numbers.append(float(number))
    return (not numbers, numbers, value)
