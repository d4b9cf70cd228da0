"""Workload checks: a function for each rule in the contract of :class:`~searchlab.workload.Workload`."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import FrozenInstanceError, dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from ..arrays import Array
from ..errors import SearchlabError, UnsupportedWorkload, describe
from ..plugins import Plugin
from ..workload import Argument, Workload, parse_workload, program_hash, split_workload_name
from .check import (
    TIME_LIMIT,
    Breach,
    Check,
    NotApplicable,
    Subject,
    rule,
    rules_in,
    seed_global_streams,
)

NONSENSE = ("", "nonsense", "-1", "4x", "0x0:?")
"""Texts that are not spellings of a workload, either alone or after a valid spelling and a colon."""


@dataclass(frozen=True)
class WorkloadSubject(Subject):
    """A workload to check."""

    workload: Workload

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """The arguments of the workload's function. Raises NotApplicable if it has no function."""
        try:
            return self.workload.arguments
        except UnsupportedWorkload as reason:
            raise NotApplicable(str(reason)) from None

    @property
    def operands(self) -> tuple[Argument, ...]:
        return self.arguments[: -self.workload.result_count]

    @cached_property
    def inputs(self) -> dict[str, Array]:
        return self.workload.inputs(self.seed)

    def compute_results(self) -> list[Any]:
        """Return the hash of the workload's function."""
        return [{"hash": program_hash(self.workload.module)}]

    def results_of(self, inputs: dict[str, Array]) -> tuple[Array, ...]:
        """Return the results of the workload's reference as a tuple."""
        results = self.workload.reference(inputs)
        return results if isinstance(results, tuple) else (results,)

    @cached_property
    def expected_results(self) -> tuple[Array, ...]:
        return self.results_of(self.inputs)

    def are_correct(self, results: tuple[Array, ...]) -> bool:
        """Return whether ``results`` are correct by the criterion used for trials."""
        rtol, atol = self.workload.tolerance()
        return all(
            np.allclose(result.astype(np.float64), right.astype(np.float64), rtol=rtol, atol=atol, equal_nan=True)
            for result, right in zip(results, self.expected_results, strict=True)
        )


@rule("make the class a frozen dataclass whose fields are hashable values, such as numbers, strings and tuples")
def check_frozen(subject: WorkloadSubject) -> None:
    """It is immutable and hashable."""
    hash(subject.workload)
    for field in fields(subject.workload):
        try:
            setattr(subject.workload, field.name, getattr(subject.workload, field.name))
        except FrozenInstanceError:
            continue
        raise Breach(f"its field {field.name} can be changed")


@rule("let spelling contain every field that matters, in the form that parse reads")
def check_spelling(subject: WorkloadSubject) -> None:
    """Parsing its spelling results in an equal workload, with the same spelling."""
    workload = subject.workload
    try:
        copy = type(workload).parse(workload.spelling)
    except SearchlabError as error:
        if workload.content():
            raise NotApplicable(
                "it is created from the contents of a log, because its spelling alone is not enough"
            ) from None
        raise Breach(f"parse({workload.spelling!r}) raised {describe(error)}") from None
    if copy != workload or copy.spelling != workload.spelling:
        raise Breach(f"parse({workload.spelling!r}) returned {copy!r} instead of {workload!r}")


@rule("check in parse that the text is a spelling, and raise SearchlabError with an example if it is not")
def check_refuses_nonsense(subject: WorkloadSubject) -> None:
    """Parsing any other text raises SearchlabError with a message."""
    cls, own_spelling = type(subject.workload), subject.workload.spelling
    for text in (*NONSENSE, *(f"{own_spelling}:{nonsense or '?'}" for nonsense in NONSENSE)):
        try:
            workload = cls.parse(text)
        except SearchlabError as error:
            if not str(error).strip():
                raise Breach(f"parse({text!r}) raised {type(error).__name__} without a message") from None
            continue
        except Exception as error:  # a plug-in may raise anything
            raise Breach(f"parse({text!r}) raised {describe(error)}") from None
        if workload.spelling != text and not own_spelling.startswith(text):
            raise Breach(f"parse({text!r}) returned {workload!r}")


@rule("return a positive int; if the number is unknown, return 10**9 and the unit 'runs/s'")
def check_counts(subject: WorkloadSubject) -> None:
    """Its number of floating-point operations is a positive integer."""
    flops, unit = subject.workload.flops, subject.workload.unit
    if type(flops) is not int or flops < 1:
        raise Breach(f"its flops is {flops!r}")
    if unit not in ("GFLOPS", "runs/s"):
        raise Breach(f"its unit is {unit!r}")


@rule("return a function in TensorIR with blocks, as te.create_prim_func does, whose last arguments are its results")
def check_builds_function(subject: WorkloadSubject) -> None:
    """Its function can be scheduled, and has fixed shapes, distinct argument names, and at least one result."""
    from tvm.s_tir import Schedule

    names = [argument.name for argument in subject.arguments]
    if len(set(names)) != len(names):
        raise Breach(f"its arguments are {', '.join(names)}")
    if not 1 <= subject.workload.result_count <= len(names):
        raise Breach(f"it has {subject.workload.result_count} results, but {len(names)} arguments")
    schedule = Schedule(subject.workload.module)
    if not schedule.get_child_blocks(schedule.get_sblock("root")):
        raise Breach("its function has no blocks")


@rule("let the fields alone determine the function", ["builds-function"])
def check_one_function(subject: WorkloadSubject) -> None:
    """Its function is the same in every process."""
    _ = subject.arguments
    subject.require_same_in_every_process()


@rule("keep only picklable values in the fields", ["frozen"])
def check_pickles(subject: WorkloadSubject) -> None:
    """A pickled copy is equal, and has the same name."""
    try:
        copy = pickle.loads(pickle.dumps(subject.workload))
    except Exception as error:
        raise Breach(f"it cannot be pickled: {describe(error)}") from None
    if copy != subject.workload or str(copy) != str(subject.workload):
        raise Breach(f"unpickling it returned {copy!r}")


@rule("return every operand of prim_func by name, in order, with its shape and dtype", ["builds-function"])
def check_inputs(subject: WorkloadSubject) -> None:
    """Its inputs are the operands of its function."""
    expected_operands = {operand.name: (operand.shape, operand.dtype) for operand in subject.operands}
    actual_operands = {name: (value.shape, str(value.dtype)) for name, value in subject.inputs.items()}
    if list(actual_operands.items()) != list(expected_operands.items()):
        raise Breach(f"its inputs are {actual_operands}, but the operands are {expected_operands}")


@rule("draw from np.random.default_rng(seed)", ["inputs"])
def check_seeded_inputs(subject: WorkloadSubject) -> None:
    """The seed alone determines the inputs, and no global random stream is used."""
    if not subject.operands:
        raise NotApplicable("it has no operands")
    with seed_global_streams(1, must_be_untouched=True):
        second_inputs = subject.workload.inputs(subject.seed)
    if not _are_equal(second_inputs, subject.inputs):
        raise Breach(f"inputs({subject.seed}) returned different values the second time")
    if _are_equal(subject.workload.inputs(subject.seed + 1), second_inputs) and any(
        value.size > 8 for value in second_inputs.values()
    ):
        raise Breach("inputs() returned the same values for two seeds")


def _are_equal(first: dict[str, Array], second: dict[str, Array]) -> bool:
    return all(np.array_equal(value, second[name]) for name, value in first.items())


@rule("return an array for each result, with its shape and dtype", ["inputs"])
def check_reference(subject: WorkloadSubject) -> None:
    """The results of the reference have the shapes and dtypes of the function's results."""
    expected_types = [
        (argument.shape, argument.dtype) for argument in subject.arguments[-subject.workload.result_count :]
    ]
    actual_types = [(result.shape, str(result.dtype)) for result in subject.expected_results]
    if actual_types != expected_types:
        raise Breach(f"reference() returned {actual_types}, but the function's results are {expected_types}")


@rule("compute with copies, and without random numbers", ["reference"])
def check_repeats(subject: WorkloadSubject) -> None:
    """The reference has the same results for the same inputs, and does not modify its inputs."""
    _ = subject.operands
    copied_inputs = {name: value.copy() for name, value in subject.inputs.items()}
    first_results, second_results = subject.results_of(copied_inputs), subject.results_of(copied_inputs)
    if not _are_equal(copied_inputs, subject.inputs):
        raise Breach("reference() modified its inputs")
    if not all(
        np.array_equal(first_value, second_value, equal_nan=first_value.dtype.kind == "f")
        for first_value, second_value in zip(first_results, second_results, strict=True)
    ):
        raise Breach("reference() returned different results for the same inputs")


@rule("return (rtol, atol); searchlab.workload.rounding computes them for sums", ["reference"])
def check_tolerance(subject: WorkloadSubject) -> None:
    """Its tolerance consists of two finite, non-negative numbers."""
    _ = subject.operands
    tolerances = subject.workload.tolerance()
    if len(tolerances) != 2 or not all(isinstance(bound, float) and 0 <= bound < np.inf for bound in tolerances):
        raise Breach(f"its tolerance is {tolerances!r}")


@rule("correct the function or the reference; if only rounding differs, widen the tolerance", ["tolerance", "repeats"])
def check_right_answer(subject: WorkloadSubject) -> None:
    """Its unscheduled function compiles for this CPU, and its results are within the tolerance of the reference."""
    import tvm

    result_tensors = [
        tvm.runtime.empty(argument.shape, argument.dtype)
        for argument in subject.arguments[-subject.workload.result_count :]
    ]
    tvm.compile(subject.workload.module, target="llvm")["main"](
        *map(tvm.runtime.tensor, subject.inputs.values()), *result_tensors
    )
    computed_results = tuple(result.numpy() for result in result_tensors)
    if not subject.are_correct(computed_results):
        largest_difference = max(
            float(np.nanmax(np.abs(actual.astype(np.float64) - right)))
            for actual, right in zip(computed_results, subject.expected_results, strict=True)
        )
        raise Breach(
            f"the results differ by up to {largest_difference:.3g}; the tolerance is {subject.workload.tolerance()}"
        )


@rule("make the tolerance as tight as rounding allows", ["tolerance", "seeded-inputs"])
def check_tight(subject: WorkloadSubject) -> None:
    """Neither the results for other inputs nor zeros are within the tolerance."""
    if not subject.operands or all(array.size <= 8 for array in subject.expected_results):
        raise NotApplicable("its results have too few elements to differ")
    if subject.are_correct(subject.results_of(subject.workload.inputs(subject.seed + 1))):
        raise Breach("the results for other inputs are within the tolerance")
    if subject.are_correct(tuple(np.zeros_like(array) for array in subject.expected_results)):
        raise Breach("zeros are within the tolerance")


@rule("let content() contain what from_log needs, and let from_log execute nothing", ["frozen"])
def check_from_log(subject: WorkloadSubject) -> None:
    """from_log creates an equal workload from the text in a log, and opens no file."""
    workload = subject.workload
    with _forbid_opening_files():
        copy = type(workload).from_log(workload.spelling, workload.content())
    if copy != workload or str(copy) != str(workload):
        raise Breach(f"from_log() returned {copy!r} instead of {workload!r}")


@contextmanager
def _forbid_opening_files() -> Iterator[None]:
    """Raise Breach if the body opens a file."""
    import builtins

    def refuse(*args: object, **kwargs: object) -> None:
        raise Breach(f"it opened {args[0]!r}")

    original_open = builtins.open
    builtins.open = refuse  # type: ignore[assignment]
    try:
        yield
    finally:
        builtins.open = original_open


RULES = rules_in(__name__)


def workload_checks(workload: str | Workload, *, seed: int = 0) -> list[Check]:
    """Return the checks for a workload, in order.

    Args:
        workload: A small workload of the kind to check, such as ``"softmax:16x32"``.
        seed: The seed for its inputs.

    Raises:
        SearchlabError: If the workload is unknown.
    """
    if isinstance(workload, str) and not split_workload_name(workload)[1]:
        raise SearchlabError(
            f"a workload can be checked only if its sizes are specified, but {workload!r} is only a kind; specify a "
            "small workload, such as softmax:16x32"
        )
    workload = parse_workload(workload)
    subject = WorkloadSubject(Plugin(str(workload)), type(workload), seed, TIME_LIMIT, workload)
    return [Check(rule, subject) for rule in RULES]
