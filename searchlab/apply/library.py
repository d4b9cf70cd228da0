"""The best program of a log as a file that TVM alone loads and calls: a shared library, or an object file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ..errors import SearchlabError, last_line
from ..log.format import find_logs
from ..log.result import load_log
from ..machine.scratch import ScratchFolder
from ..measure.code import Objects, to_objects
from .best import build
from .threads import THREADS

SUFFIXES = (".so", ".o")


class Exported(NamedTuple):
    """How a library is called, and what to set in the process that calls it; "" for nothing."""

    call: str
    setting: str


def export_library(paths: Sequence[Path], out: Path) -> Exported:
    """Build the best program of the one log at ``paths`` into ``out``, ``*.so`` or ``*.o``; how it is called.

    Its function is ``main``; it takes the workload's tensors in order, the result last, and writes that. They must be
    aligned to 64 bytes, as ``tvm.runtime.tensor`` aligns them: the program does not check it, and dies with SIGSEGV on
    arrays of numpy that are not. A shared library is linked by the compiler that TVM finds; an object file needs none,
    and is loaded by tvm_ffi_orcjit. Raises SearchlabError.
    """
    logs = [log for path in paths for log in find_logs(path)]
    if len(logs) != 1:
        raise SearchlabError(f"a library contains one program, and these are {len(logs)} logs; give one of them")
    if out.suffix not in SUFFIXES:
        raise SearchlabError(f"a library is written to *.so or *.o, not {out}; choose such a file as --out")
    if out.exists():
        raise SearchlabError(f"{out} already exists; choose another file as --out")
    result = load_log(logs[0])
    schedule, target = result.best.schedule(), result.space.target
    compiler = _compiler(target.is_foreign, str(target.spec.get("mtriple"))) if out.suffix == ".so" else ""
    objects = to_objects(build(schedule.mod, target))
    try:
        if compiler:
            _link(objects, out, compiler)
        elif len(objects) > 1:
            raise SearchlabError(f"a program for {target.kind} is more than one object file; export it to *.so")
        else:
            out.write_bytes(objects[0])
    except OSError as error:
        raise SearchlabError(f"cannot write {out}: {error.strerror or error}") from None
    loader = "tvm.runtime" if compiler else "tvm_ffi_orcjit.default_session()"
    name, arguments = json.dumps(str(out), ensure_ascii=False), ", ".join(result.space.workload.shapes)
    setting = f"{THREADS}={target.cores}" if target.kind == "llvm" else ""
    return Exported(f'{loader}.load_module({name})["main"]({arguments})', setting)


def _compiler(foreign: bool, triple: str) -> str:
    from tvm.support import cc

    if foreign:
        raise SearchlabError(
            f"the program is for {triple}, which the compiler of this machine does not link for; export it to *.o, "
            f"which needs no compiler"
        )
    if not (compiler := cc.get_cc()):
        raise SearchlabError(
            "there is no C compiler to link a shared library: put gcc or clang on PATH, or export to *.o, which needs "
            "none"
        )
    return str(compiler)


def _link(objects: Objects, out: Path, compiler: str) -> None:
    from tvm.support import cc

    out.touch()  # where it cannot be written, this says why
    with ScratchFolder() as folder:
        files = [Path(folder, f"{number}.o") for number in range(len(objects))]
        for file, data in zip(files, objects, strict=True):
            file.write_bytes(data)
        try:
            cc.create_shared(str(out), [str(file) for file in files], cc=compiler)
        except Exception as error:  # whatever the compiler is, and says
            out.unlink(missing_ok=True)
            raise SearchlabError(
                f"{compiler} does not link {out}: {last_line(error)}; export to *.o, which needs none"
            ) from None
