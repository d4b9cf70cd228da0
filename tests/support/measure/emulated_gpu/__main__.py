"""Runs Python where there is an emulated GPU: libcuda, libcudart and nvcc. Its programs are right, and slow.

    python -m tests.support.measure.emulated_gpu -m pytest -m gpu tests/measure/test_cuda.py

Kernels whose threads exchange values without shared memory (warp shuffles) do not compile for it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[3]


def install(folder: Path) -> dict[str, str]:
    """Return the environment in which a new process uses the emulated GPU. Requires g++ and gcc."""
    (folder / "versions").write_text("libcudart.so.13 { *; };\n")
    words = ["gcc", "-w", "-O1", "-shared", "-fPIC", str(HERE / "runtime.c"), "-ldl"]
    versions = f"-Wl,--version-script={folder / 'versions'}"
    subprocess.run([*words, "-Wl,-soname,libcudart.so.13", versions, "-o", folder / "libcudart.so.13"], check=True)
    # One library has the functions of both, so that they share what has failed.
    subprocess.run(
        [
            "gcc",
            "-shared",
            "-Wl,-soname,libcuda.so.1",
            "-Wl,--no-as-needed",
            "-o",
            folder / "libcuda.so.1",
            folder / "libcudart.so.13",
        ],
        check=True,
    )
    path = os.pathsep.join([str(ROOT), *(path for path in sys.path if path)])
    nvcc = folder / "nvcc"
    nvcc.write_text(f'#!/bin/sh\nPYTHONPATH="{path}" exec "{sys.executable}" "{HERE / "nvcc.py"}" "$@"\n')
    nvcc.chmod(0o755)
    return os.environ | {
        "PYTHONPATH": path,
        "LD_LIBRARY_PATH": os.pathsep.join(filter(None, [str(folder), os.environ.get("LD_LIBRARY_PATH", "")])),
        "PATH": os.pathsep.join([str(folder), os.environ["PATH"]]),
        "TVM_CUDA_COMPILE_MODE": "nvcc",
    }


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        return subprocess.run([sys.executable, *sys.argv[1:]], env=install(Path(folder))).returncode


if __name__ == "__main__":
    sys.exit(main())
