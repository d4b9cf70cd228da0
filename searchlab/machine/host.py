"""This machine's CPU, other facts that influence measured times, and library versions."""

from __future__ import annotations

import functools
import os
import platform
import re
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from .cgroup import read_core_quota, read_memory_limit, read_system_file
from .cuda import gpu_name

LIBRARIES = ("searchlab", "apache-tvm", "apache-tvm-ffi", "numpy", "xgboost", "lightgbm", "scikit-learn", "optuna")

_CPU_FOLDER = Path("/sys/devices/system/cpu")


def available_cores() -> int:
    """Return the number of cores that this process may keep busy all the time."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, int(min(cores, read_core_quota())))


def available_memory() -> int:
    """Return the number of bytes of memory that this process may use."""
    import psutil

    return int(min(psutil.virtual_memory().total, read_memory_limit()))


def own_cores() -> int:
    """Return the number of cores that this process may keep busy, which ``TVM_NUM_THREADS`` may limit."""
    thread_limit = os.environ.get("TVM_NUM_THREADS", "")
    if thread_limit.isdecimal() and int(thread_limit):
        return min(available_cores(), int(thread_limit))
    return available_cores()


def start_tvm_threads() -> int:
    """Start TVM's thread pool, unless it is already running, and return its number of threads.

    TVM binds the thread that starts the pool to one core, which processes started later would inherit. Therefore the
    thread's original cores are restored.
    """
    from tvm_ffi import get_global_func

    affinity = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    try:
        return int(get_global_func("runtime.NumThreads")())
    finally:
        if affinity:
            os.sched_setaffinity(0, affinity)


@functools.cache
def library_versions() -> Mapping[str, str]:
    """Return the versions of the :data:`LIBRARIES` that are installed."""
    versions = {}
    for name in LIBRARIES:
        for distribution in (name, f"{name}-cpu"):  # XGBoost without its code for GPUs is called xgboost-cpu
            with suppress(PackageNotFoundError):
                versions[name] = version(distribution)
    return versions


def host_model(target_kind: str) -> dict[str, str]:
    """Return the name of this machine's CPU and, if ``target_kind`` is ``cuda``, the name of its GPU."""
    gpu = gpu_name() if target_kind == "cuda" else None
    return {"cpu": cpu_model(), **({"gpu": gpu} if gpu else {})}


def cpu_model() -> str:
    """Return this CPU's name as reported by the kernel."""
    match = re.search(r"^model name\s*:\s*(.+)$", read_system_file(Path("/proc/cpuinfo")), re.MULTILINE)
    return match[1].strip() if match else platform.processor() or platform.machine()


def describe_machine() -> str:
    """Return this CPU's name and the number of cores that this process may use, on which ``native`` depends."""
    return f"{cpu_model()} with {available_cores()} available cores"


LOAD_SAMPLE_SECONDS = 0.1

MAX_BUSY_CORES = 0.25
"""The number of cores that other processes may keep busy without a warning."""


def measure_busy_cores() -> float:
    """Return the number of this machine's cores that other processes keep busy, or 0 if the load is low.

    The cores are observed for a tenth of a second. The load alone is not sufficient, because it is averaged over the
    last minute, and this process itself may have caused it.
    """
    if os.getloadavg()[0] < MAX_BUSY_CORES:
        return 0.0
    import psutil

    return float(psutil.cpu_percent(LOAD_SAMPLE_SECONDS)) / 100 * (psutil.cpu_count() or 1)


def observe_load() -> str:
    """Return a warning if other processes keep this machine too busy for reliable measurements, or "" otherwise."""
    if (cores := measure_busy_cores()) <= MAX_BUSY_CORES:
        return ""
    return (
        f"other processes keep about {cores:.1f} of this machine's {os.cpu_count()} cores busy (load "
        f"{os.getloadavg()[0]:.1f}), so times measured now are unreliable; stop these processes first, or measure on a "
        f"different machine"
    )


def read_machine_facts(threads: int) -> dict[str, Any]:
    """Return the facts about this machine that influence measured times, except for the CPU's name.

    Facts that the system does not report are omitted. ``threads`` is the number of threads that programs use.
    """
    import psutil  # not needed for reading logs

    facts: dict[str, Any] = {
        "cores": psutil.cpu_count(),
        "physical_cores": psutil.cpu_count(logical=False),  # without SMT
        "available_cores": available_cores(),
        "threads": threads,
        "smt": {"1": True, "0": False}.get(read_system_file(_CPU_FOLDER / "smt" / "active")),
        "governor": read_system_file(_CPU_FOLDER / "cpu0" / "cpufreq" / "scaling_governor"),
        "turbo": _is_turbo_enabled(),  # whether the clock may exceed its base frequency
        "memory_mb": psutil.virtual_memory().total >> 20,
        "virtual": _describe_virtualization(),  # the hypervisor and the container
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 2),  # the average number of running or waiting processes in the last minute
    }
    return {name: value for name, value in facts.items() if value not in (None, "")}


def _is_turbo_enabled() -> bool | None:
    """Return whether turbo is enabled, or None if unknown.

    The intel_pstate driver has a switch that disables turbo; other drivers have a switch that enables it. Source:
    Linux, Documentation/admin-guide/pm.
    """
    if no_turbo_text := read_system_file(_CPU_FOLDER / "intel_pstate" / "no_turbo"):
        return no_turbo_text == "0"
    boost_text = read_system_file(_CPU_FOLDER / "cpufreq" / "boost")
    return boost_text == "1" if boost_text else None


def _describe_virtualization() -> str:
    """Return the hypervisor and the container, in which cores may be shared with others, or "" if there is neither."""
    virtualization_names = []
    if "hypervisor" in read_system_file(Path("/proc/cpuinfo")).partition("\n\n")[0].split():
        virtualization_names.append(read_system_file(Path("/sys/class/dmi/id/sys_vendor")) or "hypervisor")
    cgroup_text = read_system_file(Path("/proc/1/cgroup"))
    markers = ("docker", "kubepods", "lxc", "containerd")
    if Path("/.dockerenv").exists() or any(marker in cgroup_text for marker in markers):
        virtualization_names.append("container")
    return ", ".join(virtualization_names)
