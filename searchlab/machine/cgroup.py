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
def read_core_quota(root_dir: Path = Path("/")) -> float:
    """Return the number of cores whose time this process may use, or infinity if there is no limit."""
    core_counts = [math.inf]
    for folder in _list_group_folders("cpu", root_dir):
        quota, _, period = read_system_file(folder / "cpu.max").partition(" ")  # version 2
        quota = quota or read_system_file(folder / "cpu.cfs_quota_us")
        period = period or read_system_file(folder / "cpu.cfs_period_us")
        with suppress(ValueError):
            if int(quota) > 0 and int(period) > 0:
                core_counts.append(int(quota) / int(period))
    return min(core_counts)


def read_memory_limit(root_dir: Path = Path("/")) -> float:
    """Return the number of bytes of memory that this process may use, or infinity if there is no limit."""
    byte_limits = [math.inf]
    for folder in _list_group_folders("memory", root_dir):
        for name in ("memory.max", "memory.limit_in_bytes"):
            with suppress(ValueError):
                if 0 < (byte_limit := int(read_system_file(folder / name))) < UNLIMITED_BYTES:
                    byte_limits.append(byte_limit)
    return min(byte_limits)


def _list_group_folders(controller: str, root_dir: Path) -> Iterator[Path]:
    """Yield the folders of this process's control groups that have ``controller``, and of all groups around them."""
    path_by_controllers = {}  # by the names of the controllers, which are empty in version 2
    for line in read_system_file(root_dir / "proc/self/cgroup").splitlines():
        _, controllers, group = line.split(":", 2)
        if not controllers or controller in controllers.split(","):
            path_by_controllers[controllers] = PurePosixPath(group)
    for line in read_system_file(root_dir / "proc/self/mountinfo").splitlines():
        mount_fields, _, system_fields = line.partition(" - ")
        system_type, _, options = system_fields.split(" ", 2)
        mount_root, mount_point = mount_fields.split(" ")[3:5]
        for controllers, group_path in path_by_controllers.items():
            if system_type == ("cgroup" if controllers else "cgroup2") and (
                not controllers or controller in options.split(" ")[-1].split(",")
            ):
                # A container may see the path of its group outside of the container.
                is_visible = group_path.is_relative_to(mount_root)
                relative_path = group_path.relative_to(mount_root) if is_visible else PurePosixPath()
                mount_folder = root_dir / mount_point.lstrip("/")
                for folder in (relative_path, *relative_path.parents):
                    yield mount_folder / folder


def read_system_file(path: Path) -> str:
    """Return the text of a file in which Linux describes the system, or "" if it cannot be read."""
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
