"""One named check of a plug-in: how it is run, and what it says where it fails."""

from __future__ import annotations

import inspect
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, Literal, Protocol

from ..errors import SearchlabError, described, did_you_mean


class CheckFailed(AssertionError):
    """A plug-in broke a rule; the text says what was expected, what happened and where, and the likely fix."""


class Breach(Exception):
    """Raised by the body of a rule: what happened, and the likely fix if the rule's own is less likely."""

    def __init__(self, happened: str, fix: str = "") -> None:
        super().__init__(happened)
        self.fix = fix


class NotApplicable(Exception):
    """Raised by a check that does not apply to this plug-in; the text says why."""


class Refused(SearchlabError):
    """A plug-in that does not take the space, workload or options it is to be checked with."""


class OutOfTime(BaseException):
    """Raised in the middle of a check that does not end; no ``except Exception`` of a plug-in may stop it."""


class Subject(Protocol):
    """A plug-in that is checked, with all that it needs to be started."""

    @property
    def cls(self) -> type[Any]: ...

    @property
    def time_limit(self) -> float:
        """Seconds that one check may take."""


@dataclass(frozen=True)
class Rule:
    """One rule of a contract. It is checked only if all rules in ``needs`` hold: without these it means nothing."""

    name: str
    expected: str
    fix: str
    needs: tuple[str, ...]
    body: Callable[[Any], None]


def rule(fix: str, needs: Sequence[str] = ()) -> Callable[[Callable[[Any], None]], Rule]:
    """Make a rule of a function of the subject that raises :class:`Breach`; its docstring is what is expected."""

    def make(body: Callable[[Any], None]) -> Rule:
        expected = " ".join(inspect.cleandoc(body.__doc__ or "").split()).removesuffix(".")
        return Rule(body.__name__.replace("_", "-"), expected, fix, tuple(needs), body)

    return make


@dataclass(frozen=True)
class Check:
    """A rule and the plug-in that must keep it. Called, it raises CheckFailed if the rule is broken."""

    rule: Rule
    subject: Subject

    def __repr__(self) -> str:
        return f"<Check {self.name} of {self.subject.cls.__qualname__}>"

    @property
    def name(self) -> str:
        return self.rule.name

    def __call__(self) -> None:
        """Raises CheckFailed, NotApplicable, or SearchlabError for a plug-in that refuses to start."""
        try:
            with time_limit(self.subject.time_limit):
                self.rule.body(self.subject)
        except Breach as breach:
            raise self._failed(str(breach), breach.fix) from None
        except (NotApplicable, Refused):
            raise
        except OutOfTime as error:
            where = innermost(error, self.subject.cls)
            raise self._failed(f"it was still running after {self.subject.time_limit:g} s, at {where}") from None
        except Exception as error:  # a plug-in may raise anything
            raise self._failed(f"{described(error)}, raised at {innermost(error, self.subject.cls)}") from error

    def _failed(self, happened: str, fix: str = "") -> CheckFailed:
        lines = (f"expected: {self.rule.expected}", f"happened: {happened}", f"likely fix: {fix or self.rule.fix}")
        return CheckFailed("\n".join(lines))


@dataclass(frozen=True)
class Outcome:
    """How one check went; ``text`` says why it did not pass."""

    name: str
    status: Literal["pass", "FAIL", "n/a", "not run"]
    text: str = ""


def run_checks(checks: Iterable[Check]) -> Iterator[Outcome]:
    """The outcome of each check, one after another. A check is not run if it needs another that failed."""
    lost: set[str] = set()
    for check in checks:
        if missing := [name for name in check.rule.needs if name in lost]:
            lost.add(check.name)
            yield Outcome(check.name, "not run", f"it needs {missing[0]!r} to hold")
            continue
        try:
            check()
        except CheckFailed as failure:
            lost.add(check.name)
            yield Outcome(check.name, "FAIL", str(failure))
        except NotApplicable as reason:
            yield Outcome(check.name, "n/a", str(reason))
        else:
            yield Outcome(check.name, "pass")


def selected(checks: Iterable[Check], names: Sequence[str]) -> list[Check]:
    """The checks that ``names`` names, or all of them if it is empty. Raises SearchlabError for an unknown name."""
    known = {check.name: check for check in checks}
    for name in names:
        if name not in known:
            raise SearchlabError(f"there is no check {name!r}{did_you_mean(name, known)}")
    return [check for name, check in known.items() if not names or name in names]


# --- what a failure says ----------------------------------------------------------------------------


def innermost(error: BaseException, cls: type[Any]) -> str:
    """``file:line`` of the innermost frame in the package of ``cls`` or of its bases; else of the innermost frame."""
    homes = {base.__module__.partition(".")[0] for base in cls.__mro__} - {"builtins", "abc", "searchlab", "typing"}
    where = "no line that is known"
    ours = False
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        module = str(trace.tb_frame.f_globals.get("__name__", ""))
        in_plugin = module.partition(".")[0] in homes and code.co_filename != __file__
        if in_plugin or not ours:
            where = f"{code.co_filename}:{trace.tb_lineno}"
        ours = ours or in_plugin
        trace = trace.tb_next
    return where


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise OutOfTime in this thread after ``seconds``, if it is the main thread: only that can be interrupted."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:
        raise OutOfTime

    handler = signal.signal(signal.SIGALRM, ring)
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, left, interval)
        signal.signal(signal.SIGALRM, handler)
