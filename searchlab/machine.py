"""What of a machine bears on the times measured on it, as far as Linux tells it."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import psutil

from .target import available_cores

_CPU = Path("/sys/devices/system/cpu")


def machine(threads: int) -> dict[str, Any]:
    """What a reader needs to judge times by, on top of the CPU's name; what the system does not tell is left out.

    cores, physical_cores, available_cores: those of the machine, with and without SMT, and those this process may use.
    threads: how many a program runs on. smt: whether it is on. governor: of the clock, and turbo whether that may
    exceed its base. virtual: the hypervisor or container, where there is one. load: processes that ran or waited, mean
    of the last minute. memory_mb: all of it.
    """
    found: dict[str, Any] = {
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
    return {name: value for name, value in found.items() if value not in (None, "")}


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _turbo() -> bool | None:
    """Linux, Documentation/admin-guide/pm: intel_pstate says whether there is none, others whether there is."""
    if none := _read(_CPU / "intel_pstate" / "no_turbo"):
        return none == "0"
    boost = _read(_CPU / "cpufreq" / "boost")
    return boost == "1" if boost else None


def _virtual() -> str:
    """The signs of a virtual machine and of a container, which share their cores with others."""
    names = []
    if "hypervisor" in _read(Path("/proc/cpuinfo")).partition("\n\n")[0].split():
        names.append(_read(Path("/sys/class/dmi/id/sys_vendor")) or "hypervisor")
    cgroup = _read(Path("/proc/1/cgroup"))
    if Path("/.dockerenv").exists() or any(sign in cgroup for sign in ("docker", "kubepods", "lxc", "containerd")):
        names.append("container")
    return ", ".join(names)
