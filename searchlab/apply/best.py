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
    """The schedule that won in ``log``, made again, and the scheduled module.

    AutoTVM and Ansor called this ``apply_best``. They gave a schedule and its arguments; today's
    ``tvm.s_tir.Schedule`` holds both, so the second half of the result is the module to compile::

        schedule, module = searchlab.apply_best("a.jsonl")
        executable = tvm.compile(module, target=searchlab.load_log("a.jsonl").space.target.tvm)

    From then on TVM runs programs in this process with as many threads as the trials had, unless ``TVM_NUM_THREADS``
    is set; by default it takes half of the cores. Warns if TVM's threads run already, and are fewer.

    Raises SearchlabError if the log has no successful trial, if it was imported for analysis only, or if its space is
    not installed here or has changed since.
    """
    result = log if isinstance(log, Result) else load_log(log)
    schedule = result.best.schedule()
    use_threads_of(result.space.target)
    return Applied(schedule, schedule.mod)


def build_best(best: Best) -> tvm.runtime.Executable:
    """The program of ``best``, compiled for the target of its log::

        function = build_best(load_log("a.jsonl").best).jit()["main"]

    ``function`` takes the tensors of the workload, the result last, and runs with as many threads as the trials had,
    as :func:`apply_best` says. Raises SearchlabError if the program has no schedule any more or does not compile.
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
