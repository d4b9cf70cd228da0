"""This machine's NVIDIA GPU, as TVM reports it, and the compiler for its kernels."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import shutil
from contextlib import suppress

from ..errors import SearchlabError

COMPILER_VARIABLE = "TVM_CUDA_COMPILE_MODE"
"""The environment variable that makes TVM use nvcc or nvrtc."""

CUDA_LIBRARIES = ("libcuda.so.1", "libcudart.so.13")
"""The libraries against which TVM 0.27 links its CUDA runtime."""

MEASURE_ELSEWHERE = "use another machine or recorded measurements: measure = {kind = 'table', ...}"


def gpu_name() -> str | None:
    """Return the first GPU's name, or None if there is no GPU, no driver, or no CUDA runtime that TVM can load."""
    import tvm

    device = tvm.cuda(0)
    return str(device.device_name) if device.exist else None


def gpu_arch() -> str | None:
    """Return the first GPU's architecture, for example ``sm_90``, or None if :func:`gpu_name` returns None.

    The GPU's other properties are not read. In particular, TVM reports the amount of shared memory to which a kernel
    may opt in, but static arrays have a lower limit (CUDA C++ Programming Guide, table of technical specifications).
    """
    import tvm

    device = tvm.cuda(0)
    return "sm_" + str(device.compute_version).replace(".", "") if device.exist else None


def check_can_measure(arch: str) -> None:
    """Raise SearchlabError unless programs for ``arch`` can be compiled and run on this machine."""
    own_arch = gpu_arch()
    if own_arch is None:
        raise SearchlabError(f"no CUDA device was found: {_explain_absence()}; {MEASURE_ELSEWHERE}")
    if not runs_on(arch, own_arch):
        raise SearchlabError(
            f"programs for {arch!r} cannot run on this machine's GPU, {own_arch!r} ({gpu_name()}); choose a target "
            f"with the architecture {own_arch!r}"
        )
    choose_compiler()


def runs_on(arch: str, gpu: str) -> bool:
    """Check whether machine code for ``arch`` runs on a GPU with the architecture ``gpu``.

    Code runs on architectures with the same major version and the same or a later minor version. Code that uses
    architecture-specific features (``sm_90a``) runs only on that architecture (CUDA C++ Programming Guide, section on
    binary compatibility).
    """
    program_arch, gpu_arch_match = re.fullmatch(r"sm_(\d+)(\d)([a-z]?)", arch), re.fullmatch(r"sm_(\d+)(\d)", gpu)
    if not program_arch or not gpu_arch_match:
        return False
    has_same_major = program_arch[1] == gpu_arch_match[1]
    return has_same_major and (
        program_arch[2] == gpu_arch_match[2] if program_arch[3] else program_arch[2] <= gpu_arch_match[2]
    )


def choose_compiler() -> str:
    """Return the user's choice of compiler, or else ``nvcc`` or ``nvrtc``, whichever is installed.

    Raises SearchlabError if neither is installed.
    """
    if COMPILER_VARIABLE in os.environ:
        return os.environ[COMPILER_VARIABLE]
    if shutil.which("nvcc"):
        return "nvcc"
    with suppress(ModuleNotFoundError):  # the package cuda is not installed, or is hidden by a script with that name
        if importlib.util.find_spec("cuda.bindings"):
            return "nvrtc"
    raise SearchlabError(
        "cannot compile CUDA programs: add the CUDA toolkit's nvcc to PATH, or run pip install cuda-bindings and set "
        "CUDA_PATH to the folder whose 'include' subfolder contains the CUDA headers"
    )


def _explain_absence() -> str:
    """Return why TVM finds no CUDA device."""
    import tvm

    if tvm.get_global_func("device_api.cuda", allow_missing=True) is None:
        libraries = " and ".join(library for library in CUDA_LIBRARIES if not _can_load(library)) or "another library"
        return f"TVM cannot load its CUDA runtime: {libraries} is missing (libcuda comes with the NVIDIA driver)"
    return "the driver does not report any"


def _can_load(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True
