"""The schedules of the space."""

from tvm.s_tir import Schedule

FACTOR = 4


def split_by(loop):
    return FACTOR


def schedule_gemm(workload, config, depth):
    schedule = Schedule(workload.module)
    block = schedule.get_sblock(workload.op)
    for loop in schedule.get_loops(block)[:depth]:
        _outer, inner = schedule.split(loop, [None, FACTOR])
        schedule.unroll(inner)
    return schedule
