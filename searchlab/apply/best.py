"""The best program of a log, as TVM takes it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..errors import SearchlabError
from ..log.result import Result, load_log
from ..measure.code import compile_program, reason
from ..target import Target

if TYPE_CHECKING:
    import tvm
    from tvm.s_tir import Schedule


class Applied(NamedTuple):
    """The best schedule of a log and its program, which ``tvm.compile(module, target)`` takes."""

    schedule: Schedule
    module: tvm.IRModule


def apply_best(log: str | Path | Result) -> Applied:
    """The schedule that won in ``log``, made again, and the module that it makes of the workload's.

    It is what AutoTVM and Ansor called ``apply_best``, of which today's ``tvm.s_tir.Schedule`` is both halves::

        schedule, module = searchlab.apply_best("a.jsonl")
        executable = tvm.compile(module, target=searchlab.load_log("a.jsonl").space.target.tvm)

    Raises SearchlabError where the log has no successful trial, was imported for analysis only, or is of a space that
    is not installed here or has changed since.
    """
    result = log if isinstance(log, Result) else load_log(log)
    schedule = result.best.schedule()
    return Applied(schedule, schedule.mod)


def build(module: tvm.IRModule, target: Target) -> tvm.runtime.Executable:
    """``module`` compiled as trials are. Raises SearchlabError where it does not compile."""
    try:
        return compile_program(module, target)
    except SearchlabError:
        raise
    except Exception as error:  # anything out of the compiler
        raise SearchlabError(f"the program does not compile for {target.kind}: {reason(error)}") from None
