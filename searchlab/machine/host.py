"""This machine: its CPU, other facts that influence measured times, and the versions of the libraries."""

from __future__ import annotations

import functools
import os
import platform
import time
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from .cuda import gpu_name

LIBRARIES = ("searchlab", "apache-tvm", "apache-tvm-ffi", "numpy", "xgboost", "lightgbm", "scikit-learn", "optuna")

_CPU = Path("/sys/devices/system/cpu")


def available_cores() -> int:
    """Cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def own_cores() -> int:
    """Cores that this process has to itself: fewer in one of several jobs, whose share is in ``TVM_NUM_THREADS``."""
    share = os.environ.get("TVM_NUM_THREADS", "")
    return min(available_cores(), int(share)) if share.isdecimal() and int(share) else available_cores()


def start_tvm_threads() -> int:
    """Start TVM's pool of threads, unless it runs, and give their number.

    TVM binds the thread that starts the pool to one core, which every process that it starts later would inherit; it
    is given its cores back.
    """
    from tvm_ffi import get_global_func

    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    try:
        return int(get_global_func("runtime.NumThreads")())
    finally:
        if cores:
            os.sched_setaffinity(0, cores)


@functools.cache
def library_versions() -> Mapping[str, str]:
    """The installed version of each of :data:`LIBRARIES`, without those that are not installed."""
    versions = {}
    for name in LIBRARIES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


def host_model(kind: str) -> dict[str, str]:
    """The CPU of this machine, and its GPU if the ``kind`` of target is ``cuda``."""
    gpu = gpu_name() if kind == "cuda" else None
    return {"cpu": cpu_model(), **({"gpu": gpu} if gpu else {})}


def cpu_model() -> str:
    """The name of this CPU as the kernel gives it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


LOOK_SECONDS = 0.1
BUSY_CORES = 0.25
"""How many cores other processes may keep busy without a warning."""


def busy_cores() -> float:
    """How many cores of this machine other processes keep busy, by a short look; 0 where the load says that none are.

    The load alone would not do: it is a mean over the last minute, and may be that of this process's own past.
    """
    if os.getloadavg()[0] < BUSY_CORES:
        return 0.0
    import psutil

    before, own, start = psutil.cpu_times(), time.process_time(), time.monotonic()
    time.sleep(LOOK_SECONDS)
    after, seconds = psutil.cpu_times(), time.monotonic() - start
    idle = sum(getattr(after, name, 0.0) - getattr(before, name, 0.0) for name in ("idle", "iowait"))
    ours = time.process_time() - own
    return max(0.0, (psutil.cpu_count() or 1) - (idle + ours) / seconds)


def busy_warning(busy: float, load: float, cores: int) -> str:
    """A sentence about a machine whose measurements are in doubt; empty if nothing is.

    Args:
        busy: The number of cores that other processes keep busy.
        load: The mean number of processes that ran or waited in the last minute.
        cores: The number of cores of the machine.
    """
    if busy <= BUSY_CORES:
        return ""
    return (
        f"other processes keep about {busy:.1f} of the {cores} cores of this machine busy (load {load:.1f}), so the "
        f"times that are measured now are in doubt; end them first, or measure on another machine"
    )


def machine(threads: int) -> dict[str, Any]:
    """Facts that influence times, without the CPU's name; a fact that the system does not tell is left out.

    cores, physical_cores, available_cores: of the machine, with and without SMT, and those this process may use.
    threads: the number of threads of a program. smt: whether it is on. governor: that of the clock. turbo: whether the
    clock may exceed its base. virtual: the hypervisor or container, if any. load: the mean number of processes that
    ran or waited in the last minute. memory_mb: the whole memory.
    """
    import psutil  # here, since whoever only reads logs needs none of it

    facts: dict[str, Any] = {
        "cores": psutil.cpu_count(),
        "physical_cores": psutil.cpu_count(logical=False),
        "available_cores": available_cores(),
        "threads": threads,
        "smt": {"1": True, "0": False}.get(_read(_CPU / "smt" / "active")),
        "governor": _read(_CPU / "cpu0" / "cpufreq" / "scaling_governor"),
        "turbo": _turbo(),
        "memory_mb": psutil.virtual_memory().total >> 20,
        "virtual": _virtual(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 2),
    }
    return {name: value for name, value in facts.items() if value not in (None, "")}


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _turbo() -> bool | None:
    """Linux, Documentation/admin-guide/pm: intel_pstate has a switch for no turbo, other drivers one for turbo."""
    if none := _read(_CPU / "intel_pstate" / "no_turbo"):
        return none == "0"
    boost = _read(_CPU / "cpufreq" / "boost")
    return boost == "1" if boost else None


def _virtual() -> str:
    """The hypervisor and the container, if any: both may share their cores with others."""
    names = []
    if "hypervisor" in _read(Path("/proc/cpuinfo")).partition("\n\n")[0].split():
        names.append(_read(Path("/sys/class/dmi/id/sys_vendor")) or "hypervisor")
    cgroup = _read(Path("/proc/1/cgroup"))
    if Path("/.dockerenv").exists() or any(sign in cgroup for sign in ("docker", "kubepods", "lxc", "containerd")):
        names.append("container")
    return ", ".join(names)
