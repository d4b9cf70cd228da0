"""The worker process, which either builds programs, or runs them to check their results and to time them.

A candidate can crash only its own worker. A program runs on this machine or on a device in a fleet.
"""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, assert_never

import msgspec
import numpy as np
import tvm
from tvm.rpc.base import RPC_SESS_MASK

from ..arrays import Array
from ..costmodel.features import ScheduledFeatures, make_features
from ..errors import InvalidConfig, SearchlabError, shorten_text, text_of
from ..machine.host import start_tvm_threads
from ..options import plain
from ..plugins import line_of
from ..records import Failure, cost_of
from ..space import Config, Space
from ..units import RUNS, cost_of_value
from ..workload import Packed, Workload, call_with, program_hash
from ..workload.base import results_of
from . import messages
from .code import Code, Objects, device_name, device_of, error_text, link, load_objects, packed_inputs, to_code
from .contract import RunSettings
from .fleet import LOADER_FUNCTION, Address
from .isolation import StateComparison, add_memory_limit, limit_memory
from .messages import Answer, DeviceLost, DeviceUnfit, Done, Failed, Ran, Remeasured, Reply, SetUp, SetUpRunner, Work
from .process import Channel

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

SINGLE_TOTAL = 0.1
"""The time in seconds after which three tries are enough, since other work hardly slows long executions."""

WARM_SECONDS = 1e-3
"""The time below which caches and threads are warmed up before a single execution of a program."""

SESSION_TIMEOUT_ERROR = "RPCSessionTimeoutError"
"""What a server reports when it ends a session that took too long."""

Load = Callable[[], "tvm.runtime.Module"]


class LoadableProgram(NamedTuple):
    """A program to run, and the arguments that it takes packed."""

    load: Load
    packed: Packed


def _load_local(code: Code) -> LoadableProgram:
    return LoadableProgram(partial(load_objects, code.objects), code.packed)


class Case(NamedTuple):
    """The inputs for a workload's programs, and the expected results with their tolerance (rtol, atol).

    Attributes:
        expected: The expected results, or None if results are not checked.
    """

    inputs: list[Array]
    expected: tuple[Array, ...] | None
    tolerance: tuple[float, float] = (0.0, 0.0)


class Cases(NamedTuple):
    """The case on which a program is checked before it is timed, and the case on which it is timed."""

    check: Case
    timing: Case


SEED_OFFSET = 1 << 20
"""The difference between the seeds of the two cases, if no inputs with exact results exist."""


def make_cases(workload: Workload, check: bool, seed: int = 0, error_factor: float = 1.0) -> Cases:
    """Return the cases for a workload's programs.

    Where possible, the results of the first case are exact, so that a single missing summand shows; see
    :meth:`Workload.exact_inputs`.
    """

    def make_case(inputs: dict[str, Array], rtol: float, atol: float) -> Case:
        return Case(list(inputs.values()), results_of(workload, inputs), (rtol, atol))

    inputs = workload.inputs(seed)
    if not check:
        return Cases(*[Case(list(inputs.values()), None)] * 2)
    rtol, atol = (error_factor * part for part in workload.tolerance())
    timing_case = make_case(inputs, rtol, atol)
    exact = workload.exact_inputs(seed)
    if exact is None:
        check_case = make_case(workload.inputs(seed + SEED_OFFSET), rtol, atol)
    elif error_factor == 1:
        check_case = make_case(exact, 0.0, 0.5)  # every wrong result is off by at least 1
    else:
        check_case = make_case(exact, rtol, max(0.5, atol))
    return Cases(check_case, timing_case)


def wrong_values(expected: Array) -> Array:
    """Return an array of wrong values, all different from ``expected``, that look like results of the workload."""
    values = np.roll(expected.reshape(-1), 1).reshape(expected.shape)
    if expected.dtype == np.bool_:
        return np.logical_not(expected)
    if np.issubdtype(expected.dtype, np.integer):
        return np.where(values == expected, np.invert(expected), values)
    size = np.nan_to_num(np.abs(expected.astype(np.float64)), nan=1.0, posinf=1.0)
    close = ~(np.abs(values.astype(np.float64) - expected.astype(np.float64)) > 0.1 * size)
    distant_values = np.where(np.signbit(expected), 1 + size, -1 - size).astype(expected.dtype)
    return np.where(close, distant_values, values).astype(expected.dtype)


def flush_options(device: tvm.runtime.Device) -> dict[str, Any]:
    """Return the options with which TVM's evaluator removes a program's arguments from ``device``'s caches.

    On a CPU, an instruction removes each of their cache lines, except those of the first argument, as in AutoTVM, Ansor
    and MetaSchedule. On a GPU, everything is evicted by copying an array that is twice as large as the L2 cache.
    """
    if device.dlpack_device_type() % RPC_SESS_MASK == tvm.cpu().dlpack_device_type():
        return {"f_preproc": "cache_flush_cpu_non_first_arg"}
    size = device.l2_cache_size_bytes
    if not size:
        raise SearchlabError('the driver does not report the size of the L2 cache, which cache = "cold" requires')
    return {"cache_flush_bytes": 2 * size}


class Runner:
    """Runs programs for one workload on one device.

    Args:
        settings: How to check and time programs.
        local: Whether the device is part of this machine, so that this process can time its runs.
        cases: The inputs and the expected results, which are computed if this is None.
    """

    def __init__(
        self,
        workload: Workload,
        settings: RunSettings,
        device: tvm.runtime.Device,
        local: bool = True,
        cases: Cases | None = None,
    ) -> None:
        self.settings = settings
        self.device = device
        self.local = local
        self.cases = cases or make_cases(workload, settings.check)
        results = workload.arguments[-workload.results :]
        self.names = [argument.name for argument in workload.arguments]
        self.inputs = {id(case): [tvm.runtime.tensor(value, device) for value in case.inputs] for case in self.cases}
        # The current program's packed inputs, each with its name and a copy of its original content:
        self.packed_inputs: list[tuple[str, tvm.runtime.Tensor, Array]] = []
        # Results are first filled with NaN or an impossible number, to reveal elements that a program does not write.
        self.unwritten = [array.unwritten() for array in results]
        self.results = [tvm.runtime.tensor(value, device) for value in self.unwritten]
        # Before a program is timed, they are filled with values that it cannot recognise as such.
        self.wrong_values = [wrong_values(value) for value in self.cases.timing.expected or ()]
        self.spare_results = [tvm.runtime.tensor(value, device) for value in self.unwritten]
        self.flush = flush_options(device) if settings.cache == "cold" else None
        # The most that a single execution takes besides its computation: a call, and waiting for the device.
        self.overhead = SINGLE_SECONDS
        if not self._on_cpu:
            self.overhead += DEVICE_SECONDS + 4 * min(self._seconds(device.sync) for _ in range(3))
        start_tvm_threads()  # so that the time for starting them is not charged to the first program
        # Kept until the next modules are loaded: unloading a failed kernel can end the process before it has answered.
        self.modules: list[tvm.runtime.Module] = []

    def run(self, program: LoadableProgram, best: float = math.inf) -> Ran | Failed:
        """Pack the arguments that a program takes packed, check the program's result, and time the program.

        If the checked run, or else the first repeat, takes more than ``prune_factor`` times ``best`` (in seconds), and
        further readings confirm this, the program is pruned: it is not timed again. If it is faster than ``best``, it
        is timed once more where the settings say so (``confirm``).
        """
        start = time.perf_counter()
        try:
            answer = self._run(program, best)
            answer = self._restore_inputs() or answer
        except Exception as error:  # a candidate may raise anything
            answer = Failed("run_error", add_memory_limit(error_text(error), self.settings.memory_limit_mb))
            with contextlib.suppress(Exception):
                self._restore_inputs()
        seconds = time.perf_counter() - start
        if isinstance(answer, Failed):
            return Failed(answer.failure, answer.message, seconds)
        return Ran(answer.seconds, answer.pruned, seconds, answer.check_seconds)

    def _run(self, program: LoadableProgram, best: float) -> Ran | Failed:
        start = time.perf_counter()
        slow = self.settings.prune_factor * best if self.settings.prune_factor else math.inf
        (module,) = self.modules = [program.load()]
        self.packed_inputs = []
        inputs = self._prepare_arguments(module, program.packed, self.cases.timing)
        cold = 0.0
        if self.cases.check.expected is not None:
            arguments = self._prepare_arguments(module, program.packed, self.cases.check)
            self._fill(self.results, self.unwritten)
            elapsed = self._execute(module, arguments, self.results)
            cold = elapsed if self.local else 0.0
            if wrong := self._wrong_result(self.results, self.cases.check):
                return Failed("wrong_answer", wrong)
        self._fill(self.results, self.wrong_values)
        check_seconds = time.perf_counter() - start
        seconds, pruned = self._time_program(module, inputs, cold, slow)
        if self.settings.is_confirmed(cost_of(seconds, None, self.settings.statistic), best):
            seconds += self.time(module, inputs, len(seconds))
        if not all(map(self._is_plausible, seconds)):  # for example, because this machine was suspended
            seconds = self.time(module, inputs, len(seconds))
        for reading in seconds:
            if not self._is_plausible(reading):
                return Failed("run_error", self._describe_implausible(reading))
        if self.cases.timing.expected is not None:
            wrong = self._wrong_result(self.results, self.cases.timing)
            if not wrong and not pruned:
                wrong = self._check_computes(module, inputs, min(seconds))
            if wrong:
                return Failed("wrong_answer", f"when it was executed again, {wrong}")
        return Ran(seconds, pruned, 0.0, check_seconds)

    def _time_program(
        self, module: tvm.runtime.Module, inputs: Sequence[tvm.runtime.Tensor], cold: float, slow: float
    ) -> tuple[tuple[float, ...], bool]:
        """Return the readings, and whether the program was pruned because two of them exceed ``slow`` seconds."""
        repeat = self.settings.repeat
        if cold > slow:
            fastest = min(cold, self._execute(module, inputs, self.results)) if cold >= COLD_SECONDS else 0.0
            if fastest < COLD_SECONDS:  # too short for the first execution to count, since caches are cold
                fastest = min(self.time(module, inputs, 2, 0))
            if fastest > slow:
                return (fastest,), True
        elif not cold and math.isfinite(slow) and repeat > 1:
            first = self.time(module, inputs, 1)
            if first[0] <= slow:
                return first + self.time(module, inputs, repeat - 1), False
            fastest = min(*first, *self.time(module, inputs, 1, 0))
            if fastest > slow:
                return (fastest,), True
        return self.time(module, inputs, repeat), False

    def _is_plausible(self, seconds: float) -> bool:
        return 0 < seconds <= self.settings.run_timeout

    def _describe_implausible(self, seconds: float) -> str:
        if seconds <= 0:
            return f"the clock measured {seconds} s; increase number or min_repeat_ms"
        return f"the clock measured {seconds:g} s twice, but run_timeout is {self.settings.run_timeout:g} s"

    def remeasure(self, programs: Sequence[LoadableProgram], rounds: int) -> Remeasured | Failed:
        """Time each program once per round. The programs take turns, and each round begins with the next program.

        Results are checked after the first round.
        """
        try:
            self.modules = [program.load() for program in programs]
            self.packed_inputs = []
            inputs = [
                self._prepare_arguments(module, program.packed, self.cases.timing)
                for module, program in zip(self.modules, programs, strict=True)
            ]
            readings: list[list[float]] = [[] for _ in self.modules]
            for number in range(rounds):
                for i in range(len(self.modules)):
                    index = (number + i) % len(self.modules)
                    if number == 0:
                        self._fill(self.results, self.wrong_values)
                    readings[index] += self.time(self.modules[index], inputs[index], 1)
                    if number == 0 and (wrong := self._wrong_result(self.results, self.cases.timing)):
                        return Failed("wrong_answer", wrong)
        except Exception as error:
            return Failed("run_error", error_text(error))
        return self._restore_inputs() or Remeasured([tuple(seconds) for seconds in readings])

    def time(
        self,
        module: tvm.runtime.Module,
        inputs: Sequence[tvm.runtime.Tensor],
        repeat: int,
        min_repeat_ms: int | None = None,
    ) -> tuple[float, ...]:
        """Return ``repeat`` readings in seconds, each averaged over the number of executions that the settings require.

        TVM first runs the program once without timing it.
        """
        shortest = self.settings.min_repeat_ms if min_repeat_ms is None else min_repeat_ms
        number = self.settings.number
        if self.flush is None:
            evaluate = module.time_evaluator("main", self.device, number, repeat, shortest)
            return tuple(evaluate(*inputs, *self.results).results)
        readings: list[float] = []
        while len(readings) < repeat:
            start = time.perf_counter()
            # TVM flushes the caches before each of its repeats, so each of them is a single execution.
            evaluate = module.time_evaluator("main", self.device, 1, number, **self.flush)
            executions = evaluate(*inputs, *self.results).results
            elapsed_ms = 1e3 * (time.perf_counter() - start)
            if elapsed_ms >= shortest:
                readings.append(float(np.mean(executions)))
            else:
                number = math.ceil(max(1.6 * number, 1.1 * number * shortest / elapsed_ms))
        return tuple(readings)

    def _prepare_arguments(self, module: tvm.runtime.Module, packed: Packed, case: Case) -> list[tvm.runtime.Tensor]:
        """Return a program's input arguments for ``case``. The program itself packs those that it takes packed."""
        tensors = packed_inputs(module, packed, dict(zip(self.names, self.inputs[id(case)], strict=False)))
        if self._guards_inputs:
            arrays = [(f"{name}, packed", array) for name in tensors.keys() & packed for array in tensors[name]]
            self.packed_inputs += [(name, array, array.numpy()) for name, array in arrays]
        return [array for arrays in tensors.values() for array in arrays]

    def _check_computes(self, module: tvm.runtime.Module, inputs: Sequence[tvm.runtime.Tensor], reading: float) -> str:
        """Return a description of what is wrong if a program's single executions are wrong or slower than its readings.

        A program that returns at once if its result is already there has readings far below the time of an execution.
        To be sure that there is no result yet, another array, filled with wrong values, receives it. The program is
        executed repeatedly only while it is too slow. ``reading`` is its fastest reading, in seconds.
        """
        fastest, total = math.inf, 0.0
        for count in range(MAX_SINGLE_EXECUTIONS):
            if count >= 3 and total > SINGLE_TOTAL:
                break
            if reading < WARM_SECONDS:
                self._execute(module, inputs, self.results)
            self._fill(self.spare_results, self.wrong_values)
            seconds = self._execute(module, inputs, self.spare_results)
            fastest, total = min(fastest, seconds), total + seconds
            if wrong := self._wrong_result(self.spare_results, self.cases.timing):
                return wrong
            if fastest <= SINGLE_FACTOR * reading + self.overhead:
                return ""
        # Other processes may delay every call, for example by using the GPU in turn. If so, they also delay executions
        # that find their result.
        results = [result.numpy() for result in self.spare_results]
        reading = math.inf
        for _ in range(3):
            self._fill(self.spare_results, results)
            reading = min(reading, self._execute(module, inputs, self.spare_results))
        if fastest <= SINGLE_FACTOR * reading + self.overhead:
            return ""
        return (
            f"it took at least {fastest:.3g} s, but only {reading:.3g} s when the result was already there: it does "
            "not compute in every execution"
        )

    def _execute(
        self, module: tvm.runtime.Module, inputs: Sequence[tvm.runtime.Tensor], results: Sequence[tvm.runtime.Tensor]
    ) -> float:
        main = module["main"]

        def call() -> None:
            main(*inputs, *results)
            self.device.sync()  # a kernel may fail after its launch returns

        return self._seconds(call)

    @staticmethod
    def _seconds(call: Callable[[], object]) -> float:
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    def _fill(self, results: Sequence[tvm.runtime.Tensor], values: Sequence[Array]) -> None:
        for result, value in zip(results, values, strict=False):  # there are no values if results are not checked
            result.copyfrom(value)

    def _restore_inputs(self) -> Failed | None:
        """If the program has overwritten an input, restore the input and return the failure; otherwise, return None.

        Inputs are compared only on this machine's CPU, where this is cheap.
        """
        if not self._guards_inputs:
            return None
        inputs = chain(*(zip(self.names, self.inputs[id(case)], case.inputs, strict=False) for case in self.cases))
        names = []  # of the inputs that the program has overwritten
        for name, tensor, original in (*inputs, *self.packed_inputs):
            if not np.array_equal(tensor.numpy().view(np.uint8), original.view(np.uint8)):
                tensor.copyfrom(original)
                names.append(name)
        return Failed("wrong_answer", f"the program writes to its input {names[0]}") if names else None

    @property
    def _on_cpu(self) -> bool:
        return self.local and bool(self.device == tvm.cpu())

    @property
    def _guards_inputs(self) -> bool:
        return self.cases.check.expected is not None and self._on_cpu

    def _wrong_result(self, results: Sequence[tvm.runtime.Tensor], case: Case) -> str:
        """Return a description of what is wrong with the results for ``case``, or "" if they are right or unknown."""
        expected = case.expected or ()
        for number, (result, right) in enumerate(zip(results, expected, strict=False)):
            if wrong := _wrong(result.numpy(), right, *case.tolerance):
                return f"in result {number}, {wrong}" if len(expected) > 1 else wrong
        return ""


def _wrong(result: Array, expected: Array, rtol: float, atol: float) -> str:
    """Return a description of the largest error in ``result``, or "" if the result is right."""
    off = np.abs(result.astype(np.float64) - expected) - (atol + rtol * np.abs(expected))
    if (off <= 0).all():
        return ""
    off[np.isnan(off)] = np.inf
    off[np.isnan(expected) & np.isnan(result.astype(np.float64)) | (result == expected)] = -np.inf
    worst = np.unravel_index(np.argmax(off), off.shape)
    if off[worst] <= 0:
        return ""
    at = ", ".join(str(int(i)) for i in worst)
    count = int((off > 0).sum())
    return (
        f"{count} of {off.size} elements are off; at [{at}], the result is {result[worst]} instead of {expected[worst]}"
    )


class RemoteRunner:
    """Runs programs for one workload, each on the device that the tracker has lent for it."""

    def __init__(self, setup: SetUpRunner) -> None:
        from tvm import rpc  # imported here because only this kind of worker needs it

        assert setup.fleet is not None
        self.connect = rpc.connect
        self.connect_timeout, self.cc = setup.fleet
        self.workload, self.settings, self.target, error_factor, *_ = setup
        self.cases = make_cases(self.workload, self.settings.check, error_factor=error_factor)

    def run(
        self, on_connected: Callable[[], None], address: Address, code: Code, best: float
    ) -> Ran | Failed | DeviceLost | DeviceUnfit:
        """Run a program on the device at ``address`` in the same way as :meth:`Runner.run`.

        ``on_connected`` is called once the device has received the inputs.
        """
        host, port, key = address
        # The server ends the session by itself after this time.
        session_timeout = self.connect_timeout + self.settings.run_timeout
        try:
            session = self.connect(host, port, key, session_timeout=session_timeout)
            device = session.device(device_name(self.target.kind))
            if not device.exist:
                return DeviceUnfit(f"the device at {host}:{port} has no usable {device_name(self.target.kind)}")
            if self.target.kind == "llvm":
                with contextlib.suppress(AttributeError):  # the server has no thread pool
                    session.get_function("runtime.config_threadpool")(1, self.target.cores)
            runner = Runner(self.workload, self.settings, device, False, self.cases)
            load = self._loader(session, code.objects)
        except Exception as error:
            return DeviceLost(error_text(error))
        if isinstance(load, Failed):
            return load
        on_connected()
        start = time.perf_counter()
        answer = runner.run(LoadableProgram(load, code.packed), best)
        if isinstance(answer, Failed) and answer.failure == "run_error":
            if SESSION_TIMEOUT_ERROR in answer.message:
                return Failed("run_timeout", "the server ended its session", time.perf_counter() - start)
            try:
                session.get_function("tvm.rpc.server.workpath")("")
            except Exception:  # the session no longer answers
                return DeviceLost(answer.message)
        return answer

    def _loader(self, session: tvm.rpc.RPCSession, objects: Objects) -> Load | Failed:
        """Return a function that loads ``objects`` on the device, or Failed if they cannot be linked.

        If the server has a JIT linker, it loads the object files. Otherwise, they are linked into a shared library,
        here or on the device.
        """
        try:
            load = session.get_function(LOADER_FUNCTION)
        except AttributeError:  # a plain TVM server
            return self._upload(session, objects)
        limit = self.settings.memory_limit_mb if self.target.kind == "llvm" else 0
        return partial(load, limit, *map(bytearray, objects))

    def _upload(self, session: tvm.rpc.RPCSession, objects: Objects) -> Load | Failed:
        from tvm.support import cc

        compiler = self.cc or ("" if self.target.is_foreign else cc.get_cc())
        with tempfile.TemporaryDirectory() as folder:
            library = Path(folder, "program.so" if compiler else "program.tar")
            try:
                link(objects, library, compiler)
            except Exception as error:
                return Failed("build_error", f"cannot link with {compiler or 'tar'}: {error_text(error)}")
            content = bytearray(library.read_bytes())

        def load() -> tvm.runtime.Module:
            session.upload(content, library.name)
            return session.load_module(library.name)

        return load


class Workbench:
    """The operations of a worker, and the space or workload with which it has been set up."""

    space: Space
    features: dict[str, ScheduledFeatures]
    runner: Runner
    remote: RemoteRunner
    function: Callable[[dict[str, Any]], Any]

    def __init__(self, channel: Channel, memory_limit_mb: int) -> None:
        self.channel = channel
        self.memory_limit_mb = memory_limit_mb
        self.received_messages = 0

    def reply(self, message: SetUp | Work) -> None:
        if isinstance(message, SetUp):
            self.send(self.set_up(message))
        elif isinstance(message, messages.RunOn):  # the candidate runs on a fleet device, not in this process
            self.send(self.answer(message))
        elif isinstance(message, messages.Call):  # a function may keep its state, such as data that it has loaded
            limit_memory(self.memory_limit_mb)
            self.send(self.answer(message))
        else:
            limit_memory(self.memory_limit_mb)
            comparison = StateComparison()
            answer = self.answer(message)
            self.send(answer, comparison.describe_changes())

    def send(self, answer: Answer, changed_state: str = "") -> None:
        self.channel.send(msgspec.msgpack.encode(Reply(self.received_messages, answer, changed_state)))

    def recv(self) -> Any:
        """Return the next message. Raises EOFError if the other end is closed."""
        message = pickle.loads(self.channel.recv())
        self.received_messages += 1
        return message

    def answer(self, message: Work) -> Done:
        match message:
            case messages.Build(config):
                return self.build(config)
            case messages.Extract(features, configs):
                return self.extract(features, configs)
            case messages.RunProgram(code, best):
                return self.runner.run(_load_local(code), best)
            case messages.Call(config, repeat):
                return self.call(config, repeat)
            case messages.Remeasure(codes, rounds):
                return self.runner.remeasure([_load_local(code) for code in codes], rounds)
            case messages.RunOn(address, code, best):
                return self.remote.run(lambda: self.send(messages.InputsReceived()), address, code, best)
        assert_never(message)

    def set_up(self, message: SetUp) -> messages.Ready | messages.Broken:
        limit_memory(0)  # the limit applies only to candidates
        try:
            match message:
                case messages.SetUpBuilder(data):
                    self.space = pickle.loads(data)
                    self.features = {}
                case messages.SetUpRunner(workload, settings, target, error_factor, None, seed):
                    cases = make_cases(workload, settings.check, seed, error_factor)
                    self.runner = Runner(workload, settings, device_of(target.kind), cases=cases)
                case messages.SetUpFunction(data):
                    self.function, self.unit = pickle.loads(data)
                case messages.SetUpRunner():
                    self.remote = RemoteRunner(message)
        except Exception as error:  # for example, because a plug-in's module cannot be imported
            return messages.Broken(shorten_text(f"{type(error).__name__}: {text_of(error)}"))
        return messages.Ready()

    def build(self, config: Config) -> messages.Built | messages.Skipped | Failed:
        """Schedule and compile a program. In between, send Scheduled and wait for Continue.

        The answer's seconds are CPU time, so that candidates are not charged for other work on this machine.
        """
        start = cpu_seconds()
        try:
            module = self.space.schedule(config).mod
        except InvalidConfig as error:
            return Failed("invalid", shorten_text(text_of(error)), cpu_seconds() - start)
        except (Exception, SystemExit) as error:
            # Whatever exception a plug-in raises while scheduling, only this trial is to fail.
            text = add_memory_limit(describe_with_line(error, "schedule: "), self.memory_limit_mb)
            return Failed("build_error", text, cpu_seconds() - start)
        scheduling = cpu_seconds() - start
        self.send(messages.Scheduled(program_hash(module)))
        if not self.recv().compile:
            return messages.Skipped()
        start = cpu_seconds()
        try:
            code = to_code(module, self.space.target)
        except Exception as error:  # the compiler may raise any exception, too
            text = add_memory_limit(error_text(error), self.memory_limit_mb)
            return Failed("build_error", text, scheduling + cpu_seconds() - start)
        return messages.Built(code, scheduling + cpu_seconds() - start)

    def call(self, config: Config, repeat: int) -> Ran | Failed:
        """Call the function, and return the costs that it returns."""
        start = time.perf_counter()
        try:
            costs = [cost for _ in range(repeat) for cost in costs_in(call_with(self.function, config), self.unit)]
        except InvalidConfig as error:
            return Failed("invalid", shorten_text(text_of(error)), time.perf_counter() - start)
        except SearchlabError as error:
            return Failed("run_error", shorten_text(text_of(error)), time.perf_counter() - start)
        except (Exception, SystemExit) as error:  # a user's function may raise anything
            text = add_memory_limit(describe_with_line(error), self.memory_limit_mb)
            failure: Failure = "wrong_answer" if isinstance(error, AssertionError) else "run_error"
            return Failed(failure, text, time.perf_counter() - start)
        return Ran(tuple(costs), False, time.perf_counter() - start)

    def extract(self, name: str, configs: list[Config]) -> messages.Extracted:
        start = cpu_seconds()
        if name not in self.features:
            features = make_features(name, self.space)
            assert isinstance(features, ScheduledFeatures)
            self.features[name] = features
        rows = [row.astype(np.float64).tobytes() for row in self.features[name].extract(configs)]
        return messages.Extracted(rows, cpu_seconds() - start)


def describe_with_line(error: BaseException, prefix: str = "") -> str:
    """Return an error's type, its text, and the ``file:line`` of the user's code that raised it, if any did."""
    where = line_of(error, object)
    return shorten_text(f"{prefix}{type(error).__name__}: {text_of(error)}" + (f" ({where})" if where else ""))


def costs_in(result: Any, unit: str) -> list[float]:
    """Return the costs of what a function has returned: a number, several repeats, or either as ``{"seconds": ...}``.

    Raises SearchlabError if it has returned anything else.
    """
    value = plain(result)
    name = "seconds" if unit == RUNS else "value"
    if isinstance(value, Mapping):
        value = value.get(name)
    costs = []
    for number in value if isinstance(value, list) and value else [value]:
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise SearchlabError(
                f"the function returned {result!r:.200}; it must return {name}: a number, a list of numbers, or a "
                f"mapping with the key {name!r}"
            )
        costs.append(cost_of_value(number, unit))
        if not 1e-15 < costs[-1] < 1e15:  # the limits of logs
            rule = "values must be finite"
            if unit == RUNS:
                rule = "costs must be positive and finite; for other numbers, use searchlab.minimize or maximize"
            raise SearchlabError(f"the function returned {result!r:.200}; {rule}")
    return costs


def cpu_seconds() -> float:
    """Return the CPU time used by this process and its children, such as nvcc."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def work(channel: Channel, memory_limit_mb: int) -> None:
    """Answer messages from ``channel`` until its other end is closed."""
    # A plug-in may print any amount of text, and printing to a full pipe would raise an exception.
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - stays open until the process ends
    workbench = Workbench(channel, memory_limit_mb)
    workbench.send(messages.Started())
    while True:
        try:
            message = workbench.recv()
        except EOFError:
            return
        workbench.reply(message)
