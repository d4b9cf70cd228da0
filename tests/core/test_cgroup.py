"""Limits of control groups, read from files like those of the kernel."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from searchlab.machine import cgroup
from searchlab.machine.cgroup import read_core_quota, read_memory_limit

MOUNTS = {
    2: "31 23 0:28 {top} /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate",
    1: "31 23 0:28 {top} /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "32 23 0:29 {top} /sys/fs/cgroup/memory rw shared:3 - cgroup cgroup rw,memory",
}


def machine(root: Path, version: int, group: str, top: str, files: dict[str, str]) -> Path:
    (root / "proc/self").mkdir(parents=True)
    groups = f"0::{group}" if version == 2 else f"3:memory:{group}\n2:cpu,cpuacct:{group}\n1:name=systemd:/"
    (root / "proc/self/cgroup").write_text(f"{groups}\n")
    (root / "proc/self/mountinfo").write_text(
        f"20 1 0:1 / /proc rw - proc proc rw\n{MOUNTS[version]}\n".format(top=top)
    )
    for name, text in files.items():
        (path := root / "sys/fs/cgroup" / name).parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return root


@pytest.mark.parametrize(
    ("version", "group", "top", "files", "cores", "memory"),
    [
        (2, "/a/b", "/", {"a/b/cpu.max": "max 100000", "a/cpu.max": "250000 100000"}, 2.5, math.inf),
        (2, "/a/b", "/", {"a/b/cpu.max": "50000 100000", "a/memory.max": "1000", "a/b/memory.max": "max"}, 0.5, 1000),
        (2, "/", "/", {"cpu.max": "400000 100000", "memory.max": "5000"}, 4, 5000),
        (2, "/docker/x/y", "/docker/x", {"y/cpu.max": "100000 100000", "memory.max": "7"}, 1, 7),
        (2, "/../elsewhere", "/", {"cpu.max": "nonsense", "memory.max": ""}, math.inf, math.inf),
        (
            1,
            "/a",
            "/",
            {
                "cpu,cpuacct/a/cpu.cfs_quota_us": "-1",
                "cpu,cpuacct/a/cpu.cfs_period_us": "100000",
                "cpu,cpuacct/cpu.cfs_quota_us": "300000",
                "cpu,cpuacct/cpu.cfs_period_us": "100000",
                "memory/a/memory.limit_in_bytes": "4096",
                "memory/memory.limit_in_bytes": "9223372036854771712",
            },
            3,
            4096,
        ),
        (
            1,
            "/docker/x",
            "/docker/x",
            {
                "cpu,cpuacct/cpu.cfs_quota_us": "150000",
                "cpu,cpuacct/cpu.cfs_period_us": "100000",
            },
            1.5,
            math.inf,
        ),
    ],
)
def test_the_tightest_limit_of_all_groups_counts(
    tmp_path: Path, version: int, group: str, top: str, files: dict[str, str], cores: float, memory: float
) -> None:
    root = machine(tmp_path, version, group, top, files)
    assert read_core_quota(root) == cores and read_memory_limit(root) == memory


@pytest.mark.parametrize(("quota", "cores"), [(0.5, 1), (1.9, 1), (math.inf, None)])
def test_a_quota_counts_as_cores(monkeypatch: pytest.MonkeyPatch, quota: float, cores: int | None) -> None:
    from searchlab.machine import host

    before = host.available_cores()
    monkeypatch.setattr(host, "read_core_quota", lambda: quota)
    assert host.available_cores() == (cores or before)


def test_a_system_without_control_groups_has_no_limits(tmp_path: Path) -> None:
    assert cgroup.read_core_quota(tmp_path) == cgroup.read_memory_limit(tmp_path) == math.inf
