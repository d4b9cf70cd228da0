"""Comparison of a model's outputs and times before and after tuning, and export of the tuned model."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..apply.verify import spread_of
from ..arrays import Array
from ..errors import SearchlabError, first_line
from ..measure.code import device_of
from ..target import Target
from .inputs import entry_of, inputs_of, random_inputs
from .library import MIN_REPEAT_MS, ROUNDS, arrays_in, link_library, with_signature

if TYPE_CHECKING:
    import tvm

MIN_SLOWDOWN = 1.01
"""The least ratio of the tuned model's time to that of the untuned one at which it counts as slower."""

TOLERANCE = {"float16": 3e-2, "bfloat16": 1e-1, "float32": 1e-3, "float64": 1e-9}
"""The allowed differences by dtype, relative to an output's largest element; programs sum in different orders."""


@dataclass(frozen=True)
class ModelComparison:
    """The times of a model before and after tuning, and the largest difference between their outputs.

    Attributes:
        before: The times of one execution of the untuned model in seconds, one for each round.
        after: The same for the tuned model.
        difference: The largest difference between the outputs, relative to the largest element of the output.
    """

    before: tuple[float, ...]
    after: tuple[float, ...]
    difference: float

    @property
    def seconds(self) -> tuple[float, float]:
        """The median times before and after tuning, in seconds."""
        return statistics.median(self.before), statistics.median(self.after)

    @property
    def is_slower(self) -> bool:
        """Whether the tuned model was slower in every round, and by more than the noise."""
        before, after = self.seconds
        noise = spread_of(self.before) + spread_of(self.after)
        slower_each_time = all(new > old for old, new in zip(self.before, self.after, strict=True))
        return slower_each_time and after > before * max(MIN_SLOWDOWN, 1 + noise)


def compare_models(
    untuned: tvm.IRModule, tuned: tvm.IRModule, target: Target, library: Path, seed: int, *, force: bool = False
) -> tuple[ModelComparison, Path | None]:
    """Compile both modules, compare their outputs on random inputs, time them in turn, and export the tuned one.

    Args:
        untuned: The model before tuning.
        tuned: The model after tuning.
        target: The target.
        library: The path of the library to write.
        seed: The seed of the inputs.
        force: Whether to export the tuned model even if it is slower.

    Returns:
        The comparison, and the path of the library, or None if the tuned model is slower or there is no C compiler.

    Raises:
        SearchlabError: If a module does not compile, or if the outputs differ.
    """
    import tvm
    from tvm import relax
    from tvm.support import cc

    entry = entry_of(untuned)
    inputs = [
        tvm.runtime.tensor(array) for array in random_inputs(inputs_of(untuned[entry]), np.random.default_rng(seed))
    ]
    executables = [_compile(module, target) for module in (untuned, with_signature(tuned, target))]
    device = device_of(target.kind)
    machines = [relax.VirtualMachine(module, device) for module in executables]
    outputs = [list(arrays_in(machine[entry](*inputs))) for machine in machines]
    difference = _difference(*outputs)
    timers = [machine.time_evaluator(entry, device, min_repeat_ms=MIN_REPEAT_MS) for machine in machines]
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for timer, module_times in zip(timers, times, strict=True):
            module_times.append(float(timer(*inputs).mean))
    comparison = ModelComparison(tuple(times[0]), tuple(times[1]), difference)
    if not cc.get_cc() or (comparison.is_slower and not force):
        return comparison, None
    link_library(executables[1], library)
    return comparison, library


def _compile(module: tvm.IRModule, target: Target) -> Any:
    import tvm

    try:
        return tvm.compile(module, target=target.tvm)
    except Exception as error:  # the compiler may raise anything
        raise SearchlabError(f"the model does not compile for {target.kind}: {first_line(error)}") from error


def _difference(before: list[Array], after: list[Array]) -> float:
    """Return the largest relative difference between outputs. Raises SearchlabError if it exceeds the tolerance."""
    largest = 0.0
    for number, (old, new) in enumerate(zip(before, after, strict=True)):
        scale = float(np.abs(old.astype(np.float64)).max(initial=0.0)) or 1.0
        off = float(np.abs(old.astype(np.float64) - new.astype(np.float64)).max(initial=0.0)) / scale
        if not off <= TOLERANCE.get(str(old.dtype), 0.0):
            raise SearchlabError(
                f"output {number} of the tuned model differs from that of the untuned one by {off:.2g} times its "
                "largest element; please report this, with the directory of the logs"
            )
        largest = max(largest, off)
    return largest
