"""The errors that searchlab raises, and helpers for their messages."""

from __future__ import annotations

import difflib
import sys
import sysconfig
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType


class SearchlabError(Exception):
    """Raised for invalid input. The message states the problem, the value and a remedy. The CLI exits with code 2.

    Example:
        >>> import searchlab
        >>> try:
        ...     searchlab.parse_workload("gem:8x8x8")
        ... except searchlab.SearchlabError as error:
        ...     print(error)
        unknown workload 'gem:8x8x8'; did you mean 'gemm'?
    """

    exit_code = 2


class SearchlabWarning(UserWarning):
    """Issued for a condition that users should know about but that does not stop a run. The CLI prints one line."""


def warn(text: str) -> None:
    """Issue a SearchlabWarning that points to the innermost line outside searchlab and the standard library."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_internal(frame.f_code.co_filename):
        frame = frame.f_back
    frame = frame or sys._getframe(1)
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    module = frame.f_globals.get("__name__")
    warnings.warn_explicit(text, SearchlabWarning, frame.f_code.co_filename, frame.f_lineno, module, registry)


def _is_internal(file_name: str) -> bool:
    """Return whether ``file`` belongs to searchlab or to the standard library, such as functools."""
    standard_paths = sysconfig.get_paths()
    # These may be within the standard library's directory.
    library_dirs = (standard_paths["purelib"], standard_paths["platlib"])
    is_standard = file_name.startswith(("<frozen", standard_paths["stdlib"])) and not file_name.startswith(library_dirs)
    return is_standard or file_name.startswith(f"{Path(__file__).parent}/")


class InvalidConfig(SearchlabError):
    """Raised if a config is not a member of its space or has no legal program. The message explains why.

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
    """Raised if a space has no program for a workload or target. The message lists what the space supports.

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
    """Raised if a policy cannot search a space. The message explains why and suggests an alternative.

    Example:
        >>> import searchlab
        >>> table = {"kind": "table", "path": "gemm.jsonl"}
        >>> options = dict(space="knob-template", policy="metaschedule", measure=table, log="b.jsonl", trials=3)
        >>> try:
        ...     searchlab.tune("gemm:32x32x32", **options)
        ... except searchlab.UnsupportedSpace:
        ...     print("metaschedule searches traces")
        metaschedule searches traces
    """


class RunsFailed(SearchlabError):
    """Raised if some runs of a study failed; the other runs are complete. The CLI exits with code 1.

    Args:
        reasons: A mapping from each failed run's log to the reason for the failure, in run order.
        count: The total number of runs.
    """

    exit_code = 1

    def __init__(self, reasons: Mapping[Path, str], count: int) -> None:
        self.reasons = reasons
        # Reasons are equal apart from the log and later sentences.
        failures_by_reason: dict[str, list[tuple[Path, str]]] = {}
        for log, reason in reasons.items():
            reason_text = reason.removeprefix(str(log)) if reason.startswith(str(log)) else f": {reason}"
            failures_by_reason.setdefault(reason_text.partition(". ")[0], []).append((log, reason_text))
        reason_texts = []
        for (log, reason_text), *other_failures in list(failures_by_reason.values())[:MAX_LISTED_REASONS]:
            others_text = f" and {len(other_failures)} more" if other_failures else ""
            reason_texts.append(f"{log}{others_text}{reason_text}")
        if len(failures_by_reason) > MAX_LISTED_REASONS:
            reason_texts.append(f"{len(failures_by_reason) - MAX_LISTED_REASONS} other reasons")
        super().__init__(f"{len(reasons)} of {count} runs failed. {'; '.join(reason_texts)}")


MAX_LISTED_REASONS = 5
"""The maximum number of reasons that a message lists."""


@contextmanager
def needs_extra(feature: str, extra: str) -> Iterator[None]:
    """Turn an import's failure into an error that names the extra to install.

    Raises:
        SearchlabError: If what is imported in this context is not installed.
    """
    try:
        yield
    except ImportError as error:
        raise SearchlabError(
            f"{feature} requires the extra {extra!r} ({error}); run pip install '.[{extra}]' in searchlab's checkout"
        ) from error


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """Return a hint such as ``"; did you mean 'grid'?"``, or list up to 12 known words if none is similar.

    A word that ``word`` abbreviates is more likely than a similar one. Capitals do not matter. Of short words, such as
    ``xbg`` and ``xgb``, fewer letters have to agree, because a single slip changes a larger part of them.
    """
    sorted_names = sorted(candidates)
    names_by_lower_case = {name.lower(): name for name in sorted_names}
    completions = [name for name in names_by_lower_case if len(word) > 1 and name.startswith(word.lower())]
    cutoff = 0.6 if len(word) <= 5 else 0.7
    similar_names = difflib.get_close_matches(word.lower(), names_by_lower_case, n=1, cutoff=cutoff)
    if closest_names := completions[:1] or similar_names:
        return f"; did you mean {names_by_lower_case[closest_names[0]]!r}?"
    if not sorted_names:
        return "; none is known"
    more_text = f" and {len(sorted_names) - 12} more" if len(sorted_names) > 12 else ""
    return f"; known: {', '.join(sorted_names[:12])}{more_text}"


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, or the name of its type if the text is empty."""
    return _split_lines(error)[0]


def last_line(error: BaseException) -> str:
    """Return the last line of an error's text, where TVM and compilers state the cause, or else its type's name."""
    return _split_lines(error)[-1]


MAX_TEXT_LENGTH = 4000
"""The maximum length of a failure message in a log, in characters."""


def shorten_text(text: str, max_length: int = MAX_TEXT_LENGTH) -> str:
    """Shorten ``text`` to ``max_length`` characters: keep its beginning and end, and state its length in between."""
    if len(text) <= max_length:
        return text
    cut_mark = f" ... [{len(text)} characters, cut] ... "
    end_length = max_length // 4
    return text[: max_length - end_length - len(cut_mark)] + cut_mark + text[-end_length:]


def text_of(error: BaseException) -> str:
    """Return ``str(error)``, escaped by :func:`encodable`, or a substitute if ``__str__`` raises an exception."""
    try:
        return encodable(str(error))
    except Exception as failure:
        return f"its text is unavailable because __str__ raises {type(failure).__name__}"


def describe(error: BaseException) -> str:
    """Return an error's type and the first line of its text, as in ``"ValueError: no such file"``."""
    type_name, message_line = type(error).__name__, first_line(error)
    return type_name if message_line == type_name else f"{type_name}: {message_line}"


def encodable(text: str) -> str:
    """Escape characters that UTF-8 cannot encode: a lone surrogate becomes the text ``\\ud800``."""
    return text.encode("utf-8", "backslashreplace").decode()


def _split_lines(error: BaseException) -> list[str]:
    return [line.rstrip() for line in shorten_text(text_of(error)).strip().splitlines()] or [type(error).__name__]
