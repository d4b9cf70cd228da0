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
    """The results of ``function(argument)``, as plain JSON data: here, and in a new process with other hashes and one
    thread.

    Raises Breach if the new process fails.
    """
    import cloudpickle

    code = (
        "import cloudpickle, json, sys\n"
        "function, argument = cloudpickle.load(sys.stdin.buffer)\n"
        "print('\\n' + json.dumps(function(argument)))\n"
    )
    hashes = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env=os.environ | {
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "PYTHONHASHSEED": hashes, "OMP_NUM_THREADS": "1", "TVM_NUM_THREADS": "1",
        },
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdin
        process.stdin.write(cloudpickle.dumps((function, argument)))
        process.stdin.close()
        process.stdin = None
        here = json.loads(json.dumps(function(argument)))
        text, said = process.communicate()
    finally:
        process.kill()
        process.wait()
    if process.returncode:
        lines = said.decode(errors="replace").strip().splitlines() or ["without a message"]
        raise Breach(f"in a new process it ended with exit code {process.returncode}: {lines[-1]}")
    return here, json.loads(text.decode().strip().rpartition("\n")[2])


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
