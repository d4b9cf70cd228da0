"""Executor checks: a function for each rule in the contract of :class:`~searchlab.executors.contract.RunExecutor`."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from ..errors import described
from ..executors.contract import EXECUTORS, RunExecutor
from ..machine.scratch import ScratchFolder
from ..plugins import PluginSpec
from .check import Breach, Check, NotApplicable, Subject, check_constructor, rule

STUDY = {"suite": "v1/gemm-64x64x64-trace-1t", "policies": ["random"], "trials": 8, "seeds": 2}
"""A study that uses a recorded table and therefore measures nothing."""

SECONDS = 60.0
"""The time limit in seconds for a call whose function returns immediately."""


PENDING = 8.0
"""The time in seconds within which all calls must end or be cancelled after ``kill_workers``."""


@dataclass(frozen=True)
class ExecutorSubject(Subject):
    """An executor to check."""

    def start(self, folder: Path, exclusive: bool = False) -> RunExecutor:
        """Start the executor. Raises Refused if the executor rejects its options, for example without a cluster."""
        refused = f"executor {self.plugin.name!r} does not start"
        executor: RunExecutor = self.make(RunExecutor, refused, exclusive, folder, **self.plugin.options)
        return executor

    @contextmanager
    def started(self, exclusive: bool = False) -> Iterator[RunExecutor]:
        """Start the executor in a temporary folder, and shut it down after the body."""
        with ScratchFolder() as folder:
            executor = self.start(Path(folder), exclusive)
            try:
                yield executor
            finally:
                executor.shutdown()

    @cached_property
    def is_here(self) -> bool:
        """Whether the executor performs calls in this process."""
        with self.started() as executor:
            return bool(_result(executor.submit(os.getpid)) == os.getpid())


def _result(future: Future[Any]) -> Any:
    """Return the result of a call whose function returns immediately. Raises Breach if there is no result in time."""
    if not isinstance(future, Future):
        raise Breach(f"submit() returned a {type(future).__name__}, not a concurrent.futures.Future")
    try:
        return future.result(SECONDS)
    except TimeoutError:
        raise Breach(f"a call had not ended after {SECONDS:g} s") from None


@rule("accept exclusive and folder by position, and options as keywords with defaults")
def signature(subject: ExecutorSubject) -> None:
    """The constructor accepts exclusive and folder by position, and options by keyword; each option has a default."""
    check_constructor(subject.cls, 2, seeded=False)


@rule("set jobs and batch to positive ints, and one_per_machine and ends_workers to bools")
def attributes(subject: ExecutorSubject) -> None:
    """Its attributes, which tell a study how to use it, have valid values."""
    with subject.started() as executor:
        for name in ("jobs", "batch"):
            value = getattr(executor, name)
            if type(value) is not int or value < 1:
                raise Breach(f"{name} is {value!r}; it must be a positive int")
        for name in ("one_per_machine", "ends_workers"):
            if type(getattr(executor, name)) is not bool:
                raise Breach(f"{name} is {getattr(executor, name)!r}; it must be a bool")


@rule("call fn(*args, **kwargs), and set the future's result to what it returns", ["attributes"])
def results(subject: ExecutorSubject) -> None:
    """Each future receives the result of its own call."""
    with subject.started() as executor:
        futures = [executor.submit(_joined, number, word="a") for number in range(3 * min(executor.jobs, 4))]
        for number, future in enumerate(futures):
            if (result := _result(future)) != (wanted := _joined(number, word="a")):
                raise Breach(f"call {number} returned {result!r} instead of {wanted!r}")


def _joined(number: int, *, word: str) -> str:
    return f"{number} {word}"


@rule("set the future's exception, and keep the worker", ["results"])
def errors(subject: ExecutorSubject) -> None:
    """If a call raises an error, its future raises the same error, and later calls succeed."""
    with subject.started() as executor:
        try:
            result = _result(executor.submit(_failing, "why"))
        except LookupError as error:
            if "why" not in str(error):
                raise Breach(f"the call raised LookupError('why'), but its future raised {described(error)}") from None
        except Breach:
            raise
        except Exception as error:
            raise Breach(f"the call raised LookupError('why'), but its future raised {described(error)}") from None
        else:
            raise Breach(f"the call raised LookupError('why'), but its future returned {result!r}")
        if _result(executor.submit(_joined, 1, word="a")) != "1 a":
            raise Breach("the next call failed")


def _failing(text: str) -> None:
    raise LookupError(text)


@rule("fail the future of a worker that is lost, and start another worker", ["errors"])
def lost_workers(subject: ExecutorSubject) -> None:
    """If a process that performs a call dies, the call's future raises an error, and later calls succeed."""
    if subject.is_here:
        raise NotApplicable("it performs calls in this process")
    with subject.started() as executor:
        try:
            result: Any = executor.submit(os._exit, 3).result(SECONDS)
        except TimeoutError:
            raise Breach(f"the future of a call whose process died had not ended after {SECONDS:g} s") from None
        except Exception:
            pass
        else:
            raise Breach(f"the call's process died, but its future returned {result!r}")
        try:
            _result(executor.submit(_joined, 1, word="a"))
        except Breach:
            raise
        except Exception as error:
            raise Breach(f"after its process died, the next call raised {described(error)}") from None


@rule("let the study submit exclusive calls one by one, or reserve a machine for each of them", ["results"])
def exclusive(subject: ExecutorSubject) -> None:
    """If one_per_machine is true, exclusive calls on one machine do not overlap."""
    with subject.started(exclusive=True) as executor:
        if not executor.one_per_machine:
            raise NotApplicable("the study submits exclusive calls one by one")
        calls = sorted(_result(future) for future in [executor.submit(_timed, 0.2) for _ in range(3)])
    for (host, _, end), (other, start, _) in pairwise(calls):
        if host == other and start < end:
            raise Breach(f"two exclusive calls ran on {host} at the same time")


def _timed(seconds: float) -> tuple[str, float, float]:
    start = time.time()
    time.sleep(seconds)
    return socket.gethostname(), start, time.time()


@rule("let shutdown(wait=True) return only after the last call", ["results"])
def shuts_down(subject: ExecutorSubject) -> None:
    """shutdown completes all calls, and no call is accepted afterwards."""
    with ScratchFolder() as folder:
        executor = subject.start(Path(folder))
        futures = [executor.submit(_timed, 0.1) for _ in range(2)]
        executor.shutdown()
        if not all(future.done() for future in futures):
            raise Breach("shutdown() returned before the calls had ended")
        for future in futures:
            _result(future)
        try:
            executor.submit(_joined, 1, word="a")
        except Exception:
            return
        raise Breach("submit() accepted a call after shutdown()")


@rule("end or cancel every call, so that no future stays pending", ["results"])
def kills_workers(subject: ExecutorSubject) -> None:
    """After kill_workers, every future ends with a result or an error, or is cancelled."""
    with ScratchFolder() as folder:
        executor = subject.start(Path(folder))
        futures = [executor.submit(_timed, 0.5) for _ in range(2 * min(executor.jobs, 4) + 1)]
        executor.kill_workers()
        end = time.monotonic() + PENDING
        while (pending := sum(not future.done() for future in futures)) and time.monotonic() < end:
            time.sleep(0.05)
        if pending:
            raise Breach(f"{pending} of {len(futures)} calls had not ended {PENDING:g} s after kill_workers()")


@rule("call fn as it is, in a process with the same packages and files", ["results"])
def same_study(subject: ExecutorSubject) -> None:
    """A study has the same trials with and without the executor."""
    from ..run.study import Study  # imported here because this takes long

    with ScratchFolder() as folder, subject.started() as executor:
        study = Study.from_dict(STUDY)
        plain = study.run(Path(folder, "plain"), progress=False)
        found = study.run(Path(folder, "executed"), executor=executor, progress=False)
        for one, other in zip(plain, found, strict=True):
            first, second = ([(trial.config, trial.cost) for trial in run.trials] for run in (one, other))
            if first != second:
                raise Breach(f"the run with seed {one.log.header.seed} has different trials")


RULES = (
    signature, attributes, results, errors, lost_workers, exclusive, shuts_down, kills_workers, same_study,
)  # fmt: skip


def executor_checks(plugin: PluginSpec, *, seed: int = 0) -> list[Check]:
    """Return the checks for an executor, in order. Each check starts it and shuts it down.

    Args:
        plugin: The executor.
        seed: Ignored, since executors draw nothing at random.

    Raises:
        SearchlabError: If the plug-in or an option is unknown.
    """
    named, cls = EXECUTORS.named(plugin)
    EXECUTORS.check_options(named.name, cls, named.options)
    subject = ExecutorSubject(named, cls, seed, 120.0)
    return [Check(rule, subject) for rule in RULES]
