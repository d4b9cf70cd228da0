"""Runs the CUDA source of one kernel on the CPU, so that its result can be checked where there is no GPU.

The threads of a block are coroutines that take turns at every ``__syncthreads()``: what one writes to shared memory
after a barrier, another must not read before the next. A missing barrier shows as a wrong result.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path

import numpy as np
import tvm

from searchlab.space import Config, Space

SHIM = """
#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <ucontext.h>
#include <vector>
using std::max;
#define __global__
#define __launch_bounds__(threads)
#define __shared__ static
#define alignas(bytes)
struct Index { int x, y, z; };
static Index threadIdx, blockIdx;
static ucontext_t scheduler, *running;
static void __syncthreads() { swapcontext(running, &scheduler); }
"""

LAUNCH = """
static void** arguments;
static std::vector<char> finished;
static void thread(int number) { main_kernel(%(call)s); finished[number] = 1; }
extern "C" void launch(void** given) {
  const int threads = %(bx)d * %(by)d * %(bz)d;
  const size_t stack = 1 << 16;
  std::vector<char> memory(stack * threads);
  arguments = given;
  for (int block = 0; block < %(gx)d * %(gy)d * %(gz)d; ++block) {
    blockIdx = {block %% %(gx)d, block / %(gx)d %% %(gy)d, block / (%(gx)d * %(gy)d)};
    std::vector<ucontext_t> contexts(threads);
    finished.assign(threads, 0);
    for (int t = 0; t < threads; ++t) {
      getcontext(&contexts[t]);
      contexts[t].uc_stack.ss_sp = memory.data() + stack * t;
      contexts[t].uc_stack.ss_size = stack;
      contexts[t].uc_link = &scheduler;
      makecontext(&contexts[t], (void (*)())thread, 1, t);
    }
    while (std::count(finished.begin(), finished.end(), 0))
      for (int t = 0; t < threads; ++t) {
        if (finished[t]) continue;
        threadIdx = {t %% %(bx)d, t / %(bx)d %% %(by)d, t / (%(bx)d * %(by)d)};
        running = &contexts[t];
        swapcontext(&scheduler, running);
      }
  }
}
"""


def cuda_source(space: Space, config: Config) -> str:
    """Return the CUDA C++ that TVM generates for a config, without compiling it."""
    executable = tvm.compile(space.schedule(config).mod, target=tvm.target.Target(space.target.tvm, host="llvm"))
    return str(executable.mod.imports[0].inspect_source())


def result_on_cpu(space: Space, config: Config, folder: Path) -> np.ndarray:
    """Return the result of the config's single kernel for the workload's inputs. Requires g++."""
    workload = space.workload
    *_, shape = workload.shapes.values()
    result = np.full(shape, 77, workload.out_dtype)
    inputs = workload.inputs()
    arrays = {"bias_in" if name == "bias" else name: array for name, array in inputs.items()}

    source = cuda_source(space, config)
    extents = dict.fromkeys(("gx", "gy", "gz", "bx", "by", "bz"), 1)
    for extent, kind, axis in re.findall(
        r'(\d+), thread="(block|thread)Idx\.(\w)"', space.schedule(config).mod.script()
    ):
        extents[("g" if kind == "block" else "b") + axis] = int(extent)
    (signature,) = set(re.findall(r"main_kernel\((.*)\)", source))
    parameters = re.findall(r"(\w+ ?\w*)\* __restrict__ (\w+)_ptr", signature)
    operands = [arrays.get(name, result) for _, name in parameters]
    call = ", ".join(f"({kind}*)arguments[{i}]" for i, (kind, _) in enumerate(parameters))

    (folder / "cuda.h").touch()
    (folder / "kernel.cpp").write_text(SHIM + source + LAUNCH % {"call": call, **extents})
    command = ["g++", "-w", "-O1", "-shared", "-fPIC", f"-I{folder}", "-o", "kernel.so", "kernel.cpp"]
    subprocess.run(command, cwd=folder, check=True)
    pointers = (ctypes.c_void_p * len(operands))(*[array.ctypes.data for array in operands])
    ctypes.CDLL(str(folder / "kernel.so")).launch(pointers)
    return result
