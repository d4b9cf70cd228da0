"""The errors that searchlab raises on purpose."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path


class SearchlabError(Exception):
    """Bad input. Its text says what was wrong, with what value, and what to do; the CLI prints it and exits 2."""

    exit_code = 2


class RunEnded(SearchlabError):
    """A plug-in tried to end the process in the middle of a run; the CLI exits 1."""

    exit_code = 1


class SearchlabWarning(UserWarning):
    """A fact that a user should know of a run that still goes on; the CLI prints it as one sentence."""


class InvalidConfig(SearchlabError):
    """A config that is not in its space, or has no legal program; the text says why."""


class UnsupportedWorkload(SearchlabError):
    """A space has no program for this workload or target; the text says which ones it takes."""


class UnsupportedSpace(SearchlabError):
    """A policy cannot search this space; the text says why, and what to use instead."""


class RunsFailed(SearchlabError):
    """Some runs of a study failed, the others are complete; the CLI exits 1.

    reasons: the log of each run that failed -> why, in the order of the runs.
    """

    exit_code = 1

    def __init__(self, reasons: Mapping[Path, str], count: int) -> None:
        self.reasons = reasons
        alike: dict[str, list[Path]] = {}
        for log, reason in reasons.items():
            alike.setdefault(reason, []).append(log)
        said = [
            f"{logs[0]}{f' and {len(logs) - 1} more' if len(logs) > 1 else ''}: {reason}"
            for reason, logs in list(alike.items())[:SHOWN]
        ]
        if len(alike) > SHOWN:
            said.append(f"{len(alike) - SHOWN} other reasons")
        super().__init__(f"{len(reasons)} of {count} runs failed. {'; '.join(said)}")


SHOWN = 5
"""How many reasons are told, of :class:`RunsFailed` and of logs that are left out."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``"; did you mean 'grid'?"`` if a ``known`` word is near, else a list of at most twelve known words."""
    names = sorted(known)
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if near:
        return f"; did you mean {near[0]!r}?"
    if not names:
        return "; none is known"
    return f"; known: {', '.join(names[:12])}" + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def first_line(error: BaseException) -> str:
    """The first line of the text of ``error``; the name of its type if it has no text."""
    return _lines(error)[0]


def last_line(error: BaseException) -> str:
    """The last line of the text of ``error``, where TVM and compilers name the cause; its type if it has no text."""
    return _lines(error)[-1]


LONGEST_TEXT = 4000
"""The most characters that are kept of the text of a failure."""


def cut(text: str, longest: int = LONGEST_TEXT) -> str:
    """``text``; or its beginning and its end, ``longest`` characters in all, with the length that it had."""
    if len(text) <= longest:
        return text
    mark = f" ... [{len(text)} characters, cut] ... "
    end = longest // 4
    return text[: longest - end - len(mark)] + mark + text[-end:]


def text_of(error: BaseException) -> str:
    """``str(error)``, fit for UTF-8; a sentence if the error of a plug-in cannot even be printed."""
    try:
        return encodable(str(error))
    except Exception as other:
        return f"its text cannot be read, since __str__ raises {type(other).__name__}"


def described(error: BaseException) -> str:
    """The name of the type of ``error``, and the first line of its text: ``"ValueError: no such file"``."""
    kind, line = type(error).__name__, first_line(error)
    return kind if line == kind else f"{kind}: {line}"


def encodable(text: str) -> str:
    """``text`` from outside, which UTF-8 can encode: a lone surrogate becomes the characters ``\\ud800``."""
    return text.encode("utf-8", "backslashreplace").decode()


def _lines(error: BaseException) -> list[str]:
    return [line.rstrip() for line in cut(text_of(error)).strip().splitlines()] or [type(error).__name__]
