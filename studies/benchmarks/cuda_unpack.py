"""Unpacks cuda_pack.py's files, and checks whether this machine meets the other requirements. It requires only Python.

    python3 unpack.py TARGET [--parts DIR]

The script verifies each part's SHA-256, unpacks the parts into TARGET, a new folder, and writes TARGET/env.sh, which
sets PYTHONPATH and LD_LIBRARY_PATH. Nothing else on the machine is changed. Put all parts and manifest.json into the
same folder, and pass it as ``--parts`` unless it is this script's own folder.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import importlib.util
import io
import json
import os
import shlex
import shutil
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def check(parts: Path, manifest: dict[str, Any]) -> None:
    """Exit with a message unless all parts are present and intact."""
    for part in manifest["parts"]:
        path = parts / part["name"]
        if not path.is_file():
            sys.exit(f"{part['name']} is missing in {parts}; copy all {len(manifest['parts'])} parts there")
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != part["sha256"]:
            sys.exit(f"{part['name']} is damaged: its SHA-256 is {digest}, not {part['sha256']}; copy it again")


class Joined(io.RawIOBase):
    """Reads several files as one."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.files = [path.open("rb") for path in paths]

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while self.files:
            if count := self.files[0].readinto(buffer):
                return count
            self.files.pop(0).close()
        return 0


def unpack(parts: Path, manifest: dict[str, Any], target: Path) -> None:
    joined = Joined([parts / part["name"] for part in manifest["parts"]])
    with tarfile.open(fileobj=io.BufferedReader(joined), mode="r|xz") as archive:
        archive.extractall(target, filter="data")


def write_environment(target: Path) -> None:
    """Write env.sh. The packages come first, and the packed CUDA runtime comes after libraries that are already set."""
    cuda = target / "site" / "nvidia" / "cu13"
    lines = [
        f'export PYTHONPATH={shlex.quote(str(target / "site"))}"${{PYTHONPATH:+:$PYTHONPATH}}"',
        f'export LD_LIBRARY_PATH="${{LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}}"{shlex.quote(str(cuda / "lib"))}',
    ]
    if (target / "site" / "cuda" / "bindings").is_dir() and not shutil.which("nvcc"):
        # TVM expects NVRTC's headers in the CUDA toolkit's layout.
        headers = cuda / "targets" / "x86_64-linux"
        headers.mkdir(parents=True, exist_ok=True)
        (headers / "include").symlink_to(cuda / "include")
        lines += [f"export CUDA_PATH={shlex.quote(str(cuda))}", "export TVM_CUDA_COMPILE_MODE=nvrtc"]
    (target / "env.sh").write_text("\n".join(lines) + "\n")


def surroundings(target: Path) -> list[tuple[str, bool, str]]:
    """Return each requirement, whether it is met, and what to do if it is not."""
    cudart = next(iter((target / "site" / "nvidia" / "cu13" / "lib").glob("libcudart.so.13*")), "libcudart.so.13")
    nvrtc = (target / "site" / "cuda" / "bindings").is_dir()
    torch = importlib.util.find_spec("torch") is not None
    return [
        ("libcuda.so.1, of the driver", loads("libcuda.so.1"), "install a driver for CUDA 13, or set LD_LIBRARY_PATH"),
        ("libcudart.so.13", loads(str(cudart)), "pack it; its package is nvidia-cuda-runtime"),
        ("nvcc or NVRTC", bool(shutil.which("nvcc")) or nvrtc, "put nvcc on PATH, or pack with --nvrtc"),
        ("torch, to compare with", torch, "without it, the table has no ratios"),
    ]


def loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", type=Path, metavar="TARGET", help="a new folder")
    parser.add_argument("--parts", type=Path, default=Path(__file__).resolve().parent, metavar="DIR")
    options = parser.parse_args()
    manifest = json.loads((options.parts / "manifest.json").read_text())
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    if version != manifest["python"]:
        sys.exit(f"packed for Python {manifest['python']}, but this is {version}; use the right version")
    if options.target.exists():
        sys.exit(f"{options.target} exists; pass a new folder")
    check(options.parts, manifest)
    target = Path(os.path.abspath(options.target))
    unpack(options.parts, manifest, target)
    write_environment(target)
    for what, exists, otherwise in surroundings(target):
        print(f"{what}: {'there' if exists else 'missing; ' + otherwise}")
    print(f"unpacked {manifest['commit'][:10]}; now:")
    print(
        f". {shlex.quote(str(target / 'env.sh'))} && cd {shlex.quote(str(target / 'tree'))} && "
        f"{shlex.quote(sys.executable)} studies/benchmarks/cuda.py --all"
    )


if __name__ == "__main__":
    main()
