"""Compile scheduled modules into object files, the form in which code is passed between processes.

The first object file contains the host code. Imported modules, such as GPU kernels, are packed into a second object
file as a constant that is unpacked on loading. Loading object files from memory needs no linker. If a program must be a
file, for example for an RPC server, it is linked or archived from the same bytes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ..errors import SearchlabError, shorten_text, text_of
from ..files import FileMissing, read_bytes, write_file
from ..machine.cuda import COMPILER_VARIABLE, choose_compiler
from ..machine.scratch import ScratchFolder
from ..target import Target
from ..workload import PACK, Argument, Packed, packed_arguments

if TYPE_CHECKING:
    import tvm

Objects = tuple[bytes, ...]
"""A program's object files."""


class Code(msgspec.Struct, frozen=True, array_like=True):
    """A compiled program.

    Attributes:
        objects: The program's object files.
        packed: The arguments that the program takes packed; see :func:`~searchlab.workload.packed_arguments`.
    """

    objects: Objects
    packed: dict[str, tuple[Argument, ...]] = {}


def compile_to_code(module: tvm.IRModule, target: Target) -> Code:
    """Compile ``module`` with :func:`compile_program`."""
    return Code(to_objects(compile_program(module, target)), packed_arguments(module))


def compile_program(module: tvm.IRModule, target: Target) -> tvm.runtime.Executable:
    """Compile ``module`` for ``target``; CUDA kernels are compiled to machine code by nvcc or nvrtc.

    Without a driver, TVM has no CUDA runtime. The kernels then remain CUDA C++ source, which is compiled on loading.

    Raises:
        Exception: Any exception raised by TVM or the compiler.
    """
    import tvm

    if target.kind == "cuda" and tvm.get_global_func("ffi.Module.create.cuda", allow_missing=True):
        os.environ.setdefault(COMPILER_VARIABLE, choose_compiler())
    with target.tvm:  # TVM compiles kernels for the architecture of the current target
        return tvm.compile(module, target=target.tvm)


def device_name(target_kind: str) -> str:
    """Return TVM's name for the kind of device that runs programs for this kind of target."""
    return "cpu" if target_kind == "llvm" else target_kind


def device_of(target_kind: str) -> tvm.runtime.Device:
    """Return the device that runs programs for this kind of target: the CPU or the first GPU."""
    import tvm

    return tvm.device(device_name(target_kind))


def to_objects(executable: tvm.runtime.Executable) -> Objects:
    """Return the object files of a compiled program."""
    from tvm_ffi import get_global_func

    host_module = executable.mod
    if not host_module.imports:
        return (_write_object(host_module),)
    pack_imports = get_global_func("runtime.ModulePackImportsToLLVM")
    packed_imports = pack_imports(host_module, False, host_module.get_function("_get_target_string")(), "")
    return _write_object(host_module), _write_object(packed_imports)


def link(objects: Objects, library_path: Path, compiler: str) -> None:
    """Link ``objects`` into a shared library, or archive them if ``compiler`` is empty.

    Raises:
        Exception: Any exception raised by the compiler.
    """
    from tvm.support import cc, tar

    with ScratchFolder() as folder:
        object_paths = [str(Path(folder, f"{number}.o")) for number in range(len(objects))]
        for object_path, object_bytes in zip(object_paths, objects, strict=True):
            Path(object_path).write_bytes(object_bytes)
        if compiler:
            cc.create_shared(str(library_path), object_paths, cc=compiler)
        else:
            tar.tar(str(library_path), object_paths)


def load_objects(objects: Sequence[bytes]) -> tvm.runtime.Module:
    """Load a program. Raises RuntimeError if this TVM build cannot run the modules that the program imports."""
    from tvm_ffi_orcjit import default_session

    return default_session().load_module(list(objects))


def pack_inputs(
    program: tvm.runtime.Module, packed: Packed, inputs: Mapping[str, tvm.runtime.Tensor]
) -> dict[str, list[tvm.runtime.Tensor]]:
    """Pack the inputs that a program takes packed, and return all of its input arguments by name, in order.

    Args:
        program: A loaded program.
        packed: The inputs that the program takes packed; see :func:`~searchlab.workload.packed_arguments`.
        inputs: The workload's inputs by name, in order.
    """
    import tvm

    arrays_by_name = {name: [array] for name, array in inputs.items()}
    for name, array in inputs.items():
        if name in packed:
            arrays_by_name[name] = [tvm.runtime.tensor(part.unwritten(), array.device) for part in packed[name]]
            program[PACK + name](array, *arrays_by_name[name])
    return arrays_by_name


def error_text(error: Exception) -> str:
    """Return the text of ``error``, omitting the kernel source code that CUDA errors contain."""
    text = text_of(error)
    _, heading, compiler_output = text.partition("\nCompilation error:\n")
    text = compiler_output if heading else text.partition("// func_name=")[0]
    return shorten_text(f"{type(error).__name__}: {text.strip()}")


def _write_object(module: tvm.runtime.Module) -> bytes:
    """Return ``module`` as an object file. It is written to memory, so a killed process leaves no file behind."""
    with open(os.memfd_create("object"), "r+b") as memory_file:
        module.write_to_file(f"/proc/self/fd/{memory_file.fileno()}", "o")
        memory_file.seek(0)
        return memory_file.read()


class CodeFolder:
    """A folder with one file per compiled program. Raises SearchlabError if the folder cannot be created."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SearchlabError(f"cannot store programs in {self.folder}: {error.strerror}") from None

    def get(self, program_hash: str) -> Code | None:
        """Return a program's code, or None if it is not in the folder."""
        try:
            return msgspec.msgpack.decode(read_bytes(self._path_of(program_hash), under=self.folder), type=Code)
        except FileMissing:
            return None

    def __setitem__(self, program_hash: str, code: Code) -> None:
        write_file(self._path_of(program_hash), msgspec.msgpack.encode(code), under=self.folder)

    def _path_of(self, program_hash: str) -> Path:
        return self.folder / f"{program_hash}.code"
