"""Toy spaces and synthetic costs for checking policies quickly, without building or running anything."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, ClassVar, cast

from ..errors import InvalidConfig
from ..policy import Policy
from ..records import Failure, Measurement, Trial
from ..space import Choose, Config, Knob, ProductSpace, Space, Value
from ..target import Target
from ..workload import Workload, parse_workload

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

WORKLOAD = parse_workload("gemm:64x64x64")
TARGET = Target({"kind": "llvm"})


@cache
def list_tiles(extent: int, factor_count: int) -> tuple[tuple[int, ...], ...]:
    """Return every factorisation of ``extent``, a power of two, into ``factor_count`` powers of two."""
    powers = [1 << i for i in range(extent.bit_length())]
    return tuple(tile for tile in product(powers, repeat=factor_count) if math.prod(tile) == extent)


class _ToySpace(Space):
    """A space whose schedules leave the workload unchanged; 1 % of the configs have no program."""

    def __init__(self, workload: Workload = WORKLOAD, target: Target = TARGET) -> None:
        super().__init__(workload, target)

    def schedule(self, config: Config) -> Schedule:
        from tvm.s_tir import Schedule

        self.knobs(config)
        if _draw_number(config) < 0.01:
            raise InvalidConfig(f"this toy has no program for {config.to_json()}")
        return Schedule(self.workload.module)


class _ToyProductSpace(_ToySpace, ProductSpace):
    KNOBS: ClassVar[Sequence[Knob]] = ()

    def __init__(self, workload: Workload = WORKLOAD, target: Target = TARGET) -> None:
        ProductSpace.__init__(self, workload, target, self.KNOBS)


class NoKnobs(_ToyProductSpace):
    """A space with a single config, which has no knobs."""


class SingleChoice(_ToyProductSpace):
    """A space with a single config, whose only knob has a single choice."""

    KNOBS = (Knob("tile", [(64, 1)]),)


_SWITCHES = (Knob("unroll", (0, 16, 64, 512)), Knob("order", ("ijk", "ikj", "jki")), Knob("pack", (False, True)))


class Small(_ToyProductSpace):
    """A space of 120 configs, with a knob for each kind of value."""

    KNOBS = (Knob("tile", list_tiles(16, 2)), *_SWITCHES)


class Large(_ToyProductSpace):
    """A space of 13 million configs: the tiles of a 512 x 512 x 1024 GEMM and three switches."""

    KNOBS = (
        Knob("tile_m", list_tiles(512, 4)),
        Knob("tile_n", list_tiles(512, 4)),
        Knob("tile_k", list_tiles(1024, 2)),
        *_SWITCHES,
    )


class Dependent(_ToySpace):
    """A space of 192 configs: the sketch determines which knobs exist, and the tile limits the vector width."""

    def decide(self, choose: Choose) -> Config:
        named_values: list[tuple[str, Value]] = []

        def ask(name: str, choices: Sequence[Value]) -> Value:
            value = choose(Knob(name, choices))
            named_values.append((name, value))
            return value

        sketch = ask("sketch", ("plain", "tiled", "packed"))
        if sketch != "plain":
            tile = cast(tuple[int, ...], ask("tile", list_tiles(16 if sketch == "tiled" else 8, 3)))
            ask("vector", [1 << i for i in range(tile[-1].bit_length())])
        if sketch == "packed":
            ask("pack", ("a", "b", "both"))
        ask("parallel", (False, True))
        return Config(named_values)


# --- made-up costs ----------------------------------------------------------------------------------

SimulateFunction = Callable[[Config], Measurement]


def simulate_smooth(config: Config) -> Measurement:
    """Return a cost that varies smoothly around a single optimum, or a failure for configs with large inner tiles."""
    best_exponents = {"tile": 2.0, "tile_m": 2.0, "tile_n": 4.0, "tile_k": 5.0}
    slowdown = 0.0
    inner_size = 0.0
    for name, value in config.items():
        if isinstance(value, tuple):
            exponents = [math.log2(max(factor, 1)) for factor in value] or [0.0]
            slowdown += 0.25 * (exponents[-1] - best_exponents.get(name, 2.0)) ** 2
            slowdown += 0.05 * sum((exponent - 2.0) ** 2 for exponent in exponents[:-1])
            inner_size += exponents[-1]
        elif isinstance(value, str):
            slowdown += {"ikj": 0.0, "packed": 0.0, "both": 0.0, "jki": 1.2}.get(value, 0.6)
        elif isinstance(value, bool):
            slowdown += 0.0 if value else 0.5
        else:
            slowdown += 0.3 * abs(math.log2(abs(value) + 1) - 4.0) / 2
    if inner_size > 15:
        return failed_measurement("run_error", "the made-up registers ran out")
    return successful_measurement(1e-3 * (1 + slowdown))


def simulate_flaky(config: Config) -> Measurement:
    """Return a :func:`simulate_smooth` cost, or one of five kinds of failure for a third of the configs."""
    failures: tuple[Failure, ...] = ("invalid", "build_error", "run_timeout", "wrong_answer", "crash")
    number = _draw_number(config)
    if number < 0.33:
        return failed_measurement(failures[int(number * 1000) % len(failures)], "made up")
    return simulate_smooth(config)


def simulate_invalid(config: Config) -> Measurement:
    return failed_measurement("invalid", "made up")


def simulate_equal(config: Config) -> Measurement:
    return successful_measurement(1e-3)


def successful_measurement(seconds: float) -> Measurement:
    return Measurement(seconds=(seconds, seconds, seconds))


def failed_measurement(failure: Failure, message: str) -> Measurement:
    return Measurement(failure=failure, message=message)


def _draw_number(config: Config) -> float:
    """Return a number in [0, 1) that depends only on the config."""
    digest = hashlib.sha256(json.dumps(config.to_json(), default=str).encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


# --- the loop, without measuring or logging ---------------------------------------------------------


def simulate_trials(configs: Sequence[Config], simulate: SimulateFunction, first_index: int = 0) -> list[Trial]:
    """Return a trial for each config, with a simulated measurement."""
    return [Trial(first_index + i, config, simulate(config)) for i, config in enumerate(configs)]


def run_policy(policy: Policy, simulate: SimulateFunction, trial_count: int, batch: int = 8) -> list[Trial]:
    """Run a policy for ``trial_count`` trials, or fewer if it stops, and return the trials."""
    trials: list[Trial] = []
    while len(trials) < trial_count:
        configs = policy.ask(min(batch, trial_count - len(trials)))
        if not configs:
            break
        new_trials = simulate_trials(configs, simulate, len(trials))
        policy.tell(new_trials)
        trials += new_trials
    return trials
