"""Reproductions of AutoTVM's tuners (``python/tvm/autotvm/tuner``, TVM 0.17)."""
