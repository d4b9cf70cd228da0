"""An nvcc that makes a shared library for the CPU of TVM's CUDA C++, for the emulated GPU of ``runtime.c``.

The threads of a block are coroutines, as in :mod:`tests.support.spaces.cuda_on_cpu`.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.spaces.cuda_on_cpu import SHIM

MORE = """
#include <unistd.h>
extern "C" void emulated_trap();
static void __trap() { emulated_trap(); }
static void __nanosleep(unsigned nanoseconds) { usleep(nanoseconds / 1000); }
#define __device__
#define __forceinline__ inline
#define VECTORS(T) \\
  struct __attribute__((aligned(2 * sizeof(T)))) T##2 { T x, y; }; \\
  struct T##3 { T x, y, z; }; \\
  struct __attribute__((aligned(4 * sizeof(T)))) T##4 { T x, y, z, w; }; \\
  static T##2 make_##T##2(T x, T y) { return {x, y}; } \\
  static T##3 make_##T##3(T x, T y, T z) { return {x, y, z}; } \\
  static T##4 make_##T##4(T x, T y, T z, T w) { return {x, y, z, w}; }
VECTORS(float) VECTORS(int) VECTORS(double)
"""

ASYNC = r'asm volatile\("cp\.async\.(?:wait_group \d+|commit_group);"[^;]*;'
"""Waits for copies, which are all made at once here."""

EMULATE = """
static void (*kernel)(void**);
static void** arguments;
static std::vector<char> finished;
static void thread(int number) { kernel(arguments); finished[number] = 1; }
extern "C" void emulate(void (*function)(void**), void** given, const unsigned* dims) {
  const int threads = dims[3] * dims[4] * dims[5], stack = 1 << 17;
  std::vector<char> memory((size_t)stack * threads);
  kernel = function;
  arguments = given;
  for (unsigned block = 0; block < dims[0] * dims[1] * dims[2]; ++block) {
    blockIdx = {int(block % dims[0]), int(block / dims[0] % dims[1]), int(block / (dims[0] * dims[1]))};
    std::vector<ucontext_t> contexts(threads);
    finished.assign(threads, 0);
    for (int t = 0; t < threads; ++t) {
      getcontext(&contexts[t]);
      contexts[t].uc_stack.ss_sp = memory.data() + (size_t)stack * t;
      contexts[t].uc_stack.ss_size = stack;
      contexts[t].uc_link = &scheduler;
      makecontext(&contexts[t], (void (*)())thread, 1, t);
    }
    while (std::count(finished.begin(), finished.end(), 0))
      for (int t = 0; t < threads; ++t) {
        if (finished[t]) continue;
        threadIdx = {int(t % dims[3]), int(t / dims[3] % dims[4]), int(t / (dims[3] * dims[4]))};
        running = &contexts[t];
        swapcontext(&scheduler, running);
      }
  }
}
"""


def launcher(name: str, parameters: str) -> str:
    """A function that calls the kernel ``name`` with the values that an array points to."""
    types = [re.sub(r"__restrict__|\w+$", "", parameter.strip()) for parameter in parameters.split(",") if parameter]
    values = ", ".join(f"*({kind}*)given[{number}]" for number, kind in enumerate(types))
    return f'extern "C" void {name}__run(void** given) {{ {name}({values}); }}\n'


def main() -> int:
    source = Path(sys.argv[-1]).read_text()
    output = sys.argv[sys.argv.index("-o") + 1]
    source = re.sub(ASYNC, "", source)
    # TVM bounds no block of a single thread.
    kernels = re.findall(r"__global__ void (?:__launch_bounds__\(\d+\) )?(\w+)\((.*)\) \{", source)
    with tempfile.TemporaryDirectory() as folder:
        for header in re.findall(r"#include <(cuda\w*\.h)>", source):
            Path(folder, header).touch()
        program = Path(folder, "kernel.cpp")
        program.write_text(SHIM + MORE + source + "".join(launcher(*kernel) for kernel in kernels) + EMULATE)
        # A GPU refuses vectors at other addresses than multiples of their size.
        aligned = ["-fsanitize=alignment", "-fsanitize-undefined-trap-on-error"]
        words = ["g++", "-w", "-O1", *aligned, "-shared", "-fPIC", f"-I{folder}", "-o", output, str(program)]
        return subprocess.run(words).returncode


if __name__ == "__main__":
    sys.exit(main())
