"""The public functions called with arguments of wrong types: a sentence, or Python's own TypeError."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import searchlab
from searchlab import SearchlabError
from searchlab.options import Trials, checks_arguments

VALUES: list[Any] = [None, 3, [], object(), len, 1.5, b"x", {}, {"name": 3}, [3], float("nan"), True, "\0", "x" * 3000]


def callables() -> dict[str, Callable[..., Any]]:
    """The public functions and classes by name, and the class methods that create a Study; no abstract classes."""
    public_names = {name: getattr(searchlab, name) for name in searchlab.__all__}
    errors = [value for value in public_names.values() if isinstance(value, type) and issubclass(value, Exception)]
    public = {
        name: value
        for name, value in public_names.items()
        if callable(value) and not inspect.isabstract(value) and value not in errors
    }
    return public | {"Study.load": searchlab.Study.load, "Study.from_dict": searchlab.Study.from_dict}


@pytest.mark.parametrize("name", sorted(callables()))
def test_arguments_of_wrong_types_give_a_sentence(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    function = callables()[name]
    parameters = inspect.signature(function).parameters.values()
    required = [parameter for parameter in parameters if parameter.default is parameter.empty]
    for value in VALUES:
        positional = [value for parameter in required if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
        keyword_only = {parameter.name: value for parameter in required if parameter.kind is parameter.KEYWORD_ONLY}
        try:
            function(*positional, **keyword_only)
        except SearchlabError as error:
            assert len(str(error).splitlines()) == 1


@pytest.mark.parametrize("workload", [128, None, ["gemm:8x8x8"]], ids=repr)
def test_tune_names_an_argument_that_is_no_workload(workload: Any, tmp_path: Path) -> None:
    with pytest.raises(SearchlabError, match="workload"):
        searchlab.tune(workload, space="knob-template", policy="random", log=tmp_path / "run.jsonl")
    assert not (tmp_path / "run.jsonl").exists()


@checks_arguments
def example(count: Trials, share: float = 0.5, names: Mapping[str, Any] | None = None, *, path: str | Path = "") -> Any:
    return count, share, names, path


def test_arguments_are_checked_by_annotation() -> None:
    assert example(np.int64(3), 1, path=Path("a")) == (3, 1, None, Path("a"))
    assert type(example(np.int64(3))[0]) is int
    for args, kwargs, name in [
        ((True,), {}, "option 'count' is True; it must be a whole number from 1"),
        ((0,), {}, "option 'count' is 0; it must be a whole number from 1"),
        ((1, "x"), {}, "option 'share' is 'x'; it must be a number"),
        ((1, 0.5, [1]), {}, r"example\(\) does not accept names = \[1\] \(list\)"),
        ((1,), {"path": 3}, r"example\(\) does not accept path = 3 \(int\); it must be str or Path"),
    ]:
        with pytest.raises(SearchlabError, match=name):
            example(*args, **kwargs)
    with pytest.raises(TypeError, match=r"example\(\): missing a required argument: 'count'"):
        example()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"example\(\): there is no argument 'n_share'; did you mean 'share'\?"):
        example(1, n_share=0.5)  # type: ignore[call-arg]


def test_workloads_accept_numpy_extents() -> None:
    assert str(searchlab.gemm(np.int64(8), np.int32(8), 8)) == "gemm:8x8x8"
