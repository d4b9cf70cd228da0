"""The limits on cores and memory that control groups, and thus containers and job schedulers, set for this process.

Source: Linux, Documentation/admin-guide/cgroup-v1 and cgroup-v2.rst.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

UNLIMITED_BYTES = 1 << 62
"""Memory limits of at least this size mean no limit, as do the word ``max`` (version 2) and -1 (version 1)."""


@functools.cache
def core_quota(root: Path = Path("/")) -> float:
    """Return the number of cores whose time this process may use, or infinity if there is no limit."""
    quotas = [math.inf]
    for folder in _folders("cpu", root):
        quota, _, period = read_fact(folder / "cpu.max").partition(" ")  # version 2
        quota = quota or read_fact(folder / "cpu.cfs_quota_us")
        period = period or read_fact(folder / "cpu.cfs_period_us")
        with suppress(ValueError):
            if int(quota) > 0 and int(period) > 0:
                quotas.append(int(quota) / int(period))
    return min(quotas)


def memory_limit(root: Path = Path("/")) -> float:
    """Return the number of bytes of memory that this process may use, or infinity if there is no limit."""
    limits = [math.inf]
    for folder in _folders("memory", root):
        for name in ("memory.max", "memory.limit_in_bytes"):
            with suppress(ValueError):
                if 0 < (limit := int(read_fact(folder / name))) < UNLIMITED_BYTES:
                    limits.append(limit)
    return min(limits)


def _folders(controller: str, root: Path) -> Iterator[Path]:
    """Yield the folders of this process's control groups that have ``controller``, and of all groups around them."""
    groups = {}  # by the names of the controllers, which are empty in version 2
    for line in read_fact(root / "proc/self/cgroup").splitlines():
        _, controllers, group = line.split(":", 2)
        if not controllers or controller in controllers.split(","):
            groups[controllers] = PurePosixPath(group)
    for line in read_fact(root / "proc/self/mountinfo").splitlines():
        mount, _, system = line.partition(" - ")
        kind, _, options = system.split(" ", 2)
        top, point = mount.split(" ")[3:5]
        for controllers, path in groups.items():
            if kind == ("cgroup" if controllers else "cgroup2") and (
                not controllers or controller in options.split(" ")[-1].split(",")
            ):
                # A container may see the path of its group outside of the container.
                inside = path.relative_to(top) if path.is_relative_to(top) else PurePosixPath()
                mounted = root / point.lstrip("/")
                for folder in (inside, *inside.parents):
                    yield mounted / folder


def read_fact(path: Path) -> str:
    """Return the text of a file in which Linux reports a fact, or "" if it does not."""
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
