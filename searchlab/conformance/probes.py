"""Ways to look at a plug-in that the rules of every contract share: its constructor, global state, other processes."""

from __future__ import annotations

import inspect
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from .check import Breach


def check_constructor(cls: type[Any], fixed: int, *, seeded: bool) -> None:
    """Raise Breach unless ``cls`` takes ``fixed`` things by position, and by name options that have defaults.

    ``seed`` (which it must take if ``seeded``) and ``cost_model`` are always given and need none.
    """
    parameters = list(inspect.signature(cls).parameters.values())
    by_name = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    for parameter in parameters[:fixed]:
        if parameter.kind not in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD):
            raise Breach(f"its constructor takes {parameter.name!r} as {parameter}, not by position")
    if len(parameters) < fixed:
        raise Breach(f"its constructor is {inspect.signature(cls)}")
    for parameter in parameters[fixed:]:
        if parameter.kind not in by_name:
            raise Breach(f"its constructor takes {parameter}: a misspelled option would be accepted silently")
        if parameter.default is inspect.Parameter.empty and parameter.name not in ("seed", "cost_model"):
            raise Breach(f"its option {parameter.name!r} has no default")
    if seeded and "seed" not in [parameter.name for parameter in parameters]:
        raise Breach("its constructor takes no 'seed'")


@contextmanager
def global_streams(seed: int) -> Iterator[None]:
    """Start the global random streams of Python and numpy from ``seed``; restore them at the end."""
    before = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed)
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])


@contextmanager
def global_streams_untouched() -> Iterator[None]:
    """Raise Breach if the body draws from a global random stream, or sets its seed."""
    before = random.getstate(), repr(np.random.get_state())
    yield
    for name, old, new in (
        ("random", before[0], random.getstate()),
        ("numpy.random", before[1], repr(np.random.get_state())),
    ):
        if old != new:
            raise Breach(f"it drew from the global stream of {name}, or set its seed")


def in_two_processes(function: Callable[[Any], Any], argument: Any) -> tuple[Any, Any]:
    """The results of ``function(argument)``, as plain JSON data, in two processes with other hashes and thread counts.

    Raises Breach if one of them fails.
    """
    import cloudpickle

    code = (
        "import cloudpickle, json, sys\n"
        "function, argument = cloudpickle.load(sys.stdin.buffer)\n"
        "print('\\n' + json.dumps(function(argument)))\n"
    )
    data = cloudpickle.dumps((function, argument))
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            env=os.environ | {
                "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
                "PYTHONHASHSEED": number, "OMP_NUM_THREADS": number, "TVM_NUM_THREADS": number,
            },
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for number in ("1", "2")
    ]  # fmt: skip
    try:
        for process in processes:
            assert process.stdin
            process.stdin.write(data)
            process.stdin.close()
            process.stdin = None
        answers = [process.communicate() for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    for process, (_, said) in zip(processes, answers, strict=True):
        if process.returncode:
            lines = said.decode(errors="replace").strip().splitlines() or ["without a message"]
            raise Breach(f"in a new process it ended with exit code {process.returncode}: {lines[-1]}")
    first, second = (json.loads(text.decode().strip().rpartition("\n")[2]) for text, _ in answers)
    return first, second


@contextmanager
def other_clock(cls: type[Any]) -> Iterator[None]:
    """Let time pass a thousand times as fast for callers of the functions of :mod:`time`.

    This holds too for the modules of the plug-in's package that have imported them by name.
    """

    def faster(clock: Callable[[], float], offset: float) -> Callable[[], float]:
        start = clock()
        return lambda: start + offset + (clock() - start) * 1000

    quick: dict[int, Callable[[], float]] = {}
    for name in ("time", "monotonic", "perf_counter", "process_time"):
        for clock, offset in ((getattr(time, name), 1e6), (getattr(time, f"{name}_ns"), 10**15)):
            quick[id(clock)] = faster(clock, offset)
    home = cls.__module__.partition(".")[0]
    modules = [time, *(module for name, module in list(sys.modules.items()) if name.partition(".")[0] == home)]
    clocks = [(module, key, value) for module in modules for key, value in vars(module).items() if id(value) in quick]
    for module, key, value in clocks:
        setattr(module, key, quick[id(value)])
    try:
        yield
    finally:
        for module, key, value in clocks:
            setattr(module, key, value)
