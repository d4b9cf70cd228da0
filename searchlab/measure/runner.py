"""Run loaded programs on a device: check their results, and time them."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import tvm
from tvm.rpc.base import RPC_SESS_MASK

from ..arrays import Array
from ..errors import SearchlabError
from ..machine.host import start_tvm_threads
from ..records import compute_cost
from ..workload import Packed, Workload
from .cases import Cases, make_cases, make_wrong_values
from .code import Code, error_text, load_objects, pack_inputs
from .contract import RunSettings
from .isolation import add_memory_limit
from .messages import Failed, Ran, Remeasured

COLD_SECONDS = 0.01
"""The time below which executions are timed by TVM's evaluator, which warms up and has no overhead."""

SINGLE_FACTOR = 4.0
"""How many times a program's readings a single execution may take, plus the allowances below."""

SINGLE_SECONDS = 20e-6
"""The allowance for the call itself, in seconds."""

DEVICE_SECONDS = 1e-4
"""The additional allowance for a GPU or a device of a fleet, in seconds."""

MAX_SINGLE_EXECUTIONS = 20
"""The maximum number of single executions. Other work on this machine slows down some of them, but hardly all."""

ENOUGH_EXECUTION_SECONDS = 0.1
"""The time in seconds after which three tries are enough, since other work hardly slows long executions."""

WARM_SECONDS = 1e-3
"""The time below which caches and threads are warmed up before a single execution of a program."""


class LoadedProgram(NamedTuple):
    """A program in memory, and the arrays with which it is called."""

    module: tvm.runtime.Module
    inputs: Sequence[tvm.runtime.Tensor]
    outputs: Sequence[tvm.runtime.Tensor]

    @property
    def arguments(self) -> list[tvm.runtime.Tensor]:
        return [*self.inputs, *self.outputs]


class Timing(NamedTuple):
    """The readings of a program in seconds.

    Attributes:
        pruned: Whether it was not timed again because it is slow.
    """

    readings: tuple[float, ...]
    pruned: bool = False


class Timer:
    """Times programs on one device.

    Args:
        settings: How to time programs.
        is_on_cpu: Whether the device is this machine's CPU.
    """

    def __init__(self, settings: RunSettings, device: tvm.runtime.Device, is_on_cpu: bool) -> None:
        self.settings = settings
        self.device = device
        self.flush_options = _make_flush_options(device) if settings.cache == "cold" else None
        # The most that a single execution takes besides its computation: a call, and waiting for the device.
        self.overhead_seconds = SINGLE_SECONDS
        if not is_on_cpu:
            self.overhead_seconds += DEVICE_SECONDS + 4 * min(_time_call(device.sync) for _ in range(3))

    def execute(self, program: LoadedProgram) -> float:
        """Execute a program once, and return the time in seconds."""
        main = program.module["main"]
        arguments = program.arguments

        def call() -> None:
            main(*arguments)
            self.device.sync()  # a kernel may fail after its launch returns

        return _time_call(call)

    def time(self, program: LoadedProgram, repeat: int, min_repeat_ms: int | None = None) -> tuple[float, ...]:
        """Return ``repeat`` readings in seconds, each averaged over the number of executions that the settings require.

        TVM first runs the program once without timing it.
        """
        min_ms = self.settings.min_repeat_ms if min_repeat_ms is None else min_repeat_ms
        execution_count = self.settings.number
        if self.flush_options is None:
            evaluate = program.module.time_evaluator("main", self.device, execution_count, repeat, min_ms)
            return tuple(evaluate(*program.arguments).results)
        readings: list[float] = []
        while len(readings) < repeat:
            start = time.perf_counter()
            # TVM flushes the caches before each of its repeats, so each of them is a single execution.
            evaluate = program.module.time_evaluator("main", self.device, 1, execution_count, **self.flush_options)
            executions = evaluate(*program.arguments).results
            elapsed_ms = 1e3 * (time.perf_counter() - start)
            if elapsed_ms >= min_ms:
                readings.append(float(np.mean(executions)))
            else:
                execution_count = math.ceil(max(1.6 * execution_count, 1.1 * execution_count * min_ms / elapsed_ms))
        return tuple(readings)

    def time_or_prune(self, program: LoadedProgram, execution_seconds: float | None, limit_seconds: float) -> Timing:
        """Time a program ``repeat`` times, unless it twice takes more than ``limit_seconds``.

        ``execution_seconds`` is the time of its checked execution, or None if it has not been executed or the time
        includes more than the execution. Then, the first reading shows whether the program may be slow.
        """
        repeat = self.settings.repeat
        readings: tuple[float, ...] = ()
        fastest_seconds = execution_seconds
        if execution_seconds is None and repeat > 1 and limit_seconds < math.inf:
            readings = self.time(program, 1)
            fastest_seconds = readings[0]
        if fastest_seconds is not None and fastest_seconds > limit_seconds:
            if readings:
                fastest_seconds = min(*readings, *self.time(program, 1, 0))
            else:
                fastest_seconds = self._time_again(program, fastest_seconds)
            if fastest_seconds > limit_seconds:
                return Timing((fastest_seconds,), pruned=True)
            readings = ()
        return Timing(readings + self.time(program, repeat - len(readings)))

    def _time_again(self, program: LoadedProgram, execution_seconds: float) -> float:
        """Return the shorter time in seconds of an execution and another one, or of two readings if these are brief."""
        fastest_seconds = execution_seconds
        if fastest_seconds >= COLD_SECONDS:
            fastest_seconds = min(fastest_seconds, self.execute(program))
        if fastest_seconds < COLD_SECONDS:  # too brief for an execution to count, since caches are cold
            fastest_seconds = min(self.time(program, 2, 0))
        return fastest_seconds


def _make_flush_options(device: tvm.runtime.Device) -> dict[str, Any]:
    """Return the options with which TVM's evaluator removes a program's arguments from ``device``'s caches.

    On a CPU, an instruction removes each of their cache lines, except those of the first argument, as in AutoTVM, Ansor
    and MetaSchedule. On a GPU, everything is evicted by copying an array that is twice as large as the L2 cache.
    """
    if device.dlpack_device_type() % RPC_SESS_MASK == tvm.cpu().dlpack_device_type():
        return {"f_preproc": "cache_flush_cpu_non_first_arg"}
    cache_bytes = device.l2_cache_size_bytes
    if not cache_bytes:
        raise SearchlabError('the driver does not report the size of the L2 cache, which cache = "cold" requires')
    return {"cache_flush_bytes": 2 * cache_bytes}


def _time_call(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


class Runner:
    """Runs programs for one workload on one device.

    Args:
        settings: How to check and time programs.
        is_local: Whether the device is part of this machine, so that this process can time its runs.
        cases: The inputs and the expected results, which are computed if this is None.
    """

    def __init__(
        self,
        workload: Workload,
        settings: RunSettings,
        device: tvm.runtime.Device,
        is_local: bool = True,
        cases: Cases | None = None,
    ) -> None:
        self.settings = settings
        self.is_local = is_local
        self.cases = cases or make_cases(workload, settings.check)
        is_on_cpu = is_local and bool(device == tvm.cpu())
        self.timer = Timer(settings, device, is_on_cpu)

        def copy_to_device(inputs: dict[str, Array]) -> dict[str, tvm.runtime.Tensor]:
            return {name: tvm.runtime.tensor(value, device) for name, value in inputs.items()}

        self.timing_inputs = copy_to_device(self.cases.timed_case.inputs)
        self.check_inputs = copy_to_device(self.cases.checked_case.inputs) if self.cases.checked_case else {}
        # Inputs are compared with their original content only on this machine's CPU, where this is cheap.
        self.guards_inputs = is_on_cpu and self.cases.checked_case is not None
        # The current program's packed inputs, each with its name and a copy of its original content:
        self.packed_inputs: list[tuple[str, tvm.runtime.Tensor, Array]] = []
        # Results are first filled with NaN or an impossible number, to reveal elements that a program does not write.
        self.unwritten_values = [array.unwritten() for array in workload.arguments[-workload.result_count :]]
        self.outputs = [tvm.runtime.tensor(value, device) for value in self.unwritten_values]
        # Before a program is timed, they are filled with values that it cannot recognise as such.
        self.wrong_values = [make_wrong_values(expected) for expected in self.cases.timed_case.expected_results]
        self.spare_outputs = [tvm.runtime.tensor(value, device) for value in self.unwritten_values]
        start_tvm_threads()  # so that the time for starting them is not charged to the first program
        # Kept until the next modules are loaded: unloading a failed kernel can end the process before it has answered.
        self.modules: list[tvm.runtime.Module] = []

    def run(self, load: Callable[[], tvm.runtime.Module], packed: Packed, best_cost: float = math.inf) -> Ran | Failed:
        """Pack the arguments that a program takes ``packed``, check the program's result, and time the program.

        ``load`` is a function that loads the program. If the checked run, or else the first repeat, takes more than
        ``prune_factor`` times ``best_cost`` (in seconds), and further readings confirm this, the program is pruned: it
        is not timed again. If it is faster than ``best_cost``, it is timed once more where the settings say so
        (``confirm``).
        """
        start = time.perf_counter()
        try:
            answer = self._check_and_time(load, packed, best_cost)
            answer = self._restore_inputs() or answer
        except Exception as error:  # a candidate may raise anything
            answer = Failed("run_error", add_memory_limit(error_text(error), self.settings.memory_limit_mb))
            with contextlib.suppress(Exception):
                self._restore_inputs()
        seconds = time.perf_counter() - start
        if isinstance(answer, Failed):
            return msgspec.structs.replace(answer, seconds=seconds)
        timing, check_seconds = answer
        return Ran(timing.readings, timing.pruned, seconds, check_seconds)

    def _check_and_time(
        self, load: Callable[[], tvm.runtime.Module], packed: Packed, best_cost: float
    ) -> tuple[Timing, float] | Failed:
        """Return the readings, and the time in seconds until the first of them, or how the program failed."""
        start = time.perf_counter()
        limit_seconds = self.settings.prune_factor * best_cost if self.settings.prune_factor else math.inf
        (module,) = self.modules = [load()]
        self.packed_inputs = []
        program = self._prepare_program(module, packed, self.timing_inputs)
        execution_seconds = None
        if self.cases.checked_case:
            _fill_outputs(self.outputs, self.unwritten_values)
            elapsed = self.timer.execute(self._prepare_program(module, packed, self.check_inputs))
            execution_seconds = elapsed if self.is_local else None
            if error := self.cases.checked_case.describe_error(output.numpy() for output in self.outputs):
                return Failed("wrong_answer", error)
        _fill_outputs(self.outputs, self.wrong_values)
        check_seconds = time.perf_counter() - start
        timing = self._time_and_confirm(program, execution_seconds, limit_seconds, best_cost)
        for reading in timing.readings:
            if not self._is_plausible(reading):
                return Failed("run_error", self._describe_implausible(reading))
        error = self._describe_error(self.outputs)
        if not error and not timing.pruned and self.cases.checked_case:
            error = self._check_single_executions(program, min(timing.readings))
        if error:
            return Failed("wrong_answer", f"when it was executed again, {error}")
        return timing, check_seconds

    def _time_and_confirm(
        self, program: LoadedProgram, execution_seconds: float | None, limit_seconds: float, best_cost: float
    ) -> Timing:
        """Time a program, and once more if it is to be confirmed or the clock has measured an impossible time."""
        timing = self.timer.time_or_prune(program, execution_seconds, limit_seconds)
        readings = timing.readings
        if self.settings.is_confirmed(compute_cost(readings, None, self.settings.statistic), best_cost):
            readings += self.timer.time(program, len(readings))
        if not all(map(self._is_plausible, readings)):  # for example, because this machine was suspended
            readings = self.timer.time(program, len(readings))
        return Timing(readings, timing.pruned)

    def _is_plausible(self, reading: float) -> bool:
        return 0 < reading <= self.settings.run_timeout

    def _describe_implausible(self, reading: float) -> str:
        if reading <= 0:
            return f"the clock measured {reading} s; increase number or min_repeat_ms"
        return f"the clock measured {reading:g} s twice, but run_timeout is {self.settings.run_timeout:g} s"

    def remeasure(self, codes: Sequence[Code], rounds: int) -> Remeasured | Failed:
        """Time each program once per round. The programs take turns, and each round begins with the next program.

        Results are checked after the first round.
        """
        try:
            self.modules = [load_objects(code.objects) for code in codes]
            self.packed_inputs = []
            programs = [
                self._prepare_program(module, code.packed, self.timing_inputs)
                for module, code in zip(self.modules, codes, strict=True)
            ]
            program_readings: list[list[float]] = [[] for _ in programs]
            for round_number in range(rounds):
                for i in range(len(programs)):
                    index = (round_number + i) % len(programs)
                    if round_number == 0:
                        _fill_outputs(self.outputs, self.wrong_values)
                    program_readings[index] += self.timer.time(programs[index], 1)
                    if round_number == 0 and (problem := self._describe_error(self.outputs)):
                        return Failed("wrong_answer", problem)
        except Exception as error:
            return Failed("run_error", error_text(error))
        return self._restore_inputs() or Remeasured([tuple(readings) for readings in program_readings])

    def _prepare_program(
        self, module: tvm.runtime.Module, packed: Packed, inputs: dict[str, tvm.runtime.Tensor]
    ) -> LoadedProgram:
        """Return a program with its arguments. The program itself packs the inputs that it takes packed."""
        tensors_by_name = pack_inputs(module, packed, inputs)
        if self.guards_inputs:
            for name in tensors_by_name.keys() & packed:
                self.packed_inputs += [(f"{name}, packed", tensor, tensor.numpy()) for tensor in tensors_by_name[name]]
        return LoadedProgram(module, [t for tensors in tensors_by_name.values() for t in tensors], self.outputs)

    def _check_single_executions(self, program: LoadedProgram, fastest_reading: float) -> str | None:
        """Return a description of what is wrong if a program's single executions are wrong or slower than its readings.

        A program that returns at once if its result is already there has readings far below the time of an execution.
        To be sure that there is no result yet, another array, filled with wrong values, receives it. The program is
        executed repeatedly only while it is too slow. ``fastest_reading`` is its fastest reading, in seconds.
        """
        spare_program = program._replace(outputs=self.spare_outputs)
        fastest_seconds, total_seconds = math.inf, 0.0
        for count in range(MAX_SINGLE_EXECUTIONS):
            if count >= 3 and total_seconds > ENOUGH_EXECUTION_SECONDS:
                break
            if fastest_reading < WARM_SECONDS:
                self.timer.execute(program)
            _fill_outputs(self.spare_outputs, self.wrong_values)
            seconds = self.timer.execute(spare_program)
            fastest_seconds, total_seconds = min(fastest_seconds, seconds), total_seconds + seconds
            if error := self._describe_error(self.spare_outputs):
                return error
            if self._is_within_allowance(fastest_seconds, fastest_reading):
                return None
        # Other processes may delay every call, for example by using the GPU in turn. If so, they also delay executions
        # that find their result.
        computed_values = [output.numpy() for output in self.spare_outputs]
        repeated_seconds = math.inf
        for _ in range(3):
            _fill_outputs(self.spare_outputs, computed_values)
            repeated_seconds = min(repeated_seconds, self.timer.execute(spare_program))
        if self._is_within_allowance(fastest_seconds, repeated_seconds):
            return None
        return (
            f"it took at least {fastest_seconds:.3g} s, but only {repeated_seconds:.3g} s when the result was already "
            "there: it does not compute in every execution"
        )

    def _is_within_allowance(self, single_seconds: float, reading: float) -> bool:
        """Return whether a single execution took no longer than one that takes ``reading`` seconds may take."""
        return single_seconds <= SINGLE_FACTOR * reading + self.timer.overhead_seconds

    def _restore_inputs(self) -> Failed | None:
        """If the program has overwritten an input, restore the input and return the failure; otherwise, return None."""
        if not self.guards_inputs:
            return None
        assert self.cases.checked_case
        inputs = [(name, tensor, self.cases.checked_case.inputs[name]) for name, tensor in self.check_inputs.items()]
        inputs += [(name, tensor, self.cases.timed_case.inputs[name]) for name, tensor in self.timing_inputs.items()]
        overwritten_names = []
        for name, tensor, original in inputs + self.packed_inputs:
            if not np.array_equal(tensor.numpy().view(np.uint8), original.view(np.uint8)):
                tensor.copyfrom(original)
                overwritten_names.append(name)
        if overwritten_names:
            return Failed("wrong_answer", f"the program writes to its input {overwritten_names[0]}")
        return None

    def _describe_error(self, outputs: Sequence[tvm.runtime.Tensor]) -> str | None:
        return self.cases.timed_case.describe_error(output.numpy() for output in outputs)


def _fill_outputs(outputs: Sequence[tvm.runtime.Tensor], values: Sequence[Array]) -> None:
    for output, value in zip(outputs, values, strict=False):  # there are no values if results are not checked
        output.copyfrom(value)
