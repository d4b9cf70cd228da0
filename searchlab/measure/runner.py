"""Running a built program: one run whose result is checked, and as many repeats as its speed deserves."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tvm

from ..arrays import Array
from ..machine.host import start_tvm_threads
from ..workload import Workload
from .code import reason
from .contract import RunSettings
from .isolation import with_limit
from .messages import Failed, Ran, Remeasured, Right

COLD_SECONDS = 0.01
"""A first run, on cold caches and memory not yet mapped, says little of a program that takes less than this."""

Load = Callable[[], "tvm.runtime.Module"]


class Case(NamedTuple):
    """The inputs that programs of a workload are run on, and the right result, where it is asked for."""

    inputs: list[Array]
    expected: Array | None


def case_of(workload: Workload, check: bool, seed: int = 0) -> Case:
    inputs = workload.inputs(seed)
    return Case(list(inputs.values()), workload.reference(inputs) if check else None)


class Runner:
    """Runs programs of one workload on one device.

    local: whether the runs can be timed by the clock of this process, as they cannot across a network.
    case: the inputs and the right result, where the caller has them already.
    error_factor: how many times as far as the workload's tolerance a right result may be from that.
    """

    def __init__(
        self,
        workload: Workload,
        settings: RunSettings,
        device: tvm.runtime.Device,
        local: bool = True,
        case: Case | None = None,
        error_factor: float = 1.0,
    ) -> None:
        self.settings = settings
        self.device = device
        self.local = local
        self.tolerance = [error_factor * part for part in workload.tolerance()]
        inputs, self.expected = case or case_of(workload, settings.check)
        *_, result = workload.shapes.values()
        self.names = list(workload.shapes)
        self.originals = inputs
        self.inputs = [tvm.runtime.tensor(value, device) for value in inputs]
        # An element that a program leaves unwritten must show: it is NaN, or a number that no sum reaches.
        unwritten = np.full(result, np.nan if workload.out_dtype != "int32" else np.iinfo(np.int32).min)
        self.unwritten = unwritten.astype(workload.out_dtype)
        self.result = tvm.runtime.tensor(self.unwritten, device)
        start_tvm_threads()  # which is no work of the first program
        # Kept until the next are loaded: to unload a kernel that has failed can end the process before it has answered.
        self.loaded: list[tvm.runtime.Module] = []

    def run(self, load: Load, best: float = math.inf) -> Ran | Failed:
        """Check a program, and time it.

        best: seconds of the fastest program of the run so far. A program that is more than ``prune_factor`` times
        slower is pruned: it is not repeated. Its first reading decides: the run that is checked, where that is long
        enough to be a reading, or else the first repeat.
        """
        start = time.perf_counter()
        slow = self.settings.prune_factor * best if self.settings.prune_factor else math.inf
        try:
            (module,) = self.loaded = [load()]
            cold = 0.0
            if self.expected is not None:
                cold, wrong = self._check(module, self.inputs, self.expected)
                if wrong:
                    return Failed("wrong_answer", wrong, time.perf_counter() - start)
            counts = cold >= max(COLD_SECONDS, self.settings.min_repeat_ms * 1e-3)
            if counts and cold > slow:
                return Ran((cold,), True, time.perf_counter() - start)
            pruned = False
            if math.isinf(slow) or counts or self.settings.repeat == 1:
                seconds = self.time(module, self.settings.repeat)
            else:
                seconds = self.time(module, 1)
                pruned = seconds[0] > slow
                if not pruned:
                    seconds += self.time(module, self.settings.repeat - 1)
        except Exception as error:  # anything out of a candidate is its own failure
            text = with_limit(reason(error), self.settings.memory_limit_mb)
            return Failed("run_error", text, time.perf_counter() - start)
        if wrong := self._overwritten():
            return Failed("wrong_answer", wrong, time.perf_counter() - start)
        if min(seconds) <= 0:
            text = f"it ran in {min(seconds)} s by this clock; raise number or min_repeat_ms"
            return Failed("run_error", text, time.perf_counter() - start)
        return Ran(seconds, pruned, time.perf_counter() - start)

    def remeasure(self, loads: Sequence[Load], rounds: int) -> Remeasured | Failed:
        """Time each program once more in each round: in turn, and each round begins with another program."""
        try:
            modules = self.loaded = [load() for load in loads]
            readings: list[list[float]] = [[] for _ in modules]
            for first in range(rounds):
                for i in range(len(modules)):
                    which = (first + i) % len(modules)
                    readings[which] += self.time(modules[which], 1)
        except Exception as error:
            return Failed("run_error", reason(error))
        return Remeasured([tuple(seconds) for seconds in readings])

    def check(self, load: Load, case: Case) -> Right | Failed:
        """Whether a program is right on the inputs of ``case``."""
        assert case.expected is not None
        try:
            inputs = [tvm.runtime.tensor(value, self.device) for value in case.inputs]
            (module,) = self.loaded = [load()]
            _, wrong = self._check(module, inputs, case.expected)
        except Exception as error:  # as in run()
            return Failed("run_error", with_limit(reason(error), self.settings.memory_limit_mb))
        return Failed("wrong_answer", wrong) if wrong else Right()

    def time(self, module: tvm.runtime.Module, repeat: int) -> tuple[float, ...]:
        """Seconds of one run, ``repeat`` times over; each a mean over ``number`` runs or as many as the settings ask.

        TVM runs the program once more, before all others.
        """
        evaluate = module.time_evaluator("main", self.device, self.settings.number, repeat, self.settings.min_repeat_ms)
        return tuple(evaluate(*self.inputs, self.result).results)

    def _check(
        self, module: tvm.runtime.Module, inputs: Sequence[tvm.runtime.Tensor], expected: Array
    ) -> tuple[float, str]:
        """Seconds of the program's first run, 0 where they are not known, and what is wrong with its result."""
        self.result.copyfrom(self.unwritten)
        main = module["main"]
        start = time.perf_counter()
        main(*inputs, self.result)
        self.device.sync()  # a kernel fails after its launch has returned
        seconds = time.perf_counter() - start if self.local else 0.0
        return seconds, self._wrong(self.result.numpy(), expected)

    def _overwritten(self) -> str:
        """What is wrong where the program has written to its inputs, which are then restored; empty if it has not.

        Only on the CPU of this machine, where looking costs little.
        """
        if self.expected is None or not self.local or self.device != tvm.cpu():
            return ""
        for name, held, original in zip(self.names, self.inputs, self.originals, strict=False):
            if not np.array_equal(held.numpy().view(np.uint8), original.view(np.uint8)):
                held.copyfrom(original)
                return f"the program writes to its input {name}"
        return ""

    def _wrong(self, result: Array, expected: Array) -> str:
        """Empty if ``result`` is right, else where it is most wrong."""
        rtol, atol = self.tolerance
        off = np.abs(result.astype(np.float64) - expected) - (atol + rtol * np.abs(expected))
        off[np.isnan(off)] = np.inf
        worst = np.unravel_index(np.argmax(off), off.shape)
        if off[worst] <= 0:
            return ""
        at = ", ".join(str(int(i)) for i in worst)
        count = int((off > 0).sum())
        return f"{count} of {off.size} elements are off; at [{at}] it is {result[worst]}, not {expected[worst]}"
