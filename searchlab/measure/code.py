"""From a scheduled module to code that runs, and how that code travels between processes: as object files.

One object file is the host's code. The modules that it imports, such as the kernels of a GPU, are packed into a second
object file, as a constant that is unpacked on loading. Loaded from memory they need no linker. A program that must be a
file, as for an RPC server, is linked or archived from the same bytes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ..errors import SearchlabError, cut, text_of
from ..machine.cuda import COMPILE_MODE, compile_mode
from ..target import Target

if TYPE_CHECKING:
    import tvm

Objects = tuple[bytes, ...]
"""The object files of a program."""


def compile_program(module: tvm.IRModule, target: Target) -> tvm.runtime.Executable:
    """``module`` compiled for ``target``; for CUDA with the kernels' machine code, by nvcc or nvrtc.

    Where TVM has no CUDA runtime, for want of a driver, the kernels stay CUDA C++ that is compiled on loading.
    Raises what TVM and the compiler raise.
    """
    import tvm

    if target.kind == "cuda" and tvm.get_global_func("ffi.Module.create.cuda", allow_missing=True):
        os.environ.setdefault(COMPILE_MODE, compile_mode())
    with target.tvm:  # whose arch TVM compiles kernels for
        return tvm.compile(module, target=target.tvm)


def program_hash(module: tvm.IRModule) -> str:
    """The structural hash of a scheduled module, by which logs and caches name its program."""
    from tvm_ffi import structural_hash

    return f"{structural_hash(module) & (1 << 64) - 1:016x}"


def device_name(kind: str) -> str:
    """TVM's name for the kind of device that programs for this ``kind`` of target run on."""
    return "cpu" if kind == "llvm" else kind


def device_of(kind: str) -> tvm.runtime.Device:
    """Where programs for this ``kind`` of target run: the CPU, or the first GPU."""
    import tvm

    return tvm.device(device_name(kind))


def to_objects(executable: tvm.runtime.Executable) -> Objects:
    """The object files of a compiled program."""
    from tvm_ffi import get_global_func

    host = executable.mod
    if not host.imports:
        return (_object_file(host),)
    pack = get_global_func("runtime.ModulePackImportsToLLVM")
    packed = pack(host, False, host.get_function("_get_target_string")(), "")
    return _object_file(host), _object_file(packed)


def load_objects(objects: Sequence[bytes]) -> tvm.runtime.Module:
    """The program that ``objects`` hold. Raises RuntimeError where this TVM cannot run what it imports."""
    from tvm_ffi_orcjit import default_session

    return default_session().load_module(list(objects))


def reason(error: Exception) -> str:
    """The text of ``error``, without the whole source of the kernels, which errors of CUDA carry along."""
    text = text_of(error)
    _, mark, output = text.partition("\nCompilation error:\n")
    text = output if mark else text.partition("// func_name=")[0]
    return cut(f"{type(error).__name__}: {text.strip()}")


def _object_file(module: tvm.runtime.Module) -> bytes:
    """``module`` as an object file, written to memory so that no kill leaves a file behind."""
    with open(os.memfd_create("object"), "r+b") as memory:
        module.write_to_file(f"/proc/self/fd/{memory.fileno()}", "o")
        memory.seek(0)
        return memory.read()


class Programs:
    """The object files of programs by program hash, one file each. Raises SearchlabError if none can be kept."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SearchlabError(f"cannot keep programs in {self.folder}: {error.strerror}") from None

    def get(self, program: str) -> Objects | None:
        """Return the object files of a program, or None if they are not kept."""
        try:
            return msgspec.msgpack.decode(self._file(program).read_bytes(), type=Objects)
        except FileNotFoundError:
            return None

    def __setitem__(self, program: str, objects: Objects) -> None:
        file = self._file(program)
        part = file.with_suffix(".part")  # a kill leaves no incomplete program
        try:
            part.write_bytes(msgspec.msgpack.encode(objects))
            part.replace(file)
        except OSError as error:
            raise SearchlabError(f"cannot keep a program in {self.folder}: {error.strerror}; free space") from None

    def _file(self, program: str) -> Path:
        return self.folder / f"{program}.objects"
