"""The best program of a log: its schedule and module, and that module compiled."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..errors import SearchlabError
from ..log.result import Best, Result, load_log
from ..measure.code import compile_program, reason
from ..target import Target
from .threads import use_threads_of

if TYPE_CHECKING:
    import tvm
    from tvm.s_tir import Schedule


class Applied(NamedTuple):
    """The best schedule of a log and its program, which ``tvm.compile(module, target)`` takes."""

    schedule: Schedule
    module: tvm.IRModule


def apply_best(log: str | Path | Result) -> Applied:
    """The best schedule of a run, and its module.

    TVM then runs programs in this process with as many threads as the trials had, unless ``TVM_NUM_THREADS`` is set; by
    default it takes half of the cores.

    Args:
        log: A log, or a result.

    Returns:
        The schedule, made again from its config, and the scheduled module. AutoTVM and Ansor return the arguments
        instead of the module; today's ``tvm.s_tir.Schedule`` contains them.

    Raises:
        SearchlabError: If the log has no successful trial, if it was imported for analysis only, or if its space is not
            installed or has changed since.

    Warns:
        SearchlabWarning: If TVM's threads are already running, and are too few.

    Example:
        >>> import searchlab, tvm
        >>> schedule, module = searchlab.apply_best("gemm.jsonl")
        >>> executable = tvm.compile(module, target=searchlab.load_log("gemm.jsonl").space.target.tvm)
    """
    result = log if isinstance(log, Result) else load_log(log)
    schedule = result.best.schedule()
    use_threads_of(result.space.target)
    return Applied(schedule, schedule.mod)


def build_best(best: Best) -> tvm.runtime.Executable:
    """Compile the best program of a run, for the target of its log.

    It runs with as many threads as the trials had: see :func:`apply_best`.

    Args:
        best: The best trial of a result.

    Raises:
        SearchlabError: If its config no longer has a schedule, or the program does not compile.

    Example:
        >>> import numpy as np, searchlab, tvm
        >>> main = searchlab.build_best(searchlab.load_log("gemm.jsonl").best).jit()["main"]
        >>> a, b, c = (tvm.runtime.tensor(np.ones((32, 32), "float32")) for _ in range(3))
        >>> main(a, b, c)  # the result comes last
        >>> float(c.numpy()[0, 0])
        32.0
    """
    target = best.result.space.target
    built = build(best.schedule().mod, target)
    use_threads_of(target)
    return built


def build(module: tvm.IRModule, target: Target) -> tvm.runtime.Executable:
    """``module`` compiled as trials are. Raises SearchlabError if it does not compile."""
    try:
        return compile_program(module, target)
    except SearchlabError:
        raise
    except Exception as error:  # the compiler may raise anything
        raise SearchlabError(f"the program does not compile for {target.kind}: {reason(error)}") from None
