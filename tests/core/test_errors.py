"""Texts of errors for messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from searchlab.errors import RunsFailed, describe, did_you_mean, first_line, last_line


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("no such file", "no such file", "no such file"),
        ("\n  Traceback: \n  File a.cc\nInternalError: Check failed\n", "Traceback:", "InternalError: Check failed"),
        ("", "ValueError", "ValueError"),
        (" \n ", "ValueError", "ValueError"),
    ],
)
def test_the_first_and_the_last_line_of_an_error(text: str, first: str, last: str) -> None:
    error = ValueError(text)
    assert (first_line(error), last_line(error)) == (first, last)


def test_an_error_is_described_by_its_type_and_its_first_line() -> None:
    assert describe(ValueError("wrong\nand why")) == "ValueError: wrong"
    assert describe(ValueError()) == "ValueError"


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("eps", "did you mean 'epsilon'?"),
        ("STEPS", "did you mean 'steps'?"),
        ("step", "did you mean 'steps'?"),
        ("epsilom", "did you mean 'epsilon'?"),
        ("x", "known: Batch, epsilon, steps"),
    ],
)
def test_an_abbreviation_is_nearer_than_a_similar_word(word: str, hint: str) -> None:
    assert did_you_mean(word, ["steps", "epsilon", "Batch"]) == f"; {hint}"


def test_a_long_word_needs_a_closer_match_than_a_short_one() -> None:
    assert did_you_mean("direction", ["restrictions", "space"]) == "; known: restrictions, space"
    assert did_you_mean("xbg", ["xgb", "random"]) == "; did you mean 'xgb'?"


def test_equal_reasons_of_failed_runs_are_listed_once() -> None:
    reasons = {
        Path(f"{seed}.jsonl"): f"{seed}.jsonl cannot be continued; restore it. Trial {seed} is" for seed in "012"
    }
    text = str(RunsFailed({**reasons, Path("3.jsonl"): "died"}, 5))
    assert text == "4 of 5 runs failed. 0.jsonl and 2 more cannot be continued; restore it. Trial 0 is; 3.jsonl: died"
