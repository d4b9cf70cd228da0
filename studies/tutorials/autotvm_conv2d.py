"""AutoTVM's tutorial "Tuning High Performance Convolution on NVIDIA GPUs", in searchlab: a template and its search.

    python studies/tutorials/autotvm_conv2d.py [--small] [--trials 20] [--out DIR] [--target native|cuda]

Read this script from top to bottom, or run it cell by cell in an editor that supports ``# %%``. It writes a schedule
with open numbers, prints the space that results, searches it with 20 trials of xgb, and checks and times the best
program. Without ``--target`` it tunes for the GPU of this machine or, if there is none, for the CPU.

The full size is AutoTVM's workload, (1, 7, 7, 512, 512, 3, 3, (1, 1), (1, 1)), and takes about 15 seconds on two cores.
On two idle cores of an AMD EPYC (Zen 5), its output included::

    ConfigSpace (len=11520, range_length=11520, space_map=
    The space of AutoTVM's tutorial has 10,454,400 configs:
    [('tile_f', [-1, 8]), ('tile_y', [-1, 7]), ('tile_x', [-1, 1]), ('tile_rc', [-1, 2]), ('order', [2, 1, 0]),
     ('unroll', ['unroll', 'unroll']), ('pack_weight', 1)],None,11313
    The result is what numpy computes.
    One run takes 1.5594 ms: 148.3 GFLOPS.

With ``--target cuda``, on one NVIDIA H200, 8 of 20 configs exceed a limit of the GPU, and the best program takes
0.1726 ms (AutoTVM's page: 0.902 ms, on another GPU; with 64 trials: 0.063 ms)::

    [('tile_f', [-1, 2, 1, 2]), ('tile_y', [-1, 1, 7, 1]), ('tile_x', [-1, 1, 1, 7]), ('tile_rc', [-1, 4, 4]),
     ('tile_ry', [-1, 3, 1]), ('tile_rx', [-1, 3, 1]), ('auto_unroll_max_step', 1500),
     ('unroll_explicit', 1)],None,9563456
    One run takes 0.1726 ms: 1339.3 GFLOPS.
"""

# %% Imports and options
from __future__ import annotations

import argparse
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import tvm

import searchlab
from searchlab.apply import build_best
from searchlab.errors import InvalidConfig
from searchlab.machine.cuda import gpu_name
from searchlab.measure.code import device_of
from searchlab_spaces.templates import KnobTemplate, TemplateConfig, template

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--small", action="store_true", help="only 14x14x16 and 10 trials, which takes seconds")
parser.add_argument("--trials", type=int, help="number of trials (20; 10 with --small)")
parser.add_argument("--out", type=Path, default=Path("results/tutorials"), help="directory for the log")
parser.add_argument("--target", help="native, cuda or any other target (the GPU if there is one, otherwise the CPU)")
args = parser.parse_args([] if "ipykernel" in sys.modules else None)
trials = (10 if args.small else 20) if args.trials is None else args.trials

try:
    target = searchlab.resolve_target(args.target or ("cuda" if gpu_name() else "native"))
except searchlab.SearchlabError as error:  # the requested GPU is missing
    sys.exit(str(error))

# %% The workload
# As in the tutorial, this is the last 3x3 layer of ResNet-50. A workload also has a spelling, which identifies it in
# files and on the command line.
full = searchlab.conv2d(1, 7, 7, 512, 512, 3, 3, stride=1, padding=1)
workload = searchlab.conv2d(1, 14, 14, 16, 16, 3, 3, stride=1, padding=1) if args.small else full
print(f"{workload}, {workload.flops / 1e6:.1f} MFLOP, on {target.kind}\n")


# %% Step 1: define the search space
# A template is a schedule that asks ``cfg`` for its numbers. First it defines its knobs on the loops of the workload:
#
# - ``define_split``: how a loop is split into nested loops. ``cfg[name].apply(sch, loop)`` splits it, and ``.size``
#   contains the lengths. Each length divides that of the loop, so no iteration is wasted.
# - ``define_reorder``: the order of nested loops.
# - ``define_annotate``: which loops are unrolled (or vectorised, with a different policy).
# - ``define_knob``: any value from a list, which the template may use as it likes.
#
# The policies are AutoTVM's. Here all knobs are defined on the loops of the workload before any of them is split, and
# are applied to the resulting loops: the order of three reduction loops is the same knob, whichever of their parts it
# is applied to. As in AutoTVM, ``define_split`` also returns the parts, for knobs that apply to them.
#
# This template is for CPUs. It vectorises ``lanes`` channels; a tile of pixels is unrolled and kept in registers during
# the reduction. The result is then written in NCHW.
@template("tutorial_conv2d", op="conv2d", target="llvm")
def tutorial_conv2d(cfg: TemplateConfig, sch: Schedule, target: searchlab.Target) -> None:
    """Direct convolution of a padded NCHW image, tiled over channels and pixels, and blocked by channels inside."""
    conv = sch.get_sblock("conv2d")
    _, f, y, x, rc, ry, rx = sch.get_loops(conv)
    cfg.define_split("tile_f", f, num_outputs=2, max_factor=32)
    cfg.define_split("tile_y", y, num_outputs=2, max_factor=16)
    cfg.define_split("tile_x", x, num_outputs=2, max_factor=16)
    cfg.define_split("tile_rc", rc, num_outputs=2)
    cfg.define_reorder("order", [rc, ry, rx], policy="all")
    cfg.define_annotate("unroll", [ry, rx], policy="try_unroll")
    cfg.define_knob("pack_weight", [0, 1])

    lanes = cfg["tile_f"].size[1]
    if cfg["pack_weight"].val:  # [co, ci, kh, kw] -> [co / lanes, ci, kh, kw, lanes], in every run of the program
        packed = sch.cache_read(conv, 1, "global")
        sch.transform_layout(packed, ("write", 0), lambda o, i, a, b: (o // lanes, i, a, b, o % lanes))
        sch.parallel(sch.get_loops(packed)[0])
    result = sch.cache_write(conv, 0, "global")
    sch.transform_layout(conv, ("write", 0), lambda n, o, h, w: (n, o // lanes, h, w, o % lanes))

    n, f, y, x, rc, ry, rx = sch.get_loops(conv)
    f_outer, f_inner = cfg["tile_f"].apply(sch, f)
    y_outer, y_inner = cfg["tile_y"].apply(sch, y)
    x_outer, x_inner = cfg["tile_x"].apply(sch, x)
    rc_outer, rc_inner = cfg["tile_rc"].apply(sch, rc)
    sch.reorder(n, f_outer, y_outer, x_outer, rc_outer, rc_inner, ry, rx, y_inner, x_inner, f_inner)
    cfg["order"].apply(sch, [rc_inner, ry, rx])
    cfg["unroll"].apply(sch, [ry, rx])
    sch.unroll(y_inner)
    sch.unroll(x_inner)
    sch.vectorize(f_inner)
    for loops in ([n, f_outer, y_outer], sch.get_loops(result)[:2], sch.get_loops(sch.get_sblock("pad"))[:2]):
        sch.parallel(sch.fuse(*loops))
    sch.decompose_reduction(conv, rc_outer)


# The decorator registers the template in this process only. In a module of its own, named as ``"module:function"``,
# it is also found by ``searchlab best``, which recreates the programs of a log. For CUDA, the template of AutoTVM's
# tutorial is included in searchlab, under its original name.
template_name = "conv2d_no_batching" if target.kind == "cuda" else "tutorial_conv2d"
space = KnobTemplate(workload, target, template=template_name)
print(f"The space of {template_name}:")
print(space)

# %% AutoTVM's own space
# Every config has an index, which is the same as in AutoTVM and in its published logs. A space can be inspected without
# the device that it is for. This is the tutorial's space, with the best config from the log that was published with it:
# number 9,881,539 of 10,454,400.
hopper = searchlab.resolve_target({"kind": "cuda", "arch": "sm_90"})
original = KnobTemplate(full, hopper, template="tutorial/conv2d_no_batching")
published = original.config_at(9881539)
assert original.index_of(published) == 9881539 and published in original
print(f"The space of AutoTVM's tutorial has {len(original):,} configs:")
print(original)
print(f"Its config 9881539: {original.show(published)}\n")

# %% AutoTVM's 20 trials
# These are the trials on the tutorial's page for TVM 0.8, in order. AutoTVM found 16 of them to be invalid after it
# had lowered their programs. searchlab knows from the schedule which limit of a GPU a program exceeds, also for the
# one that took too long to build. It accepts the other three. On another build of the page, all three ran, and the
# last one, the best, reached 299 GFLOPS.
trials_of_page = {
    7999494: "invalid",
    5194279: "invalid",
    9069983: "invalid",
    736818: "invalid",
    2885496: "invalid",
    3754080: "60.26 GFLOPS",
    6225319: "invalid",
    943546: "invalid",
    2868708: "invalid",
    4691833: "build timeout",
    1042124: "invalid",
    10013405: "invalid",
    6732082: "invalid",
    7536735: "invalid",
    482121: "invalid",
    2824525: "invalid",
    4559286: "invalid",
    9677544: "invalid",
    6390073: "run error",
    9881539: "144.48 GFLOPS",
}
print(f"{'index':>8}  {'AutoTVM':13}  searchlab")
for index, outcome in trials_of_page.items():
    try:
        original.schedule(original.config_at(index))
        verdict = "valid"
    except InvalidConfig as error:
        verdict = f"invalid: {error}"
    print(f"{index:8}  {outcome:13}  {verdict}")

# %% Step 2: search through the space
# ``xgb`` searches like AutoTVM's XGBTuner: simulated annealing on the predictions of an XGBoost model that is trained
# on all trials so far. The first 8 trials are random. Every trial is logged before the next batch begins: when you run
# the script again, it does not repeat logged trials, and with more ``--trials``, it continues.
#
# At level INFO, the logger ``searchlab`` reports each new trial with its result, the best one so far and its config. On
# the command line, ``searchlab tune -v`` does the same.
logging.basicConfig(stream=sys.stdout, format="  %(message)s")
logging.getLogger("searchlab").setLevel(logging.INFO)
log = args.out / f"autotvm_conv2d-{'small-' if args.small else ''}{target.kind}.jsonl"


result = searchlab.tune(
    workload,
    space=space,
    policy={"name": "xgb", "options": {"n_startup": 8}},
    trials=trials,
    seed=0,
    log=log,
)

# %% The best config
# Each program was checked when it first ran, and the fastest five were timed again in turn at the end.
best = result.best
print(f"\nBest config, of {len(result.trials)} trials in {log}:")
print(space.show(best.config))
print(f"index {space.index_of(best.config)} of {len(space)}, a member: {best.config in space}")

# %% Check it, and time it
# The program is an ordinary TVM module. By default, TVM would use half of the logical cores. Before anything runs in
# this process, it is therefore told to use as many as the trials did.
os.environ.setdefault("TVM_NUM_THREADS", str(target.cores))
module = build_best(best).jit()
device = device_of(target.kind)
inputs = workload.inputs(seed=1)
unwritten = np.full(list(workload.shapes.values())[-1], np.nan, workload.out_dtype)
arguments = [tvm.runtime.tensor(array, device) for array in [*inputs.values(), unwritten]]
module["main"](*arguments)
rtol, atol = workload.tolerance()
np.testing.assert_allclose(arguments[-1].numpy(), workload.reference(inputs), rtol=rtol, atol=atol)
print("The result is what numpy computes.")

timer = module.time_evaluator("main", device, repeat=5, min_repeat_ms=50)
seconds = float(np.median(timer(*arguments).results))
print(f"One run takes {seconds * 1e3:.4f} ms: {workload.flops / seconds / 1e9:.1f} GFLOPS.")
