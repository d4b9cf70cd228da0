"""The NVIDIA GPU of this machine as TVM sees it, and the compiler of its kernels."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import shutil
from contextlib import suppress

from ..errors import SearchlabError

COMPILE_MODE = "TVM_CUDA_COMPILE_MODE"  # the environment variable by which TVM chooses nvcc or nvrtc
NEEDED = ("libcuda.so.1", "libcudart.so.13")  # the libraries that the CUDA runtime of TVM 0.27 is linked with
INSTEAD = "use another machine or recorded measurements: measure = {kind = 'table', ...}"


def gpu_name() -> str | None:
    """Return the name of the first GPU; None without a GPU, a driver, or a CUDA runtime that TVM can load."""
    import tvm

    device = tvm.cuda(0)
    return str(device.device_name) if device.exist else None


def gpu_arch() -> str | None:
    """Return the architecture of the first GPU, for example ``sm_90``; None if :func:`gpu_name` is None.

    Its other limits are not read: TVM reports the shared memory that a kernel may opt in to, but TVM's static arrays
    may use less (CUDA C++ Programming Guide, table of technical specifications).
    """
    import tvm

    device = tvm.cuda(0)
    return "sm_" + str(device.compute_version).replace(".", "") if device.exist else None


def check_can_measure(arch: str) -> None:
    """Raise SearchlabError unless programs for ``arch`` can be compiled and run on this machine."""
    here = gpu_arch()
    if here is None:
        raise SearchlabError(f"no CUDA device was found: {_why_none()}; {INSTEAD}")
    if not runs_on(arch, here):
        raise SearchlabError(f"programs for {arch!r} do not run on the GPU of this machine, {here!r} ({gpu_name()})")
    compile_mode()


def runs_on(arch: str, gpu: str) -> bool:
    """Return whether machine code for ``arch`` runs on a GPU of architecture ``gpu``.

    It runs on the same major version with the same or a later minor version. Code for the special features of an
    architecture (``sm_90a``) runs on that one alone (CUDA C++ Programming Guide, section on binary compatibility).
    """
    wanted, there = re.fullmatch(r"sm_(\d+)(\d)([a-z]?)", arch), re.fullmatch(r"sm_(\d+)(\d)", gpu)
    if not wanted or not there:
        return False
    same_major = wanted[1] == there[1]
    return same_major and (wanted[2] == there[2] if wanted[3] else wanted[2] <= there[2])


def compile_mode() -> str:
    """Return ``nvcc`` or ``nvrtc``: the user's choice, or the installed one. Raises SearchlabError if there is none."""
    if COMPILE_MODE in os.environ:
        return os.environ[COMPILE_MODE]
    if shutil.which("nvcc"):
        return "nvcc"
    with suppress(ModuleNotFoundError):  # there is no package called cuda, or a script of that name shadows it
        if importlib.util.find_spec("cuda.bindings"):
            return "nvrtc"
    raise SearchlabError(
        "cannot compile CUDA programs: put nvcc of the CUDA toolkit on PATH, or pip install cuda-bindings and set "
        "CUDA_PATH to the folder that contains CUDA's headers in include"
    )


def _why_none() -> str:
    import tvm

    if tvm.get_global_func("device_api.cuda", allow_missing=True) is None:
        absent = " and ".join(library for library in NEEDED if not _loads(library)) or "another library"
        return f"TVM cannot load its CUDA runtime: {absent} is missing (libcuda comes with the NVIDIA driver)"
    return "the driver reports none"


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True
