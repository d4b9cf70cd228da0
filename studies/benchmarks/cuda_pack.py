"""Packs cuda.py and everything it needs into files that can be copied to a GPU machine without network access.

    python studies/benchmarks/cuda_pack.py DIR [--python 3.12] [--megabytes 60] [--without NAME ...] [--nvrtc]

The script writes to DIR parts of at most ``--megabytes`` each, ``manifest.json`` with their SHA-256 digests, and
``unpack.py``, which requires only Python. Together, the parts form an archive of this repository's last commit and the
packages that it needs for ``--python`` on Linux (x86-64, glibc 2.28 or later), installed in a folder. The other machine
must have:

- this version of Python, and an NVIDIA driver for CUDA 13 (580 or later) with libcuda.so.1;
- nvcc of CUDA 13 on PATH and a C++ compiler, unless ``--nvrtc`` packs NVIDIA's runtime compiler;
- PyTorch for CUDA, which is too large to pack, for the comparison with cuBLAS and cuDNN.

libcudart.so.13 is included. ``--without`` omits packages that the other machine already has: without numpy, scipy,
scikit-learn, pandas, pyarrow and vl-convert-python, the parts take 87 MB, of which 58 MB are TVM.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

SOURCES = (
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "searchlab",
    "spaces",
    "policies",
    "costmodels",
    "tests",
    "studies/benchmarks",
    "studies/tutorials",
)
"""The parts of the repository to pack: everything except recorded results and suites."""

GLIBC = 28  # glibc 2.28, the oldest for which all packages have wheels

TESTING = ("pytest", "pytest-xdist", "hypothesis")
CUDART = ("nvidia-cuda-runtime==13.0.*",)  # supported by every driver for CUDA 13
NVRTC = ("cuda-bindings==13.0.*", "nvidia-cuda-nvrtc==13.0.*", "nvidia-cuda-cccl==13.0.*", "nvidia-cuda-crt==13.0.*")
"""NVIDIA's runtime compiler, its Python bindings, and the headers that TVM's kernels include."""

SMALLER = {"xgboost": "xgboost-cpu"}
"""The CPU-only variants of packages, which suffice because the cost models train on the CPU."""

WINDOW = 1 << 28  # bytes: TVM's library, of 259 MB, compresses to 58 MB with a window of its size

LEFT_OUT = r"nvidia-nccl-.*"
"""A pattern for packages that are needed only with several GPUs."""


def packages(python: str, without: Sequence[str], extra: Sequence[str]) -> list[str]:
    """Return ``name==version`` for each package that searchlab, its tests and ``extra`` need on the other machine."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needs = [SMALLER.get(name := _name(need), name) + need[len(name) :] for need in project["dependencies"]]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        pip(
            python,
            "install",
            "--dry-run",
            "--ignore-installed",
            "--report",
            str(report),
            "--target",
            folder,
            *needs,
            *TESTING,
            *extra,
        )
        resolved = [item["metadata"] for item in json.loads(report.read_text())["install"]]
    dropped = {_normal(name) for name in without}
    specs = {_normal(data["name"]): f"{data['name']}=={data['version']}" for data in resolved}
    return sorted(spec for name, spec in specs.items() if name not in dropped and not re.fullmatch(LEFT_OUT, name))


def pip(python: str, command: str, *words: str) -> None:
    """Run pip for the other machine's Python and glibc. Raises SystemExit with pip's message if it fails."""
    tags = [f"manylinux_2_{minor}_x86_64" for minor in range(GLIBC, 4, -1)] + ["manylinux2014_x86_64"]
    platforms = [word for tag in tags for word in ("--platform", tag)]
    which = ["--implementation", "cp", "--python-version", python, "--only-binary=:all:", *platforms]
    run(sys.executable, "-m", "pip", command, "--quiet", "--disable-pip-version-check", *which, *words)


def run(*words: str) -> str:
    """Return a command's output. Raises SystemExit with the command's message if it fails."""
    process = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    if process.returncode:
        sys.exit(f"{' '.join(words[:4])} ...: {process.stderr.strip()[-2000:]}")
    return process.stdout


def stage(folder: Path, commit: str, python: str, specs: Sequence[str]) -> None:
    """Fill ``folder`` with ``tree/``, the sources, and ``site/``, the installed packages, including searchlab."""
    archive = folder / "tree.tar"
    run("git", "archive", "--output", str(archive), commit, *SOURCES)
    with tarfile.open(archive) as sources:
        sources.extractall(folder / "tree", filter="data")
    archive.unlink()
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder), str(folder / "tree"))
    (wheel,) = folder.glob("searchlab-*.whl")
    pip(python, "install", "--no-deps", "--no-compile", "--target", str(folder / "site"), str(wheel), *specs)
    wheel.unlink()
    shutil.rmtree(folder / "site" / "bin", ignore_errors=True)  # scripts that refer to this machine's Python


def compress(folder: Path, archive: Path, preset: int) -> None:
    """Compress ``tree/`` and ``site/`` in ``folder`` to a .tar.xz; the first filter helps to compress code."""
    filters = [{"id": lzma.FILTER_X86}, {"id": lzma.FILTER_LZMA2, "preset": preset, "dict_size": WINDOW}]
    with lzma.open(archive, "wb", filters=filters) as out, tarfile.open(fileobj=out, mode="w|") as tar:
        for part in ("tree", "site"):
            tar.add(folder / part, part, filter=_carried)


def _carried(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if re.search(r"\.a$|\.alt\.so", entry.name):  # from CUDA's packages; nothing is linked against them
        return None
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry


def split(archive: Path, folder: Path, limit: int) -> list[dict[str, Any]]:
    """Split ``archive`` into parts of at most ``limit`` bytes, and return each part's name, size and SHA-256."""
    parts = []
    with archive.open("rb") as file:
        for number, data in enumerate(_blocks(file, limit)):
            name = f"part-{number:02}"
            (folder / name).write_bytes(data)
            parts.append({"name": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()})
    return parts


def _blocks(file: Any, size: int) -> Iterator[bytes]:
    while data := file.read(size):
        yield data


def _name(need: str) -> str:
    match = re.match(r"[\w.-]+", need)
    assert match
    return match[0]


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="DIR", help="directory for the parts; it must be new or empty")
    parser.add_argument("--python", default="3.12", help="Python version of the other machine (3.12)")
    parser.add_argument("--megabytes", type=float, default=60, help="maximum size of a part in 10^6 bytes (60)")
    parser.add_argument(
        "--without", nargs="+", default=[], metavar="NAME", help="packages that the other machine already has"
    )
    parser.add_argument("--nvrtc", action="store_true", help="include NVIDIA's runtime compiler instead of nvcc")
    parser.add_argument("--preset", type=int, default=6, choices=range(10), help="xz preset (6)")
    options = parser.parse_args(argv)
    if options.folder.exists() and any(options.folder.iterdir()):
        sys.exit(f"{options.folder} is not empty; pass a new folder")
    options.folder.mkdir(parents=True, exist_ok=True)
    commit = run("git", "rev-parse", "HEAD").strip()
    specs = packages(options.python, options.without, [*CUDART, *(NVRTC if options.nvrtc else ())])
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        folder = Path(temporary)
        stage(folder, commit, options.python, specs)
        compress(folder, folder / "archive", options.preset)
        parts = split(folder / "archive", options.folder, int(options.megabytes * 1e6))
    manifest = {"commit": commit, "python": options.python, "packages": specs, "parts": parts}
    (options.folder / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    shutil.copyfile(HERE / "cuda_unpack.py", options.folder / "unpack.py")
    for part in parts:
        print(f"{part['name']}  {part['bytes'] / 1e6:.1f} MB  {part['sha256']}")
    print(f"copy all of {options.folder}{os.sep} there, and run: python{options.python} unpack.py TARGET")


if __name__ == "__main__":
    main()
