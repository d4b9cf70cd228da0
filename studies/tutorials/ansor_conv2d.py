"""Ansor's tutorial "Auto-scheduling a Convolution Layer", in searchlab: a computation alone, and a program for it.

    python studies/tutorials/ansor_conv2d.py [--small] [--trials 64] [--out DIR] [--target native|cuda]

Read this script from top to bottom, or run it cell by cell in an editor that supports ``# %%``. It declares a
convolution with bias and ReLU, prints its DAG and the sketches that follow from it, searches them by evolution on a
cost model, applies, checks, times and shows the best program, and then continues with 5 more trials. Without
``--target`` it tunes for the GPU of this machine or, if there is none, for the CPU.

The full size is the last 3x3 layer of ResNet-50 and takes about a minute on two cores. On two idle cores of an AMD EPYC
(Zen 5), its output included::

    conv2d(n, f, y, x) += (pad[n, rc, (y+ry), (x+rx)]*weight[f, rc, ry, rx])
    Sketch 0 of 3:
    The best of 64 trials in results/tutorials/ansor_conv2d-llvm.jsonl: 172.1 GFLOPS, Config({'sketch': 0, ...
    The result is what numpy computes.
    One run takes 1.4000 ms: 165.1 GFLOPS.
    69 trials in the log: 64 as they were, 5 new.
    The best now: 176.7 GFLOPS, trial 59.

The fastest programs are timed again at the end of each run, hence two figures for the best program. On one NVIDIA
H200, 64 trials of ``xgb`` in the same space find a program that takes 0.0605 ms (Ansor's page: 0.336 ms, on another
GPU); see ``studies/RESULTS.md``.
"""

# %% Imports and options
from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import numpy as np
import tvm

import searchlab
from searchlab.apply import build_best, program_text
from searchlab.machine.cuda import gpu_name
from searchlab.measure.code import device_of
from searchlab_spaces.sketch import Sketch

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--small", action="store_true", help="only 14x14x16, 6 trials and small generations")
parser.add_argument("--trials", type=int, help="number of trials, before 5 additional ones (64; 6 with --small)")
parser.add_argument("--out", type=Path, default=Path("results/tutorials"), help="directory for the log")
parser.add_argument("--target", help="native, cuda or any other target (the GPU if there is one, otherwise the CPU)")
args = parser.parse_args([] if "ipykernel" in sys.modules else None)
trials = (6 if args.small else 64) if args.trials is None else args.trials

try:
    target = searchlab.resolve_target(args.target or ("cuda" if gpu_name() else "native"))
except searchlab.SearchlabError as error:  # the requested GPU is missing
    sys.exit(str(error))

# %% Define the computation
# As in the tutorial, this is the last 3x3 layer of ResNet-50, with bias and ReLU. It needs neither a template nor a
# schedule.
n, h, w, co, ci = (1, 14, 14, 16, 16) if args.small else (1, 7, 7, 512, 512)
workload = searchlab.conv2d(n, h, w, co, ci, 3, 3, stride=1, padding=1, bias=True, relu=True)
print(f"{workload}, {workload.flops / 1e6:.1f} MFLOP, on {target.kind}\n")

# %% Its DAG, and the sketches
# A sketch is the structure of a program: which loops are tiled and how deeply, and what is inlined, cached or
# computed where. Its numbers are left open. Sketches are derived from the computation by rules; here the rules are
# those of MetaSchedule, TVM's successor to Ansor. In a printed sketch, each ``sample_`` is an open choice.
space = Sketch(workload, target)
print("Computational DAG:")
print(space.dag())
for number, sketch in enumerate(space.sketches):
    print(f"\nSketch {number} of {len(space.sketches)}:")
    print(sketch)

# %% Search
# ``evolutionary-model`` searches like Ansor: programs evolve for several generations, guided by the predictions of a
# cost model that is trained on all trials so far, and the best of them are measured. ``features="program"`` is also
# Ansor's choice: instead of the knobs, the model sees the loops and memory accesses of each store in the program. The
# first 8 trials are random.
options = {"n_startup": 8, **({"population": 32} if args.small else {})}
log = args.out / f"ansor_conv2d-{'small-' if args.small else ''}{target.kind}.jsonl"


def search(trials: int) -> searchlab.Result:
    """Run the search for ``trials`` trials. Trials in the log are reused; new ones are printed."""

    def show(trial: searchlab.Trial, replayed: bool) -> None:
        if not replayed:
            outcome = trial.measurement.failure or f"{workload.flops / trial.cost / 1e9:7.1f} GFLOPS"
            print(f"  trial {trial.index:3d}: {outcome}", flush=True)

    return searchlab.tune(
        workload,
        space="sketch",
        policy={"name": "evolutionary-model", "options": options},
        features="program",
        trials=trials,
        seed=0,
        target=target,
        log=log,
        on_trial=show,
    )


print(f"\nSearch, {trials} trials:")
result = search(trials)

# %% Apply the best
# The log is all that is needed: from it, searchlab recreates the schedule and its module, an ordinary TVM module.
schedule, module = searchlab.apply_best(log)
print(f"\nThe best of {len(result.trials)} trials in {log}: {result.best.gflops:.1f} GFLOPS, {result.best.config}")

# %% Check it, and time it
# By default, TVM would use half of the logical cores. Before anything runs in this process, it is therefore told to use
# as many as the trials did.
os.environ.setdefault("TVM_NUM_THREADS", str(target.cores))
function = build_best(result.best).jit()
device = device_of(target.kind)
inputs = workload.inputs(seed=1)
unwritten = np.full(list(workload.shapes.values())[-1], np.nan, workload.out_dtype)
arguments = [tvm.runtime.tensor(array, device) for array in [*inputs.values(), unwritten]]
function["main"](*arguments)
rtol, atol = workload.tolerance()
np.testing.assert_allclose(arguments[-1].numpy(), workload.reference(inputs), rtol=rtol, atol=atol)
print("\nThe result is what numpy computes.")

timer = function.time_evaluator("main", device, repeat=5, min_repeat_ms=50)
seconds = float(np.median(timer(*arguments).results))
print(f"One run takes {seconds * 1e3:.4f} ms: {workload.flops / seconds / 1e9:.1f} GFLOPS.")

# %% Look at it
# You can print the program as TensorIR, and as generated code. ``kernel`` is the part that takes most of the time: the
# kernels in CUDA C++ for a GPU, or the innermost loop in assembly for a CPU. On the command line, use ``searchlab best
# LOG --show tir`` and ``kernel``; ``source`` and ``asm`` print all of the code, and ``python`` a script that needs only
# TVM.
best = result.best
print("\nTensorIR:")
print(module.script())
lines = program_text(best, "kernel").splitlines()
title = "its CUDA kernel" if target.kind == "cuda" else "its innermost loop, in assembly"
print(f"\nThe first of {len(lines)} lines of {title}:")
print("\n".join(lines[:40]))

# %% Go on with 5 more trials
# To resume a search, run it again with more ``trials``: a new policy starts and is told about the logged trials; then
# new programs are measured. The existing content of the log stays the same, byte for byte.
before = log.read_bytes()
logged = result.trials
print(f"\nThe search again, {trials + 5} trials:")
resumed = search(trials + 5)
assert resumed.trials[: len(logged)] == logged, "a trial was measured again"
assert log.read_bytes().startswith(before), "the log was rewritten"
print(
    f"\n{len(resumed.trials)} trials in the log: {len(logged)} as they were, {len(resumed.trials) - len(logged)} new."
)
print(f"The best now: {resumed.best.gflops:.1f} GFLOPS, trial {resumed.best.trial.index}.")
