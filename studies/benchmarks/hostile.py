"""Measures candidates that misbehave in every way we could think of; each may only spoil its own trial.

    python studies/benchmarks/hostile.py [--phase building running] [--mode NAME ...]

A candidate misbehaves while it is *built*, in its space's schedule, or while it *runs*, in a function that its program
calls. Each one is measured between correct candidates, with one build worker, followed by two more candidates. Each row
of the table shows an outcome, which is bad if

- the batch took longer than ``DEADLINE`` seconds, or raised an error;
- the misbehaving candidate failed with an unknown kind of failure, or with an unbounded message;
- another candidate failed;
- a process, or a file in the temporary folder, was left behind.

The exit status is 1 if there is a bad row.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from rows import Row, write_rows

from searchlab.errors import MAX_TEXT_LENGTH
from searchlab.measure.local import LocalMeasurer, LocalSettings
from searchlab.records import FAILURES
from searchlab.space import Config, Knob, ProductSpace
from searchlab.target import Target, resolve_target
from searchlab.workload import Workload, parse_workload

if TYPE_CHECKING:
    import tvm
    from tvm.s_tir import Schedule

DEADLINE = 90.0
"""The time limit for a batch on a busy machine, in seconds. A stopped candidate may take 30 s longer, twice."""

MARK = "SEARCHLAB_HOSTILE"
"""The environment variable that marks the processes of this script."""

PHASES = ("building", "running")

_IMPORTS = """
import builtins, ctypes, gc, os, random, resource, signal, socket, struct, sys, threading, time, warnings
import numpy as np
def connection():
    for file in os.listdir("/proc/self/fd"):
        try:
            if os.readlink("/proc/self/fd/" + file).startswith("socket:"):
                return int(file)
        except OSError:
            pass
def daemon(act):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            act()
        os._exit(0)
def hang():
    time.sleep(600)
"""

MODES = {
    # how it ends
    "raises an error": "raise ValueError('no')",
    "raises a long text": "raise ValueError('m' * (50 << 20))",
    "raises a long type": "raise type('E' * (1 << 20), (Exception,), {})('x')",
    "raises without text": "raise type('E', (Exception,), {'__str__': lambda self: 1 / 0})()",
    "raises BaseException": "raise type('Own', (BaseException,), {})('own')",
    "raises SystemExit": "raise SystemExit(0)",
    "raises KeyboardInterrupt": "raise KeyboardInterrupt",
    "raises a lone surrogate": "raise ValueError('\\udc80')",
    "recurses without end": "def f(): f()\nf()",
    "ends the process": "os._exit(0)",
    "ends with a code": "os._exit(3)",
    "aborts": "os.abort()",
    "segmentation fault": "ctypes.string_at(0)",
    "kills itself": "os.kill(os.getpid(), signal.SIGKILL)",
    "kills its parent": "try: os.kill(os.getppid(), signal.SIGKILL)\nexcept OSError: pass",
    "kills its group": "os.killpg(0, signal.SIGKILL)",
    "joins its parent's group": "try: os.setpgid(0, os.getpgid(os.getppid()))\nexcept OSError: pass",
    # how it does not end
    "loops": "while True: pass",
    "sleeps": "hang()",
    "stops itself": "os.kill(os.getpid(), signal.SIGSTOP)",
    "ignores signals": "[signal.signal(n, signal.SIG_IGN) for n in (signal.SIGTERM, signal.SIGINT)]\nhang()",
    "closes all and loops": "os.closerange(0, 4096)\nwhile True: pass",
    # what it takes
    "eats memory": "held = []\nwhile True: held.append(b'x' * (1 << 20))",
    "forks processes": "for _ in range(30):\n    if os.fork() == 0: hang()",
    "leaves a daemon": "daemon(hang)",
    "leaves a daemon and hangs": "daemon(hang)\nhang()",
    "leaves a daemon and dies": "daemon(hang)\ntime.sleep(0.1)\nos._exit(1)",
    "leaves a busy thread": "threading.Thread(target=lambda: [None for _ in iter(int, 1)], daemon=True).start()",
    "leaves an idle thread": "threading.Thread(target=hang, daemon=True).start()",
    "floods its output": "[os.write(1, b'x' * (1 << 20)) for _ in range(1 << 10)]",
    "floods its errors": "try: [os.write(2, b'x' * (1 << 16)) for _ in range(1 << 6)]\nexcept OSError: pass",
    "writes a file": "open(os.path.join(os.environ.get('TMPDIR', '/tmp'), 'x'), 'w') and None",
    # what it writes to its connection
    "closes its connection": "os.close(connection())",
    "closes all files": "os.closerange(0, 4096)",
    "sends garbage": "os.write(connection(), b'garbage' * 100)",
    "sends a long length": "os.write(connection(), struct.pack('<Q', 1 << 62))\nhang()",
    "sends half a length": "os.write(connection(), b'\\xff\\xff\\xff\\xff\\0\\0\\0')\nhang()",
    "sends half a frame": "os.write(connection(), struct.pack('<Q', 1 << 20) + b'x')\nhang()",
    "trickles": "os.write(connection(), struct.pack('<Q', 1 << 20))\nwhile True: os.write(connection(), b'x')",
    "sends a pickle": (
        "import tempfile\nfile = os.path.join(tempfile.gettempdir(), 'unpickled')\n"
        "data = b'cposix\\nsystem\\n(Vtouch ' + file.encode() + b'\\ntR.'\n"
        "os.write(connection(), struct.pack('<Q', len(data)) + data)"
    ),
    "sends another answer": (
        "import msgspec\ndata = msgspec.msgpack.encode([['Ran', [-1.0], False, 0.0], ''])\n"
        "os.write(connection(), struct.pack('<Q', len(data)) + data)"
    ),
    "sends many answers": (
        "import msgspec\ndata = msgspec.msgpack.encode([['Failed', 'crash', 'forged', 0.0], ''])\n"
        "[os.write(connection(), struct.pack('<Q', len(data)) + data) for _ in range(50)]"
    ),
    "reads its connection": "os.read(connection(), 1)",
    # what it changes
    "limits open files": "resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))",
    "limits its stack": "resource.setrlimit(resource.RLIMIT_STACK, (1 << 16, 1 << 16))",
    "limits its memory": "resource.setrlimit(resource.RLIMIT_DATA, (1 << 28, 1 << 28))",
    "limits its CPU": "resource.setrlimit(resource.RLIMIT_CPU, (1, 1))",
    "limits its files": "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))",
    "limits its processes": "resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))",
    "changes the environment": "os.environ.clear()",
    "changes C's environment": "ctypes.CDLL(None).setenv(b'TVM_NUM_THREADS', b'99', 1)",
    "changes the folder": "os.chdir('/')",
    "removes its folder": "os.mkdir('gone')\nos.chdir('gone')\nos.rmdir(os.getcwd())",
    "changes the umask": "os.umask(0o777)",
    "blocks signals": "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))",
    "handles signals": "signal.signal(signal.SIGTERM, lambda *_: None)",
    "sets an alarm": "signal.setitimer(signal.ITIMER_REAL, 0.3)",
    "binds itself to a core": "os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])",
    "is nice": "os.nice(19)",
    "opens files": "kept = builtins.kept = [open('/dev/null') for _ in range(200)]",
}
"""The Python code that each candidate executes."""

GOOD = ("good 1", "good 2", "good 3", "good 4")
"""Candidates that do nothing wrong; each is a different program."""


class Misbehaving(ProductSpace):
    """A GEMM with one knob, ``mode``.

    Args:
        phase: When a candidate misbehaves.
    """

    def __init__(self, workload: Workload, target: Target, phase: str, codes: dict[str, str]) -> None:
        super().__init__(workload, target, [Knob("mode", (*GOOD, *codes))])
        self.phase = phase
        self.codes = codes

    def schedule(self, config: Config) -> Schedule:
        from tvm.s_tir import Schedule

        mode = str(config["mode"])
        code = self.codes.get(mode, "")
        if code and self.phase == "building":
            exec(code, {})
        number = GOOD.index(mode) if mode in GOOD else len(GOOD)
        return Schedule(_program(self.workload, code if self.phase == "running" else "", 1 << number))


def _program(workload: Workload, code: str, steps: int) -> tvm.IRModule:
    """Return a GEMM that first runs the Python ``code``; ``steps`` makes programs distinct."""
    import tvm

    function = _calling(workload, f"{code}\n") if code else _plain(workload, steps)
    return tvm.IRModule({"main": function.with_attr("global_symbol", "main")})


def _plain(workload: Workload, steps: int) -> tvm.tirx.PrimFunc:
    from tvm.script import tirx as T

    (n, k), (_, m), _ = workload.shapes.values()
    inner = k // steps

    @T.prim_func(s_tir=True)
    def plain(A: T.Buffer((n, k), "float32"), B: T.Buffer((k, m), "float32"), C: T.Buffer((n, m), "float32")):  # type: ignore[no-untyped-def,valid-type]
        for i, j in T.grid(n, m):
            C[i, j] = T.float32(0)
            for outer, rest in T.grid(steps, inner):
                C[i, j] = C[i, j] + A[i, outer * inner + rest] * B[outer * inner + rest, j]

    return plain


def _calling(workload: Workload, run: str) -> tvm.tirx.PrimFunc:
    from tvm.script import tirx as T

    (n, k), (_, m), _ = workload.shapes.values()

    @T.prim_func(s_tir=True)
    def calls(A: T.Buffer((n, k), "float32"), B: T.Buffer((k, m), "float32"), C: T.Buffer((n, m), "float32")):  # type: ignore[no-untyped-def,valid-type]
        state = T.call_extern("int32", "PyGILState_Ensure")
        T.evaluate(T.call_extern("int32", "PyRun_SimpleString", run))
        T.evaluate(T.call_extern("void", "PyGILState_Release", state))
        for i, j in T.grid(n, m):
            C[i, j] = T.float32(0)
            for x in range(k):
                C[i, j] = C[i, j] + A[i, x] * B[x, j]

    return calls


def code_of(mode: str) -> str:
    """Return a mode's code as a function, so that its definitions are local."""
    return f"{_IMPORTS}\ndef misbehave():\n{textwrap.indent(MODES[mode], '    ')}\nmisbehave()"


def measure(measurer: LocalMeasurer, mode: str, phase: str) -> str:
    """Measure the candidate for ``mode`` between correct ones. Return what went wrong, or ""."""
    measurer.measurements.clear()
    space = Misbehaving(parse_workload("gemm:16x16x16"), measurer.target, phase, {mode: code_of(mode)})
    before, measurement, after = measurer.measure(space, [Config({"mode": name}) for name in (GOOD[0], mode, GOOD[1])])
    later = list(measurer.measure(space, [Config({"mode": name}) for name in GOOD[2:]]))
    if measurement.failure not in (None, *FAILURES) or len(measurement.message) > MAX_TEXT_LENGTH:
        return f"failure {measurement.failure!r} with {len(measurement.message)} characters"
    for name, neighbour in zip(("before", "after", "later", "last"), (before, after, *later), strict=True):
        if neighbour.failure or neighbour.reused:
            return f"the candidate {name} is {neighbour.failure or 'reused'}: {neighbour.message[:200]}"
    outcomes[mode] = measurement.failure or "measured"
    return ""


outcomes: dict[str, str] = {}
"""The outcome of each mode's candidate."""


def child(phase: str, modes: Sequence[str]) -> None:
    """Measure ``modes``, printing a line of JSON before and after each."""
    settings = LocalSettings(
        repeat=2, min_repeat_ms=0, memory_limit_mb=400, build_timeout=3.0, run_timeout=2.0, finalists=0, sentinel=0
    )
    for mode in modes:
        print(json.dumps({"begins": mode}), flush=True)
        start = time.perf_counter()
        scratch = Path(tempfile.gettempdir())
        before = set(scratch.iterdir())
        folder = os.getcwd()
        try:
            with LocalMeasurer(settings, resolve_target("native"), {}, 1) as measurer:
                wrong = measure(measurer, mode, phase)
        except BaseException as error:
            wrong = f"raised {type(error).__name__}: {str(error)[:200]}"
        seconds = time.perf_counter() - start
        if not wrong and (processes := _strays()):
            wrong = f"left processes: {processes}"
        expected_files = {"writes a file": {"x"}}.get(mode, set())
        if not wrong and (files := {f.name for f in set(scratch.iterdir()) - before} - expected_files - {"gone"}):
            wrong = f"left files: {sorted(files)}"
        if not wrong and os.getcwd() != folder:
            wrong = "changed the folder of the driver"
        print(
            json.dumps({"mode": mode, "wrong": wrong, "said": outcomes.get(mode, ""), "seconds": seconds}), flush=True
        )


def _strays() -> list[str]:
    """Return our processes, except this one and the fork server."""
    processes = []
    for _ in range(20):
        processes = [_describe(process) for process in psutil.process_iter() if _is_stray(process)]
        if not processes:
            return []
        time.sleep(0.05)
    return processes


def _describe(process: psutil.Process) -> str:
    try:
        return f"{process.pid} {process.status()}"
    except psutil.Error:
        return str(process.pid)


def _is_stray(process: psutil.Process) -> bool:
    us = psutil.Process()
    try:
        if process.environ().get(MARK) != os.environ[MARK] or process.status() == psutil.STATUS_ZOMBIE:
            return False
        return process.pid != us.pid and process.ppid() not in (us.pid, us.ppid())
    except psutil.Error:
        return False


def rows(phase: str, modes: Sequence[str]) -> list[dict[str, Any]]:
    """Return a row for each of ``modes``. If a process hangs, it is killed, and a new one runs the next mode."""
    remaining, results = list(modes), list[dict[str, Any]]()
    while remaining:
        scratch = tempfile.mkdtemp(prefix="hostile-")
        environment = os.environ | {MARK: f"{os.getpid()}-{len(results)}", "TMPDIR": scratch}
        words = [sys.executable, __file__, "--child", phase, *remaining]
        process = subprocess.Popen(
            words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=scratch
        )
        assert process.stdout
        try:
            for row in _read(process):
                results.append({"phase": phase, **row})
                _print(results[-1])
                remaining.remove(row["mode"])
        finally:
            process.kill()
            process.communicate()
            shutil.rmtree(scratch, ignore_errors=True)
    return results


def _read(process: subprocess.Popen[str]) -> Any:
    """Yield the rows that ``process`` prints. The last one reports whether it hung or ended early."""
    from selectors import EVENT_READ, DefaultSelector

    assert process.stdout
    waiting = DefaultSelector()
    waiting.register(process.stdout, EVENT_READ)
    mode = ""
    while True:
        if not waiting.select(DEADLINE + (60 if not mode else 0)):
            yield {"mode": mode, "wrong": "it hung", "said": "", "seconds": DEADLINE}
            return
        line = process.stdout.readline()
        if not line:
            if process.wait() or mode:
                errors = process.stderr.read()[-300:] if process.stderr else ""
                yield {"mode": mode, "wrong": f"the driver ended: {errors}", "said": "", "seconds": 0.0}
            return
        row = json.loads(line)
        if "begins" in row:
            mode = row["begins"]
        else:
            yield row
            mode = ""


def _print(row: dict[str, Any]) -> None:
    verdict = f"BAD  {row['wrong']}" if row["wrong"] else f"ok   {row['said']}"
    print(f"{row['phase']:<9} {row['mode']:<26} {row['seconds']:6.1f} s  {verdict}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--phase", nargs="+", choices=PHASES, default=PHASES)
    parser.add_argument("--mode", nargs="+", choices=tuple(MODES), default=tuple(MODES), metavar="NAME")
    parser.add_argument("--rows", type=Path, metavar="FILE", help="append rows for robustness.py to FILE")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child[0], options.child[1:])
        return
    results = [row for phase in options.phase for row in rows(phase, options.mode)]
    print(f"{len(results)} rows, {sum(bool(row['wrong']) for row in results)} bad")
    write_rows(
        [
            Row(f"candidates while {row['phase']}", row["mode"], 1, [row["wrong"]] * bool(row["wrong"]), row["seconds"])
            for row in results
        ],
        options.rows,
    )


if __name__ == "__main__":
    main()
