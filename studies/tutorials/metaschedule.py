"""The chapter "Automatic Program Optimization" of the course Machine Learning Compilation, in searchlab.

    python studies/tutorials/metaschedule.py [--small] [--trials 64] [--out DIR] [--target native|cuda]

Read this script from top to bottom, or run it cell by cell in an editor that supports ``# %%``. It schedules a 128 x
128 x 128 GEMM by hand, leaves the numbers of the schedule open, searches them by hand, at random and with a cost model,
lets the complete space be derived from the computation, and puts the best program back into a model. Without
``--target`` it tunes for the GPU of this machine or, if there is none, for the CPU. It has not been run on a GPU yet.

Each of six searches tries 64 programs, which takes 40 s on two cores, or 10 s with ``--small``. On two idle cores of an
AMD EPYC (Zen 5), its output included:

    The function as it is: 3.87 GFLOPS
    Scheduled by hand: 15.09 GFLOPS
    ...
    Best GFLOPS after so many trials:         8       16       32       64   trials
      one tile   random                    65.4     65.4     65.4     65.4        7
      one tile   evolutionary-model        65.4     65.4     65.4     65.4        7
      all tiles  random                   238.4    238.4    266.5    449.3       64
      all tiles  evolutionary-model       238.4    408.7    448.1    458.8       64
      automatic  random                   461.3    461.3    461.3    461.3       64
      automatic  evolutionary-model       461.3    461.3    461.3    461.5       64
    ...
    The model as it was: 1.1775 ms, and numpy's result
    The model tuned: 0.1003 ms, and numpy's result
"""

# %% Imports and options
from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import tvm
import tvm_ffi
from tvm import relax
from tvm.s_tir import Schedule

import searchlab
from searchlab.machine.cuda import gpu_name
from searchlab.measure.code import compile_program, device_of
from searchlab_spaces.trace import Trace
from searchlab_spaces.trace.cuda import stochastic_schedule_mm_cuda

if TYPE_CHECKING:
    from tvm.s_tir.schedule import LoopRV

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--small", action="store_true", help="only size 64 and 4 trials, which takes seconds")
parser.add_argument("--trials", type=int, help="number of trials of each search (64; 4 with --small)")
parser.add_argument("--out", type=Path, default=Path("results/tutorials"), help="directory for the logs")
parser.add_argument("--target", help="native, cuda or any other target (the GPU if there is one, otherwise the CPU)")
args = parser.parse_args([] if "ipykernel" in sys.modules else None)
trials = (4 if args.small else 64) if args.trials is None else args.trials

try:
    target = searchlab.resolve_target(args.target or ("cuda" if gpu_name() else "native"))
except searchlab.SearchlabError as error:  # the requested GPU is missing
    sys.exit(str(error))
cuda = target.kind == "cuda"
# TVM would use half of the logical cores, so it is told to use those with which trials are measured, before it runs
# anything in this process.
os.environ.setdefault("TVM_NUM_THREADS", str(target.cores))

# %% A primitive tensor function
size = 64 if args.small else 128
workload = searchlab.gemm(size, size, size)
print(f"{workload}, {workload.flops / 1e6:.1f} MFLOP, on {target.kind}\n")
print(workload.module.script())


# %% A schedule by hand
# A schedule transforms the function step by step without changing what it computes.
def by_hand(sch: Schedule, width: int = 4) -> None:
    """Split j, and move its inner part, ``width`` columns, inside k. On a GPU, each thread sums one of them."""
    block = sch.get_sblock("gemm")
    i, j, k = sch.get_loops(block)
    j0, j1 = sch.split(j, [None, width])
    sch.reorder(i, j0, k, j1)
    if cuda:
        sch.reorder(i, j0, j1, k)
        sch.bind(sch.fuse(i, j0), "blockIdx.x")
        sch.bind(j1, "threadIdx.x")
    sch.decompose_reduction(block, k)


device = device_of(target.kind)
inputs = workload.inputs(seed=1)
arguments = [
    tvm.runtime.tensor(array, device) for array in (*inputs.values(), np.zeros((size, size), workload.out_dtype))
]
expected = workload.reference(inputs)  # before any timing, because the threads of numpy's BLAS stay busy after a call


def gflops(sch: Schedule) -> float:
    """Check a schedule's program against numpy, and return its speed in GFLOPS."""
    program = compile_program(sch.mod, target).jit()
    program["main"](*arguments)
    rtol, atol = workload.tolerance()
    np.testing.assert_allclose(arguments[-1].numpy(), expected, rtol=rtol, atol=atol)
    timer = program.time_evaluator("main", device, repeat=3, min_repeat_ms=10)
    return workload.flops / float(np.median(timer(*arguments).results)) / 1e9


plain = Schedule(workload.module)
if not cuda:  # a GPU cannot run loops that are not bound to threads
    print(f"The function as it is: {gflops(plain):.2f} GFLOPS")
manual = Schedule(workload.module)
by_hand(manual)
print(f"Scheduled by hand: {gflops(manual):.2f} GFLOPS\n")

# The trace of the schedule contains every step, as Python that repeats them.
print("Its trace:")
print(manual.trace)


# %% A stochastic schedule
# Why 4 columns? Here the number is sampled. ``sample_perfect_tile`` returns two factors of the loop's extent as random
# variables, which later steps use like numbers. The trace records the sampled values as a ``decision``. On CPUs, this
# function is ``searchlab_spaces.trace.cpu:stochastic_schedule_mm``; the space's default is ``stochastic_schedule_gemm``
# in the same module, which tiles all loops, vectorises and packs.
def stochastic(sch: Schedule) -> None:
    """Do the same as ``by_hand``, with a sampled width."""
    block = sch.get_sblock("gemm")
    i, j, k = sch.get_loops(block)
    j0, j1 = sch.split(j, sch.sample_perfect_tile(j, n=2, max_innermost_factor=64))
    sch.reorder(i, j0, k, j1)
    if cuda:
        sch.reorder(i, j0, j1, k)
        sch.bind(sch.fuse(i, j0), "blockIdx.x")
        sch.bind(j1, "threadIdx.x")
    sch.decompose_reduction(block, k)


SEEDS = (123456789, 987654321, 192837465, 918273645)  # with small seeds, TVM's first draws are all alike
print("\nThe same with a number left open, drawn twice:")
for seed in SEEDS[:2]:
    schedule = Schedule(workload.module, seed=seed)
    stochastic(schedule)
    print(schedule.trace)

# What does a sample change? Not the program: the factors are variables, and only the trace knows their values. The
# program changes in the next step, which uses them.
step_by_step = Schedule(workload.module, seed=SEEDS[0])
_, j, _ = step_by_step.get_loops(step_by_step.get_sblock("gemm"))
factors = step_by_step.sample_perfect_tile(j, n=2, max_innermost_factor=64)
same = tvm_ffi.structural_equal(step_by_step.mod, workload.module)
print(f"\nA sampled factor is a variable, {type(factors[0]).__name__}, with the value {step_by_step.get(factors[0])}.")
print(f"After sampling, the program is {'the same' if same else 'another'}. After the split, it is:")
step_by_step.split(j, factors)
print(step_by_step.mod.script())

# %% The function is a space
# In searchlab, this function is a search space: whatever it samples is a knob, and a config contains the decisions.
# The same program can be recreated from a config at any time, which is what a log needs.
space = Trace(workload, target, function=stochastic)
configs = list(space.enumerate())
print(f"\nAs a space it has {len(configs)} configs, from {configs[0]} to {configs[-1]}")

# %% Random search, by hand
# Sample, build, time, keep the best. Nothing prevents a program from being sampled twice, a crashing program from
# ending this process, or unreliable times from going unnoticed.
attempts: list[tuple[float, Schedule]] = []
print("\nRandom search by hand:")
for seed in SEEDS:
    schedule = Schedule(workload.module, seed=seed)
    stochastic(schedule)
    attempts.append((gflops(schedule), schedule))
    print(f"  {attempts[-1][0]:8.2f} GFLOPS, {space.config_of(schedule)}")
print(f"The best: {max(speed for speed, _ in attempts):.2f} GFLOPS")


# %% A larger space
# A single tile is soon exhausted. This function tiles all three loops, and also samples how far they are unrolled. On a
# GPU, a function included in searchlab is used instead; it samples tiles from the inside out, so that every sample has
# enough threads and registers.
def tiled(sch: Schedule) -> None:
    """Split rows and columns in three and k in two; vectorise inner columns; run outer rows and columns in parallel."""
    block = sch.get_sblock("gemm")
    i, j, k = sch.get_loops(block)

    def split(loop: LoopRV, parts: int, most: int) -> list[LoopRV]:
        return list(sch.split(loop, sch.sample_perfect_tile(loop, n=parts, max_innermost_factor=most)))

    (i0, i1, i2), (j0, j1, j2), (k0, k1) = split(i, 3, 16), split(j, 3, 64), split(k, 2, 64)
    sch.reorder(i0, j0, i1, j1, k0, k1, i2, j2)
    sch.vectorize(j2)
    sch.annotate(i1, "pragma_auto_unroll_max_step", sch.sample_categorical([0, 64, 512], [1 / 3] * 3))
    sch.annotate(i1, "pragma_unroll_explicit", 1)
    sch.parallel(sch.fuse(i0, j0))
    sch.decompose_reduction(block, k0)


# %% Search, with and without a cost model, and in the automatic space
# ``random`` samples. ``evolutionary-model`` searches as MetaSchedule does: programs evolve, guided by the predictions
# of a model that is trained on the measured ones. ``sketch`` is the automatic space, which MetaSchedule's rules derive
# from the computation; nobody writes a schedule. All this is one study, with a log for each run: when you run the
# script again, it does not repeat logged trials, and with more ``--trials``, it continues. Within the study, no program
# is measured twice, and both searches of the single tile end when its few configs are known.
#
# The log contains the function's name, which is ``__main__:tiled`` if it is defined in a script or notebook. This
# script can read such a log. If others need to read it, put the function into a module and refer to it as
# ``"my_module:tiled"``.
larger = stochastic_schedule_mm_cuda if cuda else tiled
study = searchlab.Study.from_dict(
    {
        "workloads": [str(workload)],
        "spaces": [
            {"name": "trace", "label": "one tile", "options": {"function": stochastic}},
            {"name": "trace", "label": "all tiles", "options": {"function": larger}},
            {"name": "sketch", "label": "automatic"},
        ],
        "policies": ["random", {"name": "evolutionary-model", "options": {"n_startup": 4 if args.small else 8}}],
        "cost_models": [{"name": "xgboost", "features": "program"}],
        "trials": trials,
        "target": target.to_json(),
    }
)
results = study.run(args.out / f"metaschedule-{'small-' if args.small else ''}{target.kind}")

steps = sorted({max(1, trials // 8), max(1, trials // 4), max(1, trials // 2), trials})
print(f"\nBest GFLOPS after so many trials: {''.join(f'{step:9}' for step in steps)}   trials")
for result in results:
    header, curve = result.log.header, result.to_frame()["best_gflops"]
    speeds = "".join(f"{curve[min(step, len(curve)) - 1]:9.1f}" for step in steps)
    print(f"  {header.space_name:10} {header.name:20} {speeds}   {len(curve):6}")

best = max((result.best for result in results), key=lambda best: best.gflops)
print(f"\nThe best of all: {best.gflops:.1f} GFLOPS, here {gflops(best.schedule()):.1f}, of")
print(best.schedule().trace)

# %% Back into the model
# This is a small network in Relax: two linear layers, bias and ReLU. In TensorIR, its first layer is a function that
# computes the workload, whatever its name. ``apply_history_best`` replaces it with the fastest program in the logs; the
# other functions remain unchanged.
batch, classes = size, 10
builder = relax.BlockBuilder()
shapes = {"x": (batch, size), "w0": (size, size), "b0": (size,), "w1": (size, classes)}
variables = [relax.Var(name, relax.TensorType(shape, "float32")) for name, shape in shapes.items()]
with builder.function("main", variables):
    with builder.dataflow():
        x, w0, b0, w1 = variables
        hidden = builder.emit(relax.op.nn.relu(relax.op.add(relax.op.matmul(x, w0), b0)))
        output = builder.emit_output(relax.op.matmul(hidden, w1))
    builder.emit_func_output(output)
model = relax.transform.LegalizeOps()(builder.get())
tuned = searchlab.apply_history_best(model, results, target)

print("\nThe model's functions, and where the tuned program went:")
for variable, function in tuned.functions.items():
    if isinstance(function, tvm.tirx.PrimFunc):
        scheduled = function.attrs.get("tirx.is_scheduled", False)
        print(f"  {variable.name_hint:10} {'tuned' if scheduled else 'as it was'}")

# Run both models in Relax's virtual machine. On a GPU, TVM schedules the functions that have no schedule.
generator = np.random.default_rng(2)
values = [generator.standard_normal(shape).astype("float32") for shape in shapes.values()]
tensors = [tvm.runtime.tensor(value, device) for value in values]
output_expected = np.maximum(values[0] @ values[1] + values[2], 0) @ values[3]
print()
for title, module in (("as it was", model), ("tuned", tuned)):
    machine = relax.VirtualMachine(tvm.compile(module, target.tvm), device)
    np.testing.assert_allclose(machine["main"](*tensors).numpy(), output_expected, rtol=1e-3, atol=1e-3)
    seconds = float(np.median(machine.time_evaluator("main", device, repeat=5, min_repeat_ms=20)(*tensors).results))
    print(f"The model {title}: {1e3 * seconds:.4f} ms, and numpy's result")
