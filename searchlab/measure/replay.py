"""Whether the trace of a schedule makes its program again, as databases of traces and written scripts need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import last_line
from ..workload import Workload
from .code import program_hash

if TYPE_CHECKING:
    from tvm.s_tir import Schedule


def why_not_replayed(schedule: Schedule, workload: Workload) -> str:
    """Why the trace of ``schedule``, applied to the module of ``workload``, does not give its module; "" if it does."""
    from tvm.s_tir import Schedule
    from tvm.s_tir.schedule.trace import Trace
    from tvm_ffi import Map

    if schedule.trace is None:
        return "it was made without a trace"
    every = list(schedule.trace.insts)
    # TVM makes annotations that are maps, and does not replay them.
    plain = [one for one in every if not (one.kind.name == "Annotate" and isinstance(one.inputs[1], Map))]
    replayed = Schedule(workload.module)
    try:
        Trace(plain, schedule.trace.decisions).apply_to_schedule(replayed, remove_postproc=False)
    except Exception as error:  # the trace is of another module
        return f"its trace cannot be replayed on the module of {workload} ({last_line(error)})"
    if len(plain) == len(every) and program_hash(replayed.mod) != program_hash(schedule.mod):
        return f"its trace, replayed on the module of {workload}, gives another program"
    return ""
