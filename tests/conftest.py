"""What several tests share: this machine as a target, and one measurer, whose processes are slow to start."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from searchlab.log.format import Header, Record
from searchlab.log.writer import LogWriter
from searchlab.machine.cuda import gpu_name
from searchlab.measure.local import LocalMeasurer, LocalSettings
from searchlab.plugins import Plugin
from searchlab.records import Trial
from searchlab.space import Space
from searchlab.target import Target, resolve_target
from tests.toys import Cost

collect_ignore = ["example_plugin"]  # a package of its own, whose tests run where it is installed


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and gpu_name() is None:
        pytest.skip("runs CUDA programs, and there is no NVIDIA GPU here that TVM can use")


def pytest_configure() -> None:
    """Let Ctrl-C end what tests start: a script's background job ignores it, and so does all that it starts."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def native() -> Target:
    return resolve_target("native")


@pytest.fixture(scope="session")
def measurer(native: Target) -> Iterator[LocalMeasurer]:
    with LocalMeasurer(LocalSettings(repeat=2, min_repeat_ms=0, build_timeout=5, run_timeout=2), native, {}, 2) as made:
        yield made


def write_table(path: Path, space: Space, cost: Cost) -> Path:
    """A log of every config of a toy space, at its made-up cost."""
    header = Header(
        workload=str(space.workload), space=Plugin("toy"), fingerprint=space.fingerprint, policy=Plugin("grid"),
        seed=0, batch=1, target=space.target.to_json(), measure={},
    )  # fmt: skip
    writer = LogWriter(path, header)
    for index, config in enumerate(space.enumerate()):
        writer.append(Record.of(Trial(index, config, cost(config)), 0.0, 0.0))
    writer.close()
    return path
