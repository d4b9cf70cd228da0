"""Comparison of a model's outputs and times before and after tuning, and export of the tuned model."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..apply.verify import spread_of
from ..arrays import Array
from ..errors import SearchlabError, first_line, warn
from ..measure.code import device_of
from ..target import Target
from .inputs import find_main_function, inputs_of, random_inputs
from .library import MIN_REPEAT_MS, TIMING_ROUNDS, iterate_arrays, link_library, with_signature

if TYPE_CHECKING:
    import tvm

MIN_SLOWDOWN = 1.01
"""The least ratio of the tuned model's time to that of the untuned one at which it counts as slower."""

TOLERANCE_BY_DTYPE = {"float16": 3e-2, "bfloat16": 1e-1, "float32": 1e-3, "float64": 1e-9}
"""The allowed differences by dtype, relative to an output's largest element; programs sum in different orders."""


@dataclass(frozen=True)
class ModelComparison:
    """The times of a model before and after tuning, and the largest difference between their outputs.

    Attributes:
        untuned_seconds: The times of one execution of the untuned model, one for each round.
        tuned_seconds: The same for the tuned model.
        difference: The largest difference between the outputs, relative to the largest element of the output.
    """

    untuned_seconds: tuple[float, ...]
    tuned_seconds: tuple[float, ...]
    difference: float

    @property
    def seconds(self) -> tuple[float, float]:
        """The median times before and after tuning, in seconds."""
        return statistics.median(self.untuned_seconds), statistics.median(self.tuned_seconds)

    @property
    def is_slower(self) -> bool:
        """Whether the tuned model was slower in every round, and by more than the noise."""
        untuned_seconds, tuned_seconds = self.seconds
        relative_noise = spread_of(self.untuned_seconds) + spread_of(self.tuned_seconds)
        is_slower_each_time = all(new > old for old, new in zip(self.untuned_seconds, self.tuned_seconds, strict=True))
        return is_slower_each_time and tuned_seconds > untuned_seconds * max(MIN_SLOWDOWN, 1 + relative_noise)


def compare_and_export(
    untuned: tvm.IRModule, tuned: tvm.IRModule, target: Target, library_path: Path, seed: int, *, force: bool = False
) -> tuple[ModelComparison, Path | None]:
    """Compile both modules, compare their outputs on random inputs, time them in turn, and export the tuned one.

    Args:
        untuned: The model before tuning, as the user has specified it.
        tuned: The lowered model after tuning.
        target: The target.
        library_path: The library to write.
        seed: The seed of the inputs.
        force: Whether to export the tuned model even if it is slower.

    Returns:
        The comparison, and the path of the library, or None if the tuned model is slower or there is no C compiler.

    Raises:
        SearchlabError: If a module does not compile, or if the outputs differ.

    Warns:
        SearchlabWarning: If the tuned model is slower, and is therefore not exported.
    """
    import tvm
    from tvm import relax
    from tvm.support import cc

    main_function = find_main_function(untuned)
    inputs = [tvm.runtime.tensor(array) for array in random_inputs(inputs_of(untuned), np.random.default_rng(seed))]
    before_tuning = relax.transform.DecomposeOpsForInference()(untuned)  # what TVM alone would compile
    executables = [_compile_module(module, target) for module in (before_tuning, with_signature(tuned, target))]
    device = device_of(target.kind)
    virtual_machines = [relax.VirtualMachine(module, device) for module in executables]
    outputs = [list(iterate_arrays(virtual_machine[main_function](*inputs))) for virtual_machine in virtual_machines]
    difference = _compute_difference(*outputs)
    timers = [
        virtual_machine.time_evaluator(main_function, device, number=1, min_repeat_ms=MIN_REPEAT_MS)
        for virtual_machine in virtual_machines
    ]
    readings = [[float(timer(*inputs).mean) for timer in timers] for _ in range(TIMING_ROUNDS)]
    untuned_seconds, tuned_seconds = zip(*readings, strict=True)
    comparison = ModelComparison(untuned_seconds, tuned_seconds, difference)
    if comparison.is_slower and not force:
        before, after = comparison.seconds
        warn(
            f"the tuned model takes {after / before:.2f} times as long as the untuned one, which is more than the "
            f"noise, and was not exported; to export it, pass --force (in Python, force=True)"
        )
        return comparison, None
    if not cc.get_cc():
        return comparison, None
    link_library(executables[1], library_path)
    return comparison, library_path


def _compile_module(module: tvm.IRModule, target: Target) -> Any:
    import tvm

    try:
        return tvm.compile(module, target=target.tvm)
    except Exception as error:  # the compiler may raise anything
        raise SearchlabError(f"the model does not compile for {target.kind}: {first_line(error)}") from error


def _compute_difference(before: list[Array], after: list[Array]) -> float:
    """Return the largest relative difference between outputs. Raises SearchlabError if it exceeds the tolerance."""
    largest_difference = 0.0
    for output_number, (old, new) in enumerate(zip(before, after, strict=True)):
        scale = float(np.abs(old.astype(np.float64)).max(initial=0.0)) or 1.0
        difference = float(np.abs(old.astype(np.float64) - new.astype(np.float64)).max(initial=0.0)) / scale
        if not difference <= TOLERANCE_BY_DTYPE.get(str(old.dtype), 0.0):
            raise SearchlabError(
                f"output {output_number} of the tuned model differs from that of the untuned one by {difference:.2g} "
                "times its largest element; please report this, with the directory of the logs"
            )
        largest_difference = max(largest_difference, difference)
    return largest_difference
