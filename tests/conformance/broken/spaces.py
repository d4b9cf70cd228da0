"""Spaces that each break one rule of the contract."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from searchlab.errors import InvalidConfig, UnsupportedWorkload
from searchlab.space import Choose, Config, Knob, ProductSpace, Space, Value
from searchlab.target import Target, resolve_target
from searchlab.workload import Workload, parse_workload

if TYPE_CHECKING:
    from tvm.s_tir import Schedule


class Sound(ProductSpace):
    """Two loops of a GEMM, split and unrolled: 48 configs. It breaks no rule."""

    order: tuple[Value, ...] = ("ijk", "ikj")
    unroll: tuple[Value, ...] = (0, 16, 64)

    def __init__(self, workload: Workload, target: Target) -> None:
        if workload.op != "gemm":
            raise UnsupportedWorkload(f"this space has programs for gemm, not for {workload.op}")
        super().__init__(workload, target, self.open_knobs())

    def open_knobs(self) -> list[Knob]:
        tiles = [(4, 2), (2, 4), (8, 1), (1, 8)]
        return [
            Knob("tile", tiles),
            Knob("pack", (False, True)),
            Knob("order", self.order),
            Knob("unroll", self.unroll),
        ]

    def schedule(self, config: Config) -> Schedule:
        self.knobs(config)
        return self.program(config)

    def program(self, config: Config) -> Schedule:
        from tvm.s_tir import Schedule

        schedule = Schedule(self.workload.module)
        if config["unroll"]:
            loop, *_ = schedule.get_loops(schedule.get_sblock("gemm"))
            schedule.annotate(loop, "pragma_auto_unroll_max_step", int(config["unroll"]))  # type: ignore[arg-type]
        return schedule


class AnyOption(Sound):
    def __init__(self, workload: Workload, target: Target, **options: Any) -> None:
        super().__init__(workload, target)


class OwnTarget(Sound):
    """Ignores its target."""

    def __init__(self, workload: Workload, target: Target) -> None:
        super().__init__(workload, resolve_target("haswell"))


class WrongRefusal(Sound):
    def __init__(self, workload: Workload, target: Target) -> None:
        if workload.op != "gemm":
            raise ValueError("gemm only")
        super().__init__(workload, target)


class Words(Sound):
    """Returns a plain dict."""

    def decide(self, choose: Choose) -> Any:
        return dict(super().decide(choose))


class Counts(Sound):
    """Reverses the order of a knob's choices in every second call."""

    calls = 0

    def decide(self, choose: Choose) -> Config:
        self.calls += 1
        last = self.axes[-1]
        axes = [*self.axes[:-1], Knob(last.name, last.choices[:: 1 if self.calls % 2 else -1])]
        return Config([(knob.name, choose(knob)) for knob in axes])


class TrueIsOne(Sound):
    unroll = (False, 0, 1, True)


class Fractions(Sound):
    def open_knobs(self) -> list[Knob]:
        return [*super().open_knobs()[:-1], Knob("unroll", tuple(map(Fraction, (0, 16, 64))))]


class SameName(Sound):
    def open_knobs(self) -> list[Knob]:
        return [*super().open_knobs(), Knob("tile", [(2, 2), (1, 4)])]


class SumsUp(Sound):
    """Adds a derived number to the config."""

    def decide(self, choose: Choose) -> Config:
        config = super().decide(choose)
        return Config({**config, "area": 8})


class MutatesFreely(Sound):
    def mutate(self, config: Config, rng: np.random.Generator) -> Config:
        return Config({**config, "unroll": int(rng.integers(1, 16))})


class LastTwice(Sound):
    def enumerate(self, rng: np.random.Generator | None = None) -> Iterator[Config]:
        for config in super().enumerate(rng):
            yield config
        yield config


class OrderOfHashes(Sound):
    order = tuple({f"order {number}" for number in range(12)})  # of few words, two hash seeds may make the same tuple


class HoldsALock(Sound):
    def __init__(self, workload: Workload, target: Target) -> None:
        super().__init__(workload, target)
        self.lock = threading.Lock()


class Stumbles(Sound):
    """Does not convert errors to InvalidConfig."""

    def program(self, config: Config) -> Schedule:
        if config["pack"]:
            raise ValueError("cannot pack this")
        return super().program(config)


class AlwaysInvalid(Sound):
    def program(self, config: Config) -> Schedule:
        raise InvalidConfig("not yet written")


class TakesAnything(Sound):
    def schedule(self, config: Config) -> Schedule:
        return self.program(Config({"unroll": 0, **config}))


class Alternates(Sound):
    schedules = 0

    def program(self, config: Config) -> Schedule:
        self.schedules += 1
        return super().program(Config({**config, "unroll": 1 + self.schedules}))


class OtherShape(Sound):
    def program(self, config: Config) -> Schedule:
        from tvm.s_tir import Schedule

        return Schedule(parse_workload("gemm:64x64x32").module)


class OtherName(Sound):
    def program(self, config: Config) -> Schedule:
        import tvm
        from tvm.s_tir import Schedule

        function = self.workload.prim_func().with_attr("global_symbol", "mine")
        return Schedule(tvm.IRModule({"mine": function}))


class OtherAnswer(Sound):
    """The same parameters, and another computation."""

    def program(self, config: Config) -> Schedule:
        from tvm.s_tir import Schedule

        return Schedule(parse_workload(f"{self.workload}:relu").module)


class AnotherFunction(Sound):
    """Right, but not a transformation of the workload's own function."""

    def program(self, config: Config) -> Schedule:
        import tvm
        from tvm.s_tir import Schedule

        function = self.workload.module["main"].with_attr("note", "written by hand")
        return Schedule(tvm.IRModule({"main": function}))


class OutsideDefault(Sound):
    def default_config(self) -> Config:
        return Config({**super().default_config(), "unroll": 8})


class InvalidDefault(Sound):
    def default_config(self) -> Config:
        return Config({**super().default_config(), "pack": True})

    def program(self, config: Config) -> Schedule:
        if config["pack"]:
            raise InvalidConfig("not yet written")
        return super().program(config)


class GlobalStream(Sound):
    def program(self, config: Config) -> Schedule:
        np.random.random()
        return super().program(config)


BROKEN: dict[str, list[type[Space]]] = {
    "signature": [AnyOption],
    "starts": [OwnTarget],
    "unfit-workloads": [WrongRefusal],
    "decides": [Words],
    "same-choices": [Counts],
    "choices-differ": [TrueIsOne],
    "plain-values": [Fractions],
    "knob-names": [SameName],
    "members": [SumsUp],
    "stays-inside": [MutatesFreely],
    "enumerates": [LastTwice],
    "fingerprint": [OrderOfHashes],
    "schedules": [Stumbles, AlwaysInvalid],
    "refuses-others": [TakesAnything],
    "one-program": [Alternates],
    "pickles": [HoldsALock],
    "keeps-the-function": [OtherShape, OtherName],
    "default-config": [OutsideDefault, InvalidDefault],
    "right-answer": [OtherAnswer],
    "trace-replays": [AnotherFunction],
    "global-random-state": [GlobalStream],
}
