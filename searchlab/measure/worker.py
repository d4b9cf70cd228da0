"""What a worker process does: builds programs, or runs them. A candidate can crash nothing but this process."""

from __future__ import annotations

import os
import pickle
import sys
import time
from functools import partial
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

if __name__ == "__main__":  # tvm_ffi imports PyTorch wherever that is installed: two thirds of a worker's start
    sys.modules["torch"] = None  # type: ignore[assignment]

from ..errors import InvalidConfig
from ..space import Config, Space
from .code import compile_program, device_of, load_objects, program_hash, reason, to_objects
from .memory import limit_memory, with_limit
from .process import die_with
from .runner import Runner, case_of

if TYPE_CHECKING:
    from .rpc.session import RemoteRunner

if __name__ == "__main__":  # a plug-in may want it all the same
    del sys.modules["torch"]


def build(connection: Connection, space: Space, config: Config, memory_limit_mb: int) -> tuple[Any, ...]:
    """``("built", object files, seconds)`` or ``("failed", kind, text, seconds)``.

    In between it sends ``("scheduled", program hash)`` and goes on only if the answer is True.
    """
    start = time.perf_counter()
    try:
        module = space.schedule(config).mod
    except InvalidConfig as error:
        return "failed", "invalid", str(error), time.perf_counter() - start
    except Exception as error:
        # Anything may come out of a plug-in's schedule; it is this trial's failure and nobody else's.
        text = with_limit(f"schedule: {type(error).__name__}: {error}", memory_limit_mb)
        return "failed", "build_error", text, time.perf_counter() - start
    scheduling = time.perf_counter() - start
    connection.send(("scheduled", program_hash(module)))
    if not connection.recv():
        return ("skipped",)
    start = time.perf_counter()
    try:
        objects = to_objects(compile_program(module, space.target))
    except Exception as error:  # likewise anything out of the compiler
        text = with_limit(reason(error), memory_limit_mb)
        return "failed", "build_error", text, scheduling + time.perf_counter() - start
    return "built", objects, scheduling + time.perf_counter() - start


def main() -> None:
    connection = Connection(int(sys.argv[1]))
    die_with(int(sys.argv[2]))
    # A plug-in may print what it likes; written to a pipe that is full, that would be an exception.
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - open to the end
    connection.send(("ready",))
    memory_limit_mb = int(sys.argv[3])
    space: Space
    runner: Runner
    remote: RemoteRunner
    while True:
        try:
            kind, *rest = connection.recv()
        except EOFError:
            return
        if kind in ("space", "workload", "remote"):
            limit_memory(0)  # what is set up now is no candidate
            try:
                if kind == "space":
                    space = pickle.loads(rest[0])
                elif kind == "remote":
                    from .rpc.session import RemoteRunner  # with all of TVM's RPC, which the others do without

                    remote = RemoteRunner(*rest)
                else:
                    workload, settings, on = rest
                    runner = Runner(workload, settings, device_of(on))
            except Exception as error:  # the code of a plug-in may not even import here
                connection.send(("broken", f"{type(error).__name__}: {error}"))
            else:
                connection.send(("ready", kind))
            continue
        limit_memory(memory_limit_mb)
        if kind == "build":
            connection.send(build(connection, space, rest[0], memory_limit_mb))
        elif kind == "run":
            objects, best = rest
            connection.send(runner.run(partial(load_objects, objects), best))
        elif kind == "check":
            objects, seed = rest
            limit_memory(0)  # neither are its inputs and reference
            case = case_of(workload, True, seed)
            limit_memory(memory_limit_mb)
            connection.send(("drawn",))  # and now the time of the program begins
            connection.send(runner.check(partial(load_objects, objects), case))
        elif kind == "run on":
            address, objects, best = rest
            connection.send(remote.run(connection, address, objects, best))
        elif kind == "remeasure":
            programs, rounds = rest
            connection.send(runner.remeasure([partial(load_objects, objects) for objects in programs], rounds))


if __name__ == "__main__":
    main()
