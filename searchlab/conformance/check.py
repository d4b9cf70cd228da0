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
from functools import cached_property
from types import FrameType
from typing import Any, ClassVar, Literal

import numpy as np

from ..errors import SearchlabError, describe, did_you_mean
from ..foreign_code import find_error_location, find_raise_location
from ..options import checks_arguments
from ..plugins import Plugin, search_path


class CheckFailed(AssertionError):
    """Raised if a plug-in breaks a rule. The text states what was expected, what happened, and the likely fix."""


class Breach(Exception):
    """Raised if a rule is broken. The text states what happened; ``fix`` may replace the rule's own fix."""

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
        result_name: The name of one of its results in error messages.
    """

    result_name: ClassVar[str] = "result"

    plugin: Plugin
    plugin_class: type[Any]

    seed: int
    time_limit: float

    def __getstate__(self) -> dict[str, Any]:
        # Another process does not receive cached instances or runs.
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def compute_results(self) -> list[Any]:
        """Return what new instances compute, as JSON data. Only the plug-in's options and seed may determine it."""
        raise NotImplementedError

    def compute_with_seeded_streams(self) -> list[Any]:
        """Return :meth:`compute_results` with seeded global streams, so that a plug-in that draws from them repeats."""
        with seed_global_streams(0):
            return self.compute_results()

    @cached_property
    def results(self) -> list[Any]:
        """The results of a normal run."""
        return self.compute_with_seeded_streams()

    def require_same(self, expected_results: list[Any], results: list[Any], condition: str) -> None:
        """Raise Breach, which states the ``condition``, if ``results`` differ from the ``expected_results``."""
        for index, (expected, result) in enumerate(zip(expected_results, results, strict=False)):
            if result != expected and (result == result or expected == expected):  # NaN differs from itself
                raise Breach(f"{condition}, {self.result_name} {index} is {result} instead of {expected}")
        if len(results) != len(expected_results):
            raise Breach(
                f"{condition}, there are {len(results)} {self.result_name}s instead of {len(expected_results)}"
            )

    def require_private_randomness(self) -> None:
        """Raise Breach if the plug-in uses the global random streams of Python and NumPy."""
        with seed_global_streams(1, must_be_untouched=True):
            results = self.compute_results()
        self.require_same(self.results, results, "with different global random streams")

    def require_same_in_every_process(self) -> None:
        """Raise Breach if a process with another hash seed and a single thread computes different results."""
        results, other_results = run_in_two_processes(type(self).compute_with_seeded_streams, self)
        self.require_same(results, other_results, "in another process, on one thread")

    def instantiate(self, contract: type[Any], rejection_text: str, *args: Any, **kwargs: Any) -> Any:
        """Instantiate the plug-in.

        Raises:
            Refused: If the plug-in rejects its arguments; the message begins with ``rejection_text``.
            Breach: If the instance does not derive from ``contract``.
        """
        try:
            instance = self.plugin_class(*args, **kwargs)
        except SearchlabError as error:
            raise Refused(f"{rejection_text}: {error}") from error
        if not isinstance(instance, contract):
            fix = f"derive the class from searchlab.{contract.__name__}"
            raise Breach(f"{self.plugin.name} creates a {type(instance).__name__}", fix)
        return instance


@dataclass(frozen=True)
class Rule:
    """A rule of a contract.

    Attributes:
        expected_behaviour: What the rule expects of a plug-in, as a sentence without a full stop.
        prerequisites: The names of the rules without which this one is meaningless; it is checked only if they hold.
        check_function: A function that accepts a subject, and raises :class:`Breach` if it breaks the rule.
    """

    name: str
    expected_behaviour: str
    fix: str
    prerequisites: tuple[str, ...]
    check_function: Callable[[Any], None]


def rule(fix: str, prerequisites: Sequence[str] = (), *, name: str = "") -> Callable[[Callable[[Any], None]], Rule]:
    """Return a decorator that makes a rule from a function, which accepts a subject and may raise :class:`Breach`.

    The function ``check_same_seed`` checks the rule ``same-seed``, unless a different ``name`` is specified. Its
    docstring states the expected behaviour.
    """

    def make_rule(check_function: Callable[[Any], None]) -> Rule:
        rule_name = name or check_function.__name__.removeprefix("check_").replace("_", "-")
        expected_behaviour = " ".join(inspect.cleandoc(check_function.__doc__ or "").split()).removesuffix(".")
        return Rule(rule_name, expected_behaviour, fix, tuple(prerequisites), check_function)

    return make_rule


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
        return f"<Check {self.name} of {self.subject.plugin_class.__qualname__}>"

    @property
    def name(self) -> str:
        return self.rule.name

    def __call__(self) -> None:
        try:
            with limit_time(self.subject.time_limit):
                self.rule.check_function(self.subject)
        except Breach as breach:
            raise self._make_failure(str(breach), breach.fix) from None
        except (NotApplicable, Refused):
            raise
        except OutOfTime as error:
            line = find_innermost_line(error, self.subject.plugin_class)
            raise self._make_failure(f"it was still running after {self.subject.time_limit:g} s, at {line}") from None
        except Exception as error:  # a plug-in may raise anything
            raise self._make_failure(
                f"{describe(error)}, raised at {find_innermost_line(error, self.subject.plugin_class)}"
            ) from error

    def _make_failure(self, happened: str, fix: str = "") -> CheckFailed:
        lines = (
            f"expected: {self.rule.expected_behaviour}",
            f"happened: {happened}",
            f"likely fix: {fix or self.rule.fix}",
        )
        return CheckFailed("\n".join(lines))


@dataclass(frozen=True)
class CheckResult:
    """The result of a check; if it did not pass, ``text`` states the reason."""

    name: str
    status: Literal["pass", "FAIL", "n/a", "not run"]
    text: str = ""


def run_checks(checks: Iterable[Check]) -> Iterator[CheckResult]:
    """Run checks in order and yield their results. A check is not run if it needs one that failed or was not run."""
    failed_names: set[str] = set()  # or not run
    for check in checks:
        if failed_prerequisites := [name for name in check.rule.prerequisites if name in failed_names]:
            failed_names.add(check.name)
            yield CheckResult(check.name, "not run", f"it requires {failed_prerequisites[0]!r} to pass")
            continue
        try:
            check()
        except CheckFailed as failure:
            failed_names.add(check.name)
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


def find_innermost_line(error: BaseException, cls: type[Any]) -> str:
    """Return the ``file:line`` of the innermost call in the code of ``cls``, or of the innermost call in any code."""
    return find_error_location(error, cls) or find_raise_location(error)


@contextmanager
def limit_time(seconds: float) -> Iterator[None]:
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


def check_constructor(cls: type[Any], positional_count: int, *, requires_seed: bool) -> None:
    """Raise Breach unless a constructor has ``positional_count`` positional parameters, then options with defaults.

    ``seed`` (needed if ``requires_seed``) and ``cost_model`` need no defaults.
    """
    parameters = list(inspect.signature(cls).parameters.values())
    named_kinds = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    for parameter in parameters[:positional_count]:
        if parameter.kind not in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD):
            raise Breach(f"its constructor must accept {parameter.name!r} by position, but accepts it as {parameter}")
    if len(parameters) < positional_count:
        raise Breach(f"its constructor accepts too few arguments: {inspect.signature(cls)}")
    for parameter in parameters[positional_count:]:
        if parameter.kind not in named_kinds:
            raise Breach(f"its constructor accepts {parameter}, so a misspelled option would be silently ignored")
        if parameter.default is inspect.Parameter.empty and parameter.name not in ("seed", "cost_model"):
            raise Breach(f"its option {parameter.name!r} has no default")
    if requires_seed and "seed" not in [parameter.name for parameter in parameters]:
        raise Breach("its constructor does not accept 'seed'")


@contextmanager
def seed_global_streams(seed: int, *, must_be_untouched: bool = False) -> Iterator[None]:
    """Seed the global random streams of Python and NumPy, and restore them at the end.

    Raises Breach if they ``must_be_untouched``, but the body draws from one or seeds it.
    """
    python_state, numpy_state = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed)
    states_before = _get_stream_states()
    try:
        yield
        changed_streams = [name for name, state in _get_stream_states().items() if state != states_before[name]]
        if must_be_untouched and changed_streams:
            raise Breach(f"it drew from or seeded the global random stream of {changed_streams[0]}")
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)


def _get_stream_states() -> dict[str, object]:
    return {"random": random.getstate(), "numpy.random": repr(np.random.get_state())}


def run_in_two_processes(function: Callable[[Any], Any], argument: Any) -> tuple[Any, Any]:
    """Return ``function(argument)`` as JSON data, computed once in this process and once in another.

    The other process uses a different hash seed and a single thread. Raises Breach if that process fails.
    """
    import cloudpickle

    script = (
        "import cloudpickle, json, sys\n"
        "function, argument = cloudpickle.load(sys.stdin.buffer)\n"
        "print('\\n' + json.dumps(function(argument)))\n"
    )
    hash_seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    environment = {"PYTHONHASHSEED": hash_seed, "OMP_NUM_THREADS": "1", "TVM_NUM_THREADS": "1"}
    process = subprocess.run(
        [sys.executable, "-P", "-c", script],
        env=os.environ | {"PYTHONPATH": search_path()} | environment,
        input=cloudpickle.dumps((function, argument)),
        capture_output=True,
        check=False,
    )
    if process.returncode:
        error_lines = process.stderr.decode(errors="replace").strip().splitlines() or ["no message"]
        raise Breach(f"in a new process, it ended with exit code {process.returncode}: {error_lines[-1]}")
    other_result = json.loads(process.stdout.decode().strip().rpartition("\n")[2])
    return json.loads(json.dumps(function(argument))), other_result


@contextmanager
def accelerate_clock(cls: type[Any]) -> Iterator[None]:
    """Make the clocks of :mod:`time` run a thousand times as fast, even where a plug-in has imported them by name."""

    def make_fast_clock(clock: Callable[[], float], offset: float) -> Callable[[], float]:
        start = clock()
        return lambda: start + offset + (clock() - start) * 1000

    fast_clocks_by_id: dict[int, Callable[[], float]] = {}
    for name in ("time", "monotonic", "perf_counter", "process_time"):
        for clock, offset in ((getattr(time, name), 1e6), (getattr(time, f"{name}_ns"), 10**15)):
            fast_clocks_by_id[id(clock)] = make_fast_clock(clock, offset)
    package = cls.__module__.partition(".")[0]
    modules = [time, *(module for name, module in list(sys.modules.items()) if name.partition(".")[0] == package)]
    module_clocks = [
        (module, name, value)
        for module in modules
        for name, value in vars(module).items()
        if id(value) in fast_clocks_by_id
    ]
    for module, name, value in module_clocks:
        setattr(module, name, fast_clocks_by_id[id(value)])
    try:
        yield
    finally:
        for module, name, value in module_clocks:
            setattr(module, name, value)
