"""Rules and checks for plug-ins, the functions that run them, and helpers for observing a plug-in."""

from __future__ import annotations

import inspect
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from types import FrameType
from typing import Any, Literal

import numpy as np

from ..errors import SearchlabError, describe, did_you_mean
from ..options import checks_arguments
from ..plugins import Plugin, find_error_location, find_raise_location, search_path


class CheckFailed(AssertionError):
    """Raised if a plug-in breaks a rule. The text states what was expected, what happened, and the likely fix."""


class Breach(Exception):
    """Raised by a rule's body. The text states what happened; ``fix`` may replace the rule's own fix."""

    def __init__(self, happened: str, fix: str = "") -> None:
        super().__init__(happened)
        self.fix = fix


class NotApplicable(Exception):
    """Raised by a check that does not apply to the plug-in; the text states the reason."""


class Refused(SearchlabError):
    """Raised if a plug-in rejects the space, the workload or the options with which it is checked."""


class OutOfTime(BaseException):
    """Raised inside a check that takes too long; an ``except Exception`` in a plug-in cannot catch it."""


TIME_LIMIT = 120.0
"""The default time limit of each check, in seconds."""


@dataclass(frozen=True)
class Subject:
    """A plug-in to check, with everything needed to instantiate it in this or another process.

    Attributes:
        time_limit: The time limit of each check, in seconds.
    """

    plugin: Plugin
    cls: type[Any]

    seed: int
    time_limit: float

    def __getstate__(self) -> dict[str, Any]:
        # Another process does not receive cached instances or runs.
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def make(self, contract: type[Any], rejection: str, *args: Any, **kwargs: Any) -> Any:
        """Instantiate the plug-in.

        Raises:
            Refused: If the plug-in rejects its arguments; the message begins with ``rejection``.
            Breach: If the instance does not derive from ``contract``.
        """
        try:
            instance = self.cls(*args, **kwargs)
        except SearchlabError as error:
            raise Refused(f"{rejection}: {error}") from error
        if not isinstance(instance, contract):
            fix = f"derive the class from searchlab.{contract.__name__}"
            raise Breach(f"{self.plugin.name} creates a {type(instance).__name__}", fix)
        return instance


@dataclass(frozen=True)
class Rule:
    """A rule of a contract. It is checked only if all rules in ``needs`` hold, since it is meaningless otherwise."""

    name: str
    expected: str
    fix: str
    needs: tuple[str, ...]
    body: Callable[[Any], None]


def rule(fix: str, needs: Sequence[str] = ()) -> Callable[[Callable[[Any], None]], Rule]:
    """Return a decorator that makes a rule from a function, which accepts a subject and may raise :class:`Breach`.

    The function's docstring states the expected behaviour.
    """

    def make(body: Callable[[Any], None]) -> Rule:
        expected = " ".join(inspect.cleandoc(body.__doc__ or "").split()).removesuffix(".")
        return Rule(body.__name__.replace("_", "-"), expected, fix, tuple(needs), body)

    return make


def rules_in(module: str) -> tuple[Rule, ...]:
    """Return the rules that a module defines, in order. A rule must follow those that it needs."""
    return tuple(value for value in vars(sys.modules[module]).values() if isinstance(value, Rule))


@dataclass(frozen=True)
class Check:
    """A rule, and a plug-in that must obey it.

    Calling the check raises CheckFailed if the rule is broken, NotApplicable if it does not apply, and SearchlabError
    if the plug-in cannot be instantiated for the check.
    """

    rule: Rule
    subject: Subject

    def __repr__(self) -> str:
        return f"<Check {self.name} of {self.subject.cls.__qualname__}>"

    @property
    def name(self) -> str:
        return self.rule.name

    def __call__(self) -> None:
        try:
            with time_limit(self.subject.time_limit):
                self.rule.body(self.subject)
        except Breach as breach:
            raise self._failed(str(breach), breach.fix) from None
        except (NotApplicable, Refused):
            raise
        except OutOfTime as error:
            line = innermost(error, self.subject.cls)
            raise self._failed(f"it was still running after {self.subject.time_limit:g} s, at {line}") from None
        except Exception as error:  # a plug-in may raise anything
            raise self._failed(f"{describe(error)}, raised at {innermost(error, self.subject.cls)}") from error

    def _failed(self, happened: str, fix: str = "") -> CheckFailed:
        lines = (f"expected: {self.rule.expected}", f"happened: {happened}", f"likely fix: {fix or self.rule.fix}")
        return CheckFailed("\n".join(lines))


@dataclass(frozen=True)
class CheckResult:
    """The result of a check; if it did not pass, ``text`` states the reason."""

    name: str
    status: Literal["pass", "FAIL", "n/a", "not run"]
    text: str = ""


def run_checks(checks: Iterable[Check]) -> Iterator[CheckResult]:
    """Run checks in order and yield their results. A check is not run if it needs one that failed or was not run."""
    failed: set[str] = set()  # or not run
    for check in checks:
        if broken_needs := [name for name in check.rule.needs if name in failed]:
            failed.add(check.name)
            yield CheckResult(check.name, "not run", f"it requires {broken_needs[0]!r} to pass")
            continue
        try:
            check()
        except CheckFailed as failure:
            failed.add(check.name)
            yield CheckResult(check.name, "FAIL", str(failure))
        except NotApplicable as reason:
            yield CheckResult(check.name, "n/a", str(reason))
        else:
            yield CheckResult(check.name, "pass")


@checks_arguments
def select(checks: Iterable[Check], names: Sequence[str]) -> list[Check]:
    """Return the checks called ``names``, or all if ``names`` is empty. Raises SearchlabError for an unknown name."""
    checks_by_name = {check.name: check for check in checks}
    for name in names:
        if name not in checks_by_name:
            raise SearchlabError(f"unknown check {name!r}{did_you_mean(name, checks_by_name)}")
    return [check for name, check in checks_by_name.items() if not names or name in names]


def innermost(error: BaseException, cls: type[Any]) -> str:
    """Return the ``file:line`` of the innermost call in the code of ``cls``, or of the innermost call in any code."""
    return find_error_location(error, cls) or find_raise_location(error)


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise OutOfTime in the body after ``seconds``. Only the main thread can be interrupted in this way."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise OutOfTime

    handler = signal.signal(signal.SIGALRM, interrupt)
    timer = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, handler)


# --- observing a plug-in -----------------------------------------------------------------------------


def check_constructor(cls: type[Any], positional: int, *, seeded: bool) -> None:
    """Raise Breach unless a constructor has ``positional`` parameters by position, then named options with defaults.

    ``seed`` (required if ``seeded``) and ``cost_model`` need no defaults.
    """
    parameters = list(inspect.signature(cls).parameters.values())
    by_name = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    for parameter in parameters[:positional]:
        if parameter.kind not in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD):
            raise Breach(f"its constructor must accept {parameter.name!r} by position, but accepts it as {parameter}")
    if len(parameters) < positional:
        raise Breach(f"its constructor accepts too few arguments: {inspect.signature(cls)}")
    for parameter in parameters[positional:]:
        if parameter.kind not in by_name:
            raise Breach(f"its constructor accepts {parameter}, so a misspelled option would be silently ignored")
        if parameter.default is inspect.Parameter.empty and parameter.name not in ("seed", "cost_model"):
            raise Breach(f"its option {parameter.name!r} has no default")
    if seeded and "seed" not in [parameter.name for parameter in parameters]:
        raise Breach("its constructor does not accept 'seed'")


@contextmanager
def global_streams(seed: int, *, untouched: bool = False) -> Iterator[None]:
    """Seed the global random streams of Python and NumPy, and restore them at the end.

    Raises Breach if they are to stay ``untouched``, but the body draws from one or seeds it.
    """
    before = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed)
    seeded_states = _stream_states()
    try:
        yield
        changed_streams = [name for name, state in _stream_states().items() if state != seeded_states[name]]
        if untouched and changed_streams:
            raise Breach(f"it drew from or seeded the global random stream of {changed_streams[0]}")
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])


def _stream_states() -> dict[str, object]:
    return {"random": random.getstate(), "numpy.random": repr(np.random.get_state())}


def in_two_processes(function: Callable[[Any], Any], argument: Any) -> tuple[Any, Any]:
    """Return ``function(argument)`` as JSON data, computed once in this process and once in another.

    The other process uses a different hash seed and a single thread. Raises Breach if that process fails.
    """
    import cloudpickle

    code = (
        "import cloudpickle, json, sys\n"
        "function, argument = cloudpickle.load(sys.stdin.buffer)\n"
        "print('\\n' + json.dumps(function(argument)))\n"
    )
    hash_seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    settings = {"PYTHONHASHSEED": hash_seed, "OMP_NUM_THREADS": "1", "TVM_NUM_THREADS": "1"}
    process = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env=os.environ | {"PYTHONPATH": search_path()} | settings,
        input=cloudpickle.dumps((function, argument)),
        capture_output=True,
        check=False,
    )
    if process.returncode:
        lines = process.stderr.decode(errors="replace").strip().splitlines() or ["no message"]
        raise Breach(f"in a new process, it ended with exit code {process.returncode}: {lines[-1]}")
    output = json.loads(process.stdout.decode().strip().rpartition("\n")[2])
    return json.loads(json.dumps(function(argument))), output


@contextmanager
def other_clock(cls: type[Any]) -> Iterator[None]:
    """Make the clocks of :mod:`time` run a thousand times as fast, even where a plug-in has imported them by name."""

    def faster(clock: Callable[[], float], offset: float) -> Callable[[], float]:
        start = clock()
        return lambda: start + offset + (clock() - start) * 1000

    faster_by_id: dict[int, Callable[[], float]] = {}
    for name in ("time", "monotonic", "perf_counter", "process_time"):
        for clock, offset in ((getattr(time, name), 1e6), (getattr(time, f"{name}_ns"), 10**15)):
            faster_by_id[id(clock)] = faster(clock, offset)
    package = cls.__module__.partition(".")[0]
    modules = [time, *(module for name, module in list(sys.modules.items()) if name.partition(".")[0] == package)]
    clocks = [
        (module, key, value) for module in modules for key, value in vars(module).items() if id(value) in faster_by_id
    ]
    for module, key, value in clocks:
        setattr(module, key, faster_by_id[id(value)])
    try:
        yield
    finally:
        for module, key, value in clocks:
            setattr(module, key, value)
