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
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, assert_never

import msgspec
import numpy as np
import tvm

from ..arrays import Array
from ..costmodel.features import ScheduledFeatures, make_features
from ..errors import InvalidConfig, cut, text_of
from ..machine.host import start_tvm_threads
from ..space import Config, Space
from ..workload import Packed, Workload, program_hash
from . import messages
from .code import Code, Objects, device_name, device_of, load_objects, packed_inputs, reason, to_code
from .contract import RunSettings
from .fleet import LOADER, Address
from .isolation import Watch, limit_memory, with_limit
from .messages import Answer, Done, Failed, Lost, Ran, Remeasured, Reply, SetUp, SetUpRunner, Unfit, Work
from .process import Channel

COLD_SECONDS = 0.01  # a shorter first run is not used as a reading, since caches are cold and memory is not yet mapped
EXPIRED = "RPCSessionTimeoutError"  # the error that a server reports when it ends a session that took too long

Load = Callable[[], "tvm.runtime.Module"]


class Program(NamedTuple):
    """A program to run, and the arguments that it takes packed."""

    load: Load
    packed: Packed


def _local(code: Code) -> Program:
    return Program(partial(load_objects, code.objects), code.packed)


class Case(NamedTuple):
    """The inputs for a workload's programs, and the expected result."""

    inputs: list[Array]
    expected: tuple[Array, ...] | None  # None if results are not checked


def case_of(workload: Workload, check: bool, seed: int = 0) -> Case:
    inputs = workload.inputs(seed)
    expected = workload.reference(inputs) if check else None
    return Case(list(inputs.values()), expected if expected is None or isinstance(expected, tuple) else (expected,))


class Runner:
    """Runs programs for one workload on one device.

    Args:
        settings: How to check and time programs.
        local: Whether the device is part of this machine, so that this process can time its runs.
        case: The inputs and the expected result, which are computed if this is None.
        error_factor: The factor by which the space scales the workload's tolerance.
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
        results = workload.arguments[-workload.results :]
        self.names = [argument.name for argument in workload.arguments]
        self.originals = inputs
        self.inputs = [tvm.runtime.tensor(value, device) for value in inputs]
        # The current program's packed inputs, each with its name and a copy of its original content:
        self.packed: list[tuple[str, tvm.runtime.Tensor, Array]] = []
        # Results are first filled with NaN or an impossible number, to reveal elements that a program does not write.
        self.unwritten = [one.unwritten() for one in results]
        self.results = [tvm.runtime.tensor(value, device) for value in self.unwritten]
        start_tvm_threads()  # so that the time for starting them is not charged to the first program
        # Kept until the next modules are loaded: unloading a failed kernel can end the process before it has answered.
        self.loaded: list[tvm.runtime.Module] = []

    def run(self, program: Program, best: float = math.inf) -> Ran | Failed:
        """Pack the arguments that a program takes packed, check the program's result, and time the program.

        If the first reading is more than ``prune_factor`` times ``best`` (in seconds), the program is pruned: it is not
        timed again. The first reading is the time of the checked run if that is long enough, or else the first repeat.
        """
        start = time.perf_counter()
        slow = self.settings.prune_factor * best if self.settings.prune_factor else math.inf
        try:
            (module,) = self.loaded = [program.load()]
            inputs = self._prepared(module, program.packed, self.inputs)
            cold = 0.0
            if self.expected is not None:
                cold, wrong = self._check(module, inputs, self.expected)
                if wrong:
                    return Failed("wrong_answer", wrong, time.perf_counter() - start)
            counts = cold >= max(COLD_SECONDS, self.settings.min_repeat_ms * 1e-3)
            if counts and cold > slow:
                return Ran((cold,), True, time.perf_counter() - start)
            pruned = False
            if math.isinf(slow) or counts or self.settings.repeat == 1:
                seconds = self.time(module, inputs, self.settings.repeat)
            else:
                seconds = self.time(module, inputs, 1)
                pruned = seconds[0] > slow
                if not pruned:
                    seconds += self.time(module, inputs, self.settings.repeat - 1)
        except Exception as error:  # a candidate may raise anything
            text = with_limit(reason(error), self.settings.memory_limit_mb)
            return Failed("run_error", text, time.perf_counter() - start)
        if wrong := self._overwritten():
            return Failed("wrong_answer", wrong, time.perf_counter() - start)
        if min(seconds) <= 0:
            text = f"the clock measured {min(seconds)} s; increase number or min_repeat_ms"
            return Failed("run_error", text, time.perf_counter() - start)
        return Ran(seconds, pruned, time.perf_counter() - start)

    def remeasure(self, programs: Sequence[Program], rounds: int) -> Remeasured | Failed:
        """Time each program once per round. The programs take turns, and each round begins with the next program."""
        try:
            modules = self.loaded = [program.load() for program in programs]
            inputs = [
                self._prepared(module, program.packed, self.inputs)
                for module, program in zip(modules, programs, strict=True)
            ]
            readings: list[list[float]] = [[] for _ in modules]
            for first in range(rounds):
                for i in range(len(modules)):
                    which = (first + i) % len(modules)
                    readings[which] += self.time(modules[which], inputs[which], 1)
        except Exception as error:
            return Failed("run_error", reason(error))
        return Remeasured([tuple(seconds) for seconds in readings])

    def time(self, module: tvm.runtime.Module, inputs: Sequence[tvm.runtime.Tensor], repeat: int) -> tuple[float, ...]:
        """Return ``repeat`` readings in seconds, each averaged over the number of executions that the settings require.

        TVM first runs the program once without timing it.
        """
        evaluate = module.time_evaluator("main", self.device, self.settings.number, repeat, self.settings.min_repeat_ms)
        return tuple(evaluate(*inputs, *self.results).results)

    def _prepared(
        self, module: tvm.runtime.Module, packed: Packed, inputs: Sequence[tvm.runtime.Tensor]
    ) -> list[tvm.runtime.Tensor]:
        """Return a program's input arguments. The program itself packs those ``inputs`` that it takes packed."""
        named = packed_inputs(module, packed, dict(zip(self.names, inputs, strict=False)))
        if self._guards_inputs:
            arrays = [(f"{name}, packed", array) for name in named.keys() & packed for array in named[name]]
            self.packed = [(name, array, array.numpy()) for name, array in arrays]
        return [array for arrays in named.values() for array in arrays]

    def _check(
        self, module: tvm.runtime.Module, inputs: Sequence[tvm.runtime.Tensor], expected: Sequence[Array]
    ) -> tuple[float, str]:
        """Run a program. Return its time in seconds (0 if unknown) and a description of its wrong result, or ""."""
        for result, unwritten in zip(self.results, self.unwritten, strict=True):
            result.copyfrom(unwritten)
        main = module["main"]
        start = time.perf_counter()
        main(*inputs, *self.results)
        self.device.sync()  # a kernel may fail after its launch returns
        seconds = time.perf_counter() - start if self.local else 0.0
        wrong = ""
        for number, (result, right) in enumerate(zip(self.results, expected, strict=True)):
            if not wrong and (wrong := self._wrong(result.numpy(), right)) and len(expected) > 1:
                wrong = f"in result {number}, {wrong}"
        return seconds, wrong

    def _overwritten(self) -> str:
        """If the program has overwritten an input, restore the input and return a message; otherwise, return "".

        Inputs are compared only on this machine's CPU, where this is cheap.
        """
        if not self._guards_inputs:
            return ""
        for name, held, original in (*zip(self.names, self.inputs, self.originals, strict=False), *self.packed):
            if not np.array_equal(held.numpy().view(np.uint8), original.view(np.uint8)):
                held.copyfrom(original)
                return f"the program writes to its input {name}"
        return ""

    @property
    def _guards_inputs(self) -> bool:
        return self.expected is not None and self.local and bool(self.device == tvm.cpu())

    def _wrong(self, result: Array, expected: Array) -> str:
        """Return a description of the largest error in ``result``, or "" if the result is right."""
        rtol, atol = self.tolerance
        off = np.abs(result.astype(np.float64) - expected) - (atol + rtol * np.abs(expected))
        off[np.isnan(off)] = np.inf
        off[np.isnan(expected) & np.isnan(result.astype(np.float64)) | (result == expected)] = -np.inf
        worst = np.unravel_index(np.argmax(off), off.shape)
        if off[worst] <= 0:
            return ""
        at = ", ".join(str(int(i)) for i in worst)
        count = int((off > 0).sum())
        return (
            f"{count} of {off.size} elements are off; at [{at}], the result is {result[worst]} instead of "
            f"{expected[worst]}"
        )


class RemoteRunner:
    """Runs programs for one workload, each on the device that the tracker has lent for it."""

    def __init__(self, setup: SetUpRunner) -> None:
        from tvm import rpc  # imported here because only this kind of worker needs it

        assert setup.fleet is not None
        self.connect = rpc.connect
        self.connect_timeout, self.cc = setup.fleet
        self.workload, self.settings, self.target, self.error_factor, *_ = setup
        self.case = case_of(self.workload, self.settings.check)

    def run(
        self, connected: Callable[[], None], address: Address, code: Code, best: float
    ) -> Ran | Failed | Lost | Unfit:
        """Run a program on the device at ``address`` in the same way as :meth:`Runner.run`.

        ``connected`` is called once the device has received the inputs.
        """
        host, port, key = address
        # The server ends the session by itself after this time.
        session_timeout = self.connect_timeout + self.settings.run_timeout
        try:
            session = self.connect(host, port, key, session_timeout=session_timeout)
            device = session.device(device_name(self.target.kind))
            if not device.exist:
                return Unfit(f"the device at {host}:{port} has no usable {device_name(self.target.kind)}")
            if self.target.kind == "llvm":
                with contextlib.suppress(AttributeError):  # the server has no thread pool
                    session.get_function("runtime.config_threadpool")(1, self.target.cores)
            runner = Runner(self.workload, self.settings, device, False, self.case, self.error_factor)
            load = self._loader(session, code.objects)
        except Exception as error:
            return Lost(reason(error))
        if isinstance(load, Failed):
            return load
        connected()
        start = time.perf_counter()
        answer = runner.run(Program(load, code.packed), best)
        if isinstance(answer, Failed) and answer.failure == "run_error":
            if EXPIRED in answer.message:
                return Failed("run_timeout", "the server ended its session", time.perf_counter() - start)
            try:
                session.get_function("tvm.rpc.server.workpath")("")
            except Exception:  # the session no longer answers
                return Lost(answer.message)
        return answer

    def _loader(self, session: tvm.rpc.RPCSession, objects: Objects) -> Load | Failed:
        """Return a function that loads ``objects`` on the device, or Failed if they cannot be linked.

        If the server has a JIT linker, it loads the object files. Otherwise, they are linked into a shared library,
        here or on the device.
        """
        try:
            load = session.get_function(LOADER)
        except AttributeError:  # a plain TVM server
            return self._upload(session, objects)
        limit = self.settings.memory_limit_mb if self.target.kind == "llvm" else 0
        return partial(load, limit, *map(bytearray, objects))

    def _upload(self, session: tvm.rpc.RPCSession, objects: Objects) -> Load | Failed:
        from tvm.support import cc, tar

        compiler = self.cc or ("" if self.target.is_foreign else cc.get_cc())
        with tempfile.TemporaryDirectory() as folder:
            files = [Path(folder, f"{number}.o") for number in range(len(objects))]
            for file, data in zip(files, objects, strict=True):
                file.write_bytes(data)
            library = Path(folder, "program.so" if compiler else "program.tar")
            try:
                if compiler:
                    cc.create_shared(str(library), list(map(str, files)), cc=compiler)
                else:
                    tar.tar(str(library), list(map(str, files)))
            except Exception as error:
                return Failed("build_error", f"cannot link with {compiler or 'tar'}: {reason(error)}")
            linked = bytearray(library.read_bytes())

        def load() -> tvm.runtime.Module:
            session.upload(linked, library.name)
            return session.load_module(library.name)

        return load


class Workbench:
    """The operations of a worker, and the space or workload with which it has been set up."""

    space: Space
    features: dict[str, ScheduledFeatures]
    runner: Runner
    remote: RemoteRunner

    def __init__(self, channel: Channel, memory_limit_mb: int) -> None:
        self.channel = channel
        self.memory_limit_mb = memory_limit_mb
        self.received = 0

    def reply(self, message: SetUp | Work) -> None:
        if isinstance(message, SetUp):
            self.send(self.set_up(message))
        elif isinstance(message, messages.RunOn):  # the candidate runs on a fleet device, not in this process
            self.send(self.answer(message))
        else:
            limit_memory(self.memory_limit_mb)
            watch = Watch()
            answer = self.answer(message)
            self.send(answer, watch.changed())

    def send(self, answer: Answer, changed: str = "") -> None:
        self.channel.send(msgspec.msgpack.encode(Reply(self.received, answer, changed)))

    def recv(self) -> Any:
        """Return the next message. Raises EOFError if the other end is closed."""
        message = pickle.loads(self.channel.recv())
        self.received += 1
        return message

    def answer(self, message: Work) -> Done:
        match message:
            case messages.Build(config):
                return self.build(config)
            case messages.Extract(features, configs):
                return self.extract(features, configs)
            case messages.RunProgram(code, best):
                return self.runner.run(_local(code), best)
            case messages.Remeasure(programs, rounds):
                return self.runner.remeasure([_local(code) for code in programs], rounds)
            case messages.RunOn(address, code, best):
                return self.remote.run(lambda: self.send(messages.Begun()), address, code, best)
        assert_never(message)

    def set_up(self, message: SetUp) -> messages.Ready | messages.Broken:
        limit_memory(0)  # the limit applies only to candidates
        try:
            match message:
                case messages.SetUpBuilder(data):
                    self.space = pickle.loads(data)
                    self.features = {}
                case messages.SetUpRunner(workload, settings, target, error_factor, None, seed):
                    case = case_of(workload, settings.check, seed)
                    self.runner = Runner(
                        workload, settings, device_of(target.kind), case=case, error_factor=error_factor
                    )
                case messages.SetUpRunner():
                    self.remote = RemoteRunner(message)
        except Exception as error:  # for example, because a plug-in's module cannot be imported
            return messages.Broken(cut(f"{type(error).__name__}: {text_of(error)}"))
        return messages.Ready()

    def build(self, config: Config) -> messages.Built | messages.Skipped | Failed:
        """Schedule and compile a program. In between, send Scheduled and wait for Continue.

        The answer's seconds are CPU time, so that candidates are not charged for other work on this machine.
        """
        start = cpu_seconds()
        try:
            module = self.space.schedule(config).mod
        except InvalidConfig as error:
            return Failed("invalid", cut(text_of(error)), cpu_seconds() - start)
        except Exception as error:
            # Whatever exception a plug-in raises while scheduling, only this trial is to fail.
            text = with_limit(cut(f"schedule: {type(error).__name__}: {text_of(error)}"), self.memory_limit_mb)
            return Failed("build_error", text, cpu_seconds() - start)
        scheduling = cpu_seconds() - start
        self.send(messages.Scheduled(program_hash(module)))
        if not self.recv().compile:
            return messages.Skipped()
        start = cpu_seconds()
        try:
            code = to_code(module, self.space.target)
        except Exception as error:  # the compiler may raise any exception, too
            text = with_limit(reason(error), self.memory_limit_mb)
            return Failed("build_error", text, scheduling + cpu_seconds() - start)
        return messages.Built(code, scheduling + cpu_seconds() - start)

    def extract(self, name: str, configs: list[Config]) -> messages.Extracted:
        start = cpu_seconds()
        if name not in self.features:
            features = make_features(name, self.space)
            assert isinstance(features, ScheduledFeatures)
            self.features[name] = features
        rows = [row.astype(np.float64).tobytes() for row in self.features[name].extract(configs)]
        return messages.Extracted(rows, cpu_seconds() - start)


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
