"""What a worker process does: builds programs, or runs them. A candidate can crash nothing but this process."""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import sys
import time
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import tvm
from tvm_ffi import structural_hash
from tvm_ffi_orcjit import default_session

from ..errors import InvalidConfig
from ..space import Config, Space
from ..workload import Workload
from . import LocalSettings


def _die_with(parent: int) -> None:
    """Have Linux end this process when its parent ends, however that happens."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:  # it ended before we asked
        sys.exit()


def object_code(executable: tvm.runtime.Executable) -> bytes:
    """The program's host code as an object file, written to memory so that no kill leaves a file behind."""
    if len(executable.mod.imports):
        raise InvalidConfig("only programs for the CPU can be measured so far; this one has device code")
    with open(os.memfd_create("object"), "r+b") as memory:
        executable.mod.write_to_file(f"/proc/self/fd/{memory.fileno()}", "o")
        memory.seek(0)
        return memory.read()


def build(connection: Connection, space: Space, config: Config) -> tuple[Any, ...]:
    """``("built", object code, seconds)`` or ``("failed", kind, text, seconds)``.

    In between it sends ``("scheduled", program hash)`` and goes on only if the answer is True.
    """
    start = time.perf_counter()
    try:
        module = space.schedule(config).mod
    except InvalidConfig as error:
        return "failed", "invalid", str(error), time.perf_counter() - start
    except Exception as error:
        # Anything may come out of a plug-in's schedule; it is this trial's failure and nobody else's.
        return "failed", "build_error", f"schedule: {type(error).__name__}: {error}", time.perf_counter() - start
    scheduling = time.perf_counter() - start
    connection.send(("scheduled", f"{structural_hash(module) & (1 << 64) - 1:016x}"))
    if not connection.recv():
        return ("skipped",)
    start = time.perf_counter()
    try:
        code = object_code(tvm.compile(module, target=space.target.tvm))
    except Exception as error:  # likewise anything out of the compiler
        return "failed", "build_error", f"{type(error).__name__}: {error}", scheduling + time.perf_counter() - start
    return "built", code, scheduling + time.perf_counter() - start


class Runner:
    """Runs programs of one workload on this machine."""

    def __init__(self, workload: Workload, settings: LocalSettings) -> None:
        self.settings = settings
        self.tolerance = workload.tolerance()
        inputs = workload.inputs()
        self.expected = workload.reference(inputs) if settings.check else None
        *_, result = workload.shapes.values()
        self.inputs = [tvm.runtime.tensor(value) for value in inputs.values()]
        # What a program leaves unwritten must show: NaN, or a number no sum reaches.
        unwritten = np.full(result, np.nan if workload.out_dtype != "int32" else np.iinfo(np.int32).min)
        self.unwritten = unwritten.astype(workload.out_dtype)
        self.result = tvm.runtime.tensor(self.unwritten)

    def run(self, code: bytes) -> tuple[Any, ...]:
        """``("ran", seconds of each repeat, seconds in all)`` or ``("failed", kind, text, seconds in all)``."""
        start = time.perf_counter()
        try:
            module = default_session().load_module(code)
            if self.expected is not None:
                self.result.copyfrom(self.unwritten)
                module["main"](*self.inputs, self.result)
                if wrong := self._wrong(self.result.numpy()):
                    return "failed", "wrong_answer", wrong, time.perf_counter() - start
            evaluate = module.time_evaluator(
                "main", tvm.cpu(), self.settings.number, self.settings.repeat, self.settings.min_repeat_ms
            )
            seconds = tuple(evaluate(*self.inputs, self.result).results)
        except Exception as error:  # anything out of a candidate is its own failure
            return "failed", "run_error", f"{type(error).__name__}: {error}", time.perf_counter() - start
        if min(seconds) <= 0:
            text = f"it ran in {min(seconds)} s by this clock; raise number or min_repeat_ms"
            return "failed", "run_error", text, time.perf_counter() - start
        return "ran", seconds, time.perf_counter() - start

    def _wrong(self, result: np.ndarray[Any, Any]) -> str:
        """Empty if ``result`` is right, else where it is most wrong."""
        assert self.expected is not None
        rtol, atol = self.tolerance
        off = np.abs(result.astype(np.float64) - self.expected) - (atol + rtol * np.abs(self.expected))
        off[np.isnan(off)] = np.inf
        worst = np.unravel_index(np.argmax(off), off.shape)
        if off[worst] <= 0:
            return ""
        at = ", ".join(str(int(i)) for i in worst)
        count = int((off > 0).sum())
        return f"{count} of {off.size} elements are off; at [{at}] it is {result[worst]}, not {self.expected[worst]}"


def main() -> None:
    connection = Connection(int(sys.argv[1]))
    _die_with(int(sys.argv[2]))
    connection.send(("ready",))
    space: Space
    runner: Runner
    while True:
        try:
            kind, *rest = connection.recv()
        except EOFError:
            return
        if kind in ("space", "workload"):
            try:
                if kind == "space":
                    space = pickle.loads(rest[0])
                else:
                    runner = Runner(*rest)
            except Exception as error:  # the code of a plug-in may not even import here
                connection.send(("broken", f"{type(error).__name__}: {error}"))
            else:
                connection.send(("ready",))
        elif kind == "build":
            connection.send(build(connection, space, rest[0]))
        elif kind == "run":
            connection.send(runner.run(rest[0]))


if __name__ == "__main__":
    main()
