"""AutoTVM's tuners, written anew: ``python/tvm/autotvm/tuner`` of TVM 0.17."""
