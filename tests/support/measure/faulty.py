"""A space with programs and schedules that fail in all the ways that must not harm a study."""

from __future__ import annotations

import dataclasses
import os
import resource
import signal
import time
from typing import TYPE_CHECKING, Any

from searchlab.errors import InvalidConfig
from searchlab.space import Config, Knob, ProductSpace
from searchlab.target import Target
from searchlab.workload import Workload

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

EXPECTED = {  # the failure that must be recorded; None for a right program
    "none": None,
    "tiled": None,
    "invalid": "invalid",
    "schedule raises": "build_error",
    "schedule segfaults": "crash",
    "schedule hangs": "build_timeout",
    "does not compile": "build_error",
    "does not link": "run_error",
    "segfaults": "crash",
    "aborts": "crash",
    "exits": "crash",
    "hangs": "run_timeout",
    "writes nothing": "wrong_answer",
    "is wrong": "wrong_answer",
}
CALLS: dict[str, tuple[Any, ...]] = {
    "does not link": ("there_is_no_such_function",),
    "segfaults": ("raise", int(signal.SIGSEGV)),
    "aborts": ("abort",),
    "exits": ("exit", 3),
    "hangs": ("pause",),
    "hangs too": ("sleep", 60),
    "naps": ("usleep", 700_000),
    "writes nothing": ("getpid",),
}


class Faulty(ProductSpace):
    """One knob, ``fault``, on a GEMM."""

    def __init__(self, workload: Workload, target: Target) -> None:
        super().__init__(workload, target, [Knob("fault", (*EXPECTED, "hangs too", "naps", "schedule sleeps"))])

    def schedule(self, config: Config) -> Schedule:
        from tvm.s_tir import Schedule

        fault = str(config["fault"])
        schedule = Schedule(self.workload.module)
        block = schedule.get_sblock("gemm")
        if fault == "invalid":
            raise InvalidConfig("this config is invalid on purpose")
        if fault == "schedule raises":
            raise ValueError("a bug of a plug-in")
        if fault == "schedule segfaults":
            os.kill(os.getpid(), signal.SIGSEGV)
        if fault == "schedule hangs":
            time.sleep(60)
        if fault == "schedule sleeps":
            time.sleep(1)
        if fault == "tiled":
            schedule.split(schedule.get_loops(block)[0], [None, 4])
        if fault == "does not compile":
            schedule.bind(schedule.get_loops(block)[0], "threadIdx.x")
        if fault == "is wrong":  # another computation of the same shapes
            return Schedule(dataclasses.replace(self.workload, relu=True).module)
        if fault in CALLS:
            return Schedule(_calls(self.workload, *CALLS[fault]))
        return schedule


class Crashing(Faulty):
    """A few configs, one of which kills any process that schedules it."""

    def __init__(self, workload: Workload, target: Target) -> None:
        ProductSpace.__init__(
            self, workload, target, [Knob("fault", ("none", "tiled", "schedule segfaults", "schedule raises"))]
        )


class Changing(ProductSpace):
    """A config that runs Python code in the process that builds it, and two others.

    Args:
        code: The Python code, which can refer to ``os``, ``resource``, ``time``, ``tvm`` and ``space``.
        is_same: Whether all configs have the same program.

    Attributes:
        is_broken: Whether all later configs raise an error.
    """

    is_broken = False

    def __init__(self, workload: Workload, target: Target, code: str, is_same: bool) -> None:
        super().__init__(workload, target, [Knob("config", ("changing", "second", "third"))])
        self.code = code
        self.is_same = is_same

    def schedule(self, config: Config) -> Schedule:
        import tvm
        from tvm.s_tir import Schedule

        if self.is_broken:
            raise ValueError("an earlier config has broken this space")
        schedule = Schedule(self.workload.module)
        if not self.is_same:
            loops = schedule.get_loops(schedule.get_sblock("gemm"))
            schedule.split(loops[0], [None, {"changing": 1, "second": 2, "third": 4}[str(config["config"])]])
        if config["config"] == "changing":
            exec(self.code, {"os": os, "resource": resource, "time": time, "tvm": tvm, "space": self})
        return schedule


class Unloadable(Faulty):
    """A space that cannot be unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return int, ("not a number",)


def _calls(workload: Workload, function: str, *arguments: int) -> object:
    """A program with the workload's arguments that only calls a C function."""
    import tvm
    from tvm.script import tirx as T

    a, b, c = workload.shapes.values()

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer(a, "float32"), B: T.Buffer(b, "float32"), C: T.Buffer(c, "float32")):  # type: ignore[no-untyped-def,valid-type]
        T.evaluate(T.call_extern("int32", function, *arguments))

    return tvm.IRModule({"main": main.with_attr("global_symbol", "main")})
