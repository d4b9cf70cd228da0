"""The errors searchlab raises on purpose."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class SearchlabError(Exception):
    """Bad input. Its text says what was wrong, with what value, and what to do; the CLI prints it and exits 2."""


class SearchlabWarning(UserWarning):
    """What a user should know of a run that goes on all the same; the CLI prints it as one sentence."""


class InvalidConfig(SearchlabError):
    """A config that is not in its space, or that makes no legal program; the text says why."""


class UnsupportedWorkload(SearchlabError):
    """A space that has no program for this workload or target; the text says what it takes instead."""


class UnsupportedSpace(SearchlabError):
    """A policy that cannot search this space; the text says why, and what to use instead."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``"; did you mean 'grid'?"`` where one of ``known`` is near, else what is known (at most twelve of it)."""
    names = sorted(known)
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if near:
        return f"; did you mean {near[0]!r}?"
    if not names:
        return "; none is known"
    return f"; known: {', '.join(names[:12])}" + (f" and {len(names) - 12} more" if len(names) > 12 else "")
