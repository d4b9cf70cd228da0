"""Functions in TVMScript, for workloads of kinds tir (with its twin in NumPy) and fused-..."""

from __future__ import annotations

import numpy as np
from tvm.script import tirx as T

from searchlab.arrays import Array


@T.prim_func(s_tir=True)
def scaled(x: T.Buffer((4, 16), "float32"), total: T.Buffer((4,), "float32"), y: T.Buffer((4, 16), "float32")):  # type: ignore[no-untyped-def]
    for i, k in T.grid(4, 16):
        with T.sblock("total"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                total[vi] = T.float32(0)
            total[vi] = total[vi] + x[vi, vk]
    for i, j in T.grid(4, 16):
        with T.sblock("y"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = x[vi, vj] * total[vi]


def scaled_reference(x: Array) -> tuple[Array, Array]:
    total = x.sum(axis=1, dtype=np.float32)
    return total, x * total[:, None]


@T.prim_func(s_tir=True)
def squared(x: T.Buffer((4, 16), "float32"), bias: T.Buffer((16,), "float32"), y: T.Buffer((4, 16), "float32")):  # type: ignore[no-untyped-def]
    for i, j in T.grid(4, 16):
        with T.sblock("y"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = (x[vi, vj] + bias[vj]) * (x[vi, vj] + bias[vj])


@T.prim_func(s_tir=True)
def doubled(x: T.Buffer((1, 4, 3, 6), "float32"), y: T.Buffer((1, 4, 3, 6), "float32")):  # type: ignore[no-untyped-def]
    for n, c, i, j in T.grid(1, 4, 3, 6):
        with T.sblock("y"):
            vn, vc, vi, vj = T.axis.remap("SSSS", [n, c, i, j])
            y[vn, vc, vi, vj] = x[vn, vc, vi, vj] * T.float32(2)


@T.prim_func(s_tir=True)
def masked(x: T.Buffer((3, 4, 8), "float32"), mask: T.Buffer((4, 8), "float32"), y: T.Buffer((3, 4, 8), "float32")):  # type: ignore[no-untyped-def]
    for b, i, j in T.grid(3, 4, 8):
        with T.sblock("y"):
            vb, vi, vj = T.axis.remap("SSS", [b, i, j])
            y[vb, vi, vj] = x[vb, vi, vj] * T.float32(0.5) + mask[vi, vj]
