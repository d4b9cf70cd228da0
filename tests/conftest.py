"""Fixtures of several tests: this machine as a target, and one measurer, whose processes are slow to start."""

from __future__ import annotations

import gc
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

import searchlab
from searchlab.machine.cuda import gpu_name
from searchlab.machine.lock import LOCK_VARIABLE, MACHINE
from searchlab.measure.local import LocalMeasurer, LocalSettings
from searchlab.target import Target, native_fields, resolve_target
from tests.support.language_model import LanguageModel, serve
from tests.support.spaces.targets import UNOPTIMIZED

# A test that is slow on a machine with other work is not wrong, and half of the usual examples take half of the time.
settings.register_profile("searchlab", deadline=None, max_examples=50)
settings.load_profile("searchlab")

collect_ignore = ["example_plugin"]  # a package of its own, whose tests run where it is installed


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and gpu_name() is None:
        pytest.skip("runs CUDA programs, and there is no NVIDIA GPU here that TVM can use")


LOCK = Path(tempfile.gettempdir(), f"searchlab-tests-{os.getpid()}.lock")

OWN_LOCK = LOCK.with_suffix(".own")


def pytest_configure() -> None:
    """Let Ctrl-C end what tests start: a script's background job ignores it, and so does all that it starts.

    Tests that run in parallel do not wait for each other to measure, and the processes that they start do not wait for
    the measurers that this process shares between tests.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ[LOCK_VARIABLE] = str(LOCK)
    MACHINE.get_path = lambda: OWN_LOCK


def pytest_collection_finish() -> None:
    """Leave the many objects of TVM and other libraries out of garbage collection: it takes a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def pytest_unconfigure() -> None:
    for path in (LOCK, OWN_LOCK):
        path.unlink(missing_ok=True)


@pytest.fixture
def trusting() -> Iterator[None]:
    """Logs may name spaces and cost models of tests, which no installed package registers."""
    with searchlab.trust_plugins():
        yield


@pytest.fixture(scope="session")
def language_model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LanguageModel]:
    """The endpoint of the policies that ask a language model, and a directory for their cassettes."""
    with serve() as model, pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEARCHLAB_LLM_URL", model.url)
        patch.setenv("SEARCHLAB_LLM_CASSETTE", str(tmp_path_factory.mktemp("cassettes")))
        yield model


@pytest.fixture(scope="session")
def native() -> Target:
    """This machine, for tests to which the speed of programs does not matter."""
    return resolve_target(UNOPTIMIZED)


@pytest.fixture
def unoptimized(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, too, ``"native"`` is the target of :func:`native`."""
    fields = {**native_fields(), "opt-level": UNOPTIMIZED["opt-level"]}
    monkeypatch.setattr("searchlab.target.native_fields", lambda: fields)


@pytest.fixture(scope="session")
def measurer(native: Target) -> Iterator[LocalMeasurer]:
    with LocalMeasurer(
        LocalSettings(repeat=2, min_repeat_ms=0, build_timeout=5, run_timeout=2), native, {}, 2
    ) as local_measurer:
        yield local_measurer
