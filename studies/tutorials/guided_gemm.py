"""A guided GEMM, from three loops to a micro-kernel: what each step brings, and what is left to search.

    python studies/tutorials/guided_gemm.py [--small] [--trials 16] [--out DIR]

Read this script from top to bottom, or run it cell by cell in an editor that supports ``# %%``. It times a 512 x 512 x
512 GEMM as its definition, in blocks, packed, and with a micro-kernel; shows the block sizes that follow from the
caches; varies packing, the six algorithms and data types; and ends with the GEMMs of ResNet-50 beside numpy's BLAS. It
is for CPUs only, because a GPU does not have these caches.

Each search tries 16 programs, 580 in all, which takes two and a half minutes on two cores, or 20 s with ``--small``. On
two idle cores of an AMD EPYC (Zen 5), its output included:

    Variants, the best of 16:
      basic          nr 64                        2.764 ms     97.1 GFLOPS
      blocked        mr 16 x nr 64                2.469 ms    108.7 GFLOPS
      packed         mr 1 x nr 48                 1.470 ms    182.6 GFLOPS
      micro-kernel   mr 9 x nr 32                 0.610 ms    440.0 GFLOPS
    ...
    Geometric mean of the ratios over 20 layers: 1.23
"""

# %% Imports and options
from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_info

import searchlab
from searchlab.workload import preset_names
from searchlab_spaces.guided.blis_model import compute_blocking, kc_for, mc_for, nc_for
from searchlab_spaces.guided.common import UNROLLED_STEPS
from searchlab_spaces.guided.gemm_algorithms import ALGORITHMS

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--small", action="store_true", help="only size 96, two layers and 2 trials, which takes seconds")
parser.add_argument("--trials", type=int, help="number of trials in each space (16; 2 with --small)")
parser.add_argument("--out", type=Path, default=Path("results/tutorials"), help="directory for the logs")
args = parser.parse_args([] if "ipykernel" in sys.modules else None)
trials = (2 if args.small else 16) if args.trials is None else args.trials
out = args.out / ("guided_gemm-small" if args.small else "guided_gemm")

target = searchlab.resolve_target("native")
size = 96 if args.small else 512
name = f"gemm:{size}x{size}x{size}"
print(f"{name} on {target.spec['mcpu']}, {target.cores} cores, vectors of {target.simd_bytes} bytes\n")


# %% How each question is asked
# Each section compares spaces or workloads in a study: every workload is searched in every space, and each run has a
# log. Trials that are already logged are not measured again, and neither are programs that were already measured in
# another space of the study. Random search is good enough here, because only the micro-tile is open: mr rows by nr
# columns of C that stay in registers during the sum over k.
def search(study: str, workloads: Sequence[str], spaces: Mapping[str, dict[str, Any]]) -> list[searchlab.Result]:
    """Run ``trials`` trials for each workload and each space; ``spaces`` maps labels to options."""
    settings = {
        "workloads": list(workloads),
        "spaces": [{"name": "guided-gemm", "label": label, "options": options} for label, options in spaces.items()],
        "policies": ["random"],
        "trials": trials,
        "target": "native",
        "measure": {"kind": "local", "min_repeat_ms": 1 if args.small else 10},
    }
    return searchlab.Study.from_dict(settings).run(out / study)


def line(label: str, result: searchlab.Result) -> str:
    """Describe the best program of a run by its micro-tile, its median time, and GFLOPS."""
    best = result.best
    tile = " x ".join(f"{knob} {value}" for knob, value in best.config.items())
    return f"  {label:14} {tile:24} {1e3 * best.seconds:9.3f} ms {best.gflops:8.1f} GFLOPS"


# All questions about one GEMM form one study, in which the default of each option needs to be a space only once.
variants = {variant: {"variant": variant} for variant in ("basic", "blocked", "packed", "micro-kernel")}
packing = {"neither": {"pack_a": False, "pack_b": False}, "B": {"pack_a": False}, "A": {"pack_b": False}}
algorithms = {algorithm: {"algorithm": algorithm} for algorithm in ALGORITHMS if algorithm != "B3A2C0"}
spaces = {**variants, **packing, **algorithms, "searched blocks": {"blocks": "knobs"}}
by_space = dict(zip(spaces, search("spaces", [name], spaces), strict=True))
default = by_space["micro-kernel"]

# %% From basic to micro-kernel
# Each variant adds one step to the previous one. ``basic`` is the three loops of the definition, with j vectorised.
# ``blocked`` adds five loops around them, over blocks that stay in the caches and over micro-tiles. ``packed`` first
# copies each block into the order in which it is read. ``micro-kernel`` also keeps the micro-tile in registers.
print(f"Variants, the best of {trials}:")
for variant in variants:
    print(line(variant, by_space[variant]))

# The program itself: the loops around the micro-kernel, from the outermost inwards. Loops named ``ax`` do the
# packing.
print("\nThe loops of the best program with a micro-kernel:")
for text in default.best.schedule().mod.script().splitlines():
    if text.lstrip().startswith(("for ", "with T.sblock(")):
        print(text.removeprefix("    "))

# %% What the model computes
# mc, nc and kc are not searched. They follow from the caches (Low et al., "Analytical Modeling Is Enough for
# High-Performance BLIS", 2016): a micro-panel of A, mr x kc, and one of B, kc x nr, stay in L1; a block of A, mc x
# kc, in L2; and a panel of B, kc x nc, in L3. ``kc_for``, ``mc_for`` and ``nc_for`` are the paper's formulas.
# ``blocking`` then balances the blocks for this problem and these cores, and takes all of k at once as long as the
# micro-panels fit into L2.
gemm = searchlab.parse_workload(name)
assert isinstance(gemm, searchlab.workload.Gemm)
print("\nCaches:", ", ".join(f"L{i} {c.size >> 10} KiB, {c.ways} ways" for i, c in enumerate(target.caches, 1)))
print("   mr   nr    paper:  kc    mc     nc    here:  kc    mc    nc")
itemsize = np.dtype(gemm.dtype).itemsize
lanes = target.simd_bytes // itemsize
for mr, nr in ((4, lanes), (8, 2 * lanes), (14, 2 * lanes), (6, 4 * lanes)):
    kc = kc_for(target.caches[0], mr, nr, itemsize)
    mc = mc_for(target.caches[1], mr, nr, kc, itemsize)
    # Without an L3, B streams from memory, however wide its panel is.
    nc = nc_for(target.caches[2], nr, kc, mc, itemsize) if len(target.caches) > 2 else gemm.n
    cut = compute_blocking(gemm, target, ALGORITHMS["B3A2C0"], {"i": mr, "j": nr, "p": UNROLLED_STEPS}, target.cores)
    print(f"  {mr:3}  {nr:3}          {kc:4}  {mc:4}  {nc:5}          {cut.kc:4}  {cut.mc:4}  {cut.nc:4}")

# Does the model leave much to be found? With ``blocks="knobs"``, mc, nc and kc are searched as well.
knobs = by_space["searched blocks"].best
print(f"\nBlocks by the model, and mc, nc and kc searched too, the best of {trials}:")
print(f"  {default.best.gflops:.1f} and {knobs.gflops:.1f} GFLOPS; the latter with {dict(knobs.config)}")

# %% Packing
# A packed copy is read sequentially, without strides that miss the TLB or compete for the same few sets of a cache.
# Packing costs one pass over the operand, so it pays off if the operand is read often: A if there are many columns, B
# if there are many rows. With ``"knob"`` as the value of an option, the search decides.
print(f"\nPacked operands, the best of {trials}:")
for label in packing:
    print(line(label, by_space[label]))
print(line("both", default))

# %% Algorithms
# B3A2C0 is the algorithm used by GotoBLAS and BLIS: a block of B stays in L3, one of A in L2, and a micro-tile of C in
# registers. The other algorithms in the family assign these places to different operands. If A or B is in registers, C
# streams through them and is written in every step; the micro-tile is then kr x mr or kr x nr.
print(f"\nAlgorithms, the best of {trials}:")
print(line("B3A2C0", default))
for algorithm in algorithms:
    print(line(algorithm, by_space[algorithm]))

# %% Dtypes
# The same schedule works for any data type; only the number of elements in a vector differs. int8 is summed in int32,
# and float16 in float16, for which few CPUs have instructions. For int8, a FLOP is an operation on integers.
dtypes = ("float32", "float64", "float16", "int8")
print(f"\nDtypes, the best of {trials}:")
for dtype, result in zip(
    dtypes, search("dtypes", [f"{name}:{dtype}" for dtype in dtypes], {"default": {}}), strict=True
):
    print(line(dtype, result))

# %% The layers of ResNet-50
# This compares each distinct GEMM that im2row derives from a convolution of ResNet-50 v1.5 at batch 1 with numpy's
# BLAS. Our figure is what the search measured; numpy is timed afterwards in this process, which is good enough to see
# what to expect. studies/benchmarks/kernels.py times both in turn, on the same memory: see docs/results/kernels.md. If
# OPENBLAS_CORETYPE is set, OpenBLAS does not use the kernels for this CPU.
layers: dict[searchlab.Workload, str] = {}
for preset in preset_names():
    if "/gemm" in preset:
        layers.setdefault(searchlab.parse_workload(preset), preset)
if args.small:
    small_layers = ("resnet50/gemm2.1a", "resnet50/gemm5.2a")
    layers = {layer: preset for layer, preset in layers.items() if preset in small_layers}


def blas_seconds(layer: searchlab.Workload) -> float:
    """Return the median time of numpy's matmul over a tenth of a second, after a call that wakes its threads."""
    a, b = layer.inputs().values()
    result = np.matmul(a, b)
    times: list[float] = []
    while sum(times) < 0.1:
        start = time.perf_counter()
        np.matmul(a, b, out=result)
        times.append(time.perf_counter() - start)
    return float(np.median(times))


kernels = next((info.get("architecture") for info in threadpool_info() if info["user_api"] == "blas"), "unknown")
print(f"\nThe GEMMs of ResNet-50, the best of {trials}, A read in place; numpy's BLAS has chosen {kernels} kernels:")
print("  layer                       M x N x K        mr x nr  packed   GFLOPS   numpy's   ratio")
ratios = []
results = search("layers", list(layers.values()), {"pack_b": {"pack_a": False, "pack_b": "knob"}})
for (layer, preset), result in zip(layers.items(), results, strict=True):
    assert isinstance(layer, searchlab.workload.Gemm)
    best = result.best
    blas = layer.flops / blas_seconds(layer) / 1e9
    ratios.append(best.gflops / blas)
    shape, tile = f"{layer.m} x {layer.n} x {layer.k}", f"{best.config['mr']} x {best.config['nr']}"
    packed = "B" if best.config["pack_b"] else "-"
    print(f"  {preset:18} {shape:>20} {tile:>12} {packed:>7} {best.gflops:8.1f} {blas:9.1f} {ratios[-1]:7.2f}")
print(f"Geometric mean of the ratios over {len(ratios)} layers: {np.exp(np.mean(np.log(ratios))):.2f}")
