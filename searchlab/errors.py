"""The errors that searchlab raises on purpose."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path


class SearchlabError(Exception):
    """Invalid input. The message says what is wrong, with which value, and what to do. The CLI exits with 2.

    Example:
        >>> import searchlab
        >>> try:
        ...     searchlab.parse_workload("gem:8x8x8")
        ... except searchlab.SearchlabError as error:
        ...     print(error)
        unknown workload 'gem:8x8x8'; did you mean 'gemm'?
    """

    exit_code = 2


class RunEnded(SearchlabError):
    """A plug-in tried to end the process in the middle of a run; the CLI exits 1."""

    exit_code = 1


class SearchlabWarning(UserWarning):
    """Something a user should know about a run that goes on nevertheless. The CLI prints it as one sentence."""


class InvalidConfig(SearchlabError):
    """A config that is not in its space, or has no legal program. The message says why.

    Example:
        >>> import searchlab
        >>> space = searchlab.load_log("gemm.jsonl").space
        >>> try:
        ...     space.knobs(searchlab.Config({"tile_i": (5, 5, 5)}))
        ... except searchlab.InvalidConfig:
        ...     print("not in the space")
        not in the space
    """


class UnsupportedWorkload(SearchlabError):
    """A space has no program for a workload or a target. The message names those that it supports.

    Example:
        >>> import searchlab
        >>> from searchlab_spaces.guided.gemm import GuidedGemm
        >>> try:
        ...     GuidedGemm(searchlab.conv2d(1, 8, 8, 8, 8, 3, 3), searchlab.resolve_target("znver4"))
        ... except searchlab.UnsupportedWorkload:
        ...     print("GuidedGemm is for gemm")
        GuidedGemm is for gemm
    """


class UnsupportedSpace(SearchlabError):
    """A policy cannot search a space. The message says why, and what to use instead.

    Example:
        >>> import searchlab
        >>> table = {"kind": "table", "path": "gemm.jsonl"}
        >>> given = dict(space="knob-template", policy="metaschedule", measure=table, log="b.jsonl", trials=3)
        >>> try:
        ...     searchlab.tune("gemm:32x32x32", **given)
        ... except searchlab.UnsupportedSpace:
        ...     print("metaschedule searches traces")
        metaschedule searches traces
    """


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
