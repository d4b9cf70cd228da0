"""The library of a tuned model: export, and execution.

The library contains a description of the model, which the VM function :data:`SIGNATURE_FUNCTION` returns, so that it
can be run without the model.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from ..apply.best import use_threads_of
from ..arrays import Array
from ..errors import SearchlabError, first_line, last_line
from ..files import open_file
from ..machine.lock import lock_machine
from ..machine.scratch import ScratchFolder
from ..measure.code import device_of
from ..survival import find_crash
from ..target import Target, check_runs_here, resolve_target
from .inputs import Input, check_arrays, find_main_function, inputs_of

if TYPE_CHECKING:
    import tvm

MEMORY_DIR = "/dev/shm"
"""A file system in memory, for temporary files that must not fill a disk."""

EXPORT_TIMEOUT = 600
"""The time limit for linking a model, in seconds."""

TIMING_ROUNDS = 7
MIN_REPEAT_MS = 50

SIGNATURE_FUNCTION = "searchlab_signature"
"""The name of the function that returns the model's :class:`Signature` in JSON."""


class Signature(msgspec.Struct, frozen=True):
    """A description of a compiled model."""

    function: str
    inputs: tuple[Input, ...]
    target: dict[str, Any]


def with_signature(module: tvm.IRModule, target: Target) -> tvm.IRModule:
    """Return ``module`` with the function :data:`SIGNATURE_FUNCTION`."""
    import tvm
    from tvm import relax

    main_function = find_main_function(module)
    signature = Signature(main_function, tuple(inputs_of(module)), target.to_json())
    signature_text = tvm.ir.StringImm(msgspec.json.encode(signature).decode())
    signed_module = module.clone()
    signed_module[SIGNATURE_FUNCTION] = relax.Function([], signature_text).with_attr(
        "global_symbol", SIGNATURE_FUNCTION
    )
    return signed_module


def link_library(executable: Any, library_path: Path) -> None:
    """Link the library at ``library_path``. Raises SearchlabError if it cannot be written."""
    partial_path = library_path.with_name(f".{library_path.name}")
    try:
        # LLVM ends the process if it cannot write an object file, even in memory. The linker only fails.
        with ScratchFolder(MEMORY_DIR if os.access(MEMORY_DIR, os.W_OK) else None) as workspace_dir:
            export = partial(executable.export_library, str(partial_path), workspace_dir=workspace_dir)
            if crash := find_crash(export, EXPORT_TIMEOUT):
                raise SearchlabError(f"LLVM or the linker failed: {crash}")
            export()
        os.replace(partial_path, library_path)
    except Exception as error:  # the linker may fail in any way, for example because the disk is full
        partial_path.unlink(missing_ok=True)
        error_lines = [line.strip() for line in str(error).splitlines() if "error" in line or "failed" in line]
        reason = error_lines[0] if error_lines else last_line(error)
        raise SearchlabError(
            f"cannot write {library_path}: {reason}; free some space or check the disk, then run the command "
            f"again, which measures nothing again"
        ) from None


class CompiledModel:
    """An exported model, loaded into this process. **This executes the library's code**, as any library's.

    Args:
        path: The library that :func:`~searchlab.model.tune.tune_model` has exported.

    Attributes:
        signature: The model's function, inputs and target.

    Raises:
        SearchlabError: If it is no such library, or if it does not run on this machine.
    """

    def __init__(self, path: Path) -> None:
        import tvm
        from tvm import relax

        open_file(path, kind="the library").close()  # it must exist, and be a regular file
        try:
            library = tvm.runtime.load_module(str(path.absolute()))
            description = relax.VirtualMachine(library, tvm.cpu())[SIGNATURE_FUNCTION]()
            self.signature = msgspec.json.decode(str(description), type=Signature)
        except Exception as error:  # the loader may raise anything
            raise SearchlabError(
                f"{path} is no library that `searchlab model tune` has exported: {first_line(error)}"
            ) from None
        target = resolve_target(self.signature.target)
        if target.kind == "llvm":
            check_runs_here(target)
        use_threads_of(target)
        self.target = target
        self._device = device_of(target.kind)
        self._virtual_machine = relax.VirtualMachine(library, self._device)

    def order_inputs(self, arrays: Mapping[str, Array], path: Path) -> list[Array]:
        """Return ``arrays``, which were read from ``path``, in the order of the model's inputs.

        Raises:
            SearchlabError: If an array is missing, unknown, or of another shape or dtype.
        """
        check_arrays(arrays, self.signature.inputs, path)
        for model_input in self.signature.inputs:
            if model_input.name not in arrays:
                raise SearchlabError(f"{path} lacks the model's input {model_input}")
        return [arrays[model_input.name] for model_input in self.signature.inputs]

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Return the model's outputs."""
        return list(iterate_arrays(self._virtual_machine[self.signature.function](*self._tensors(inputs))))

    def time(self, inputs: Sequence[Array]) -> list[float]:
        """Return the times of one execution in seconds, one for each of several rounds."""
        tensors = self._tensors(inputs)
        function, device = self.signature.function, self._device
        timer = self._virtual_machine.time_evaluator(function, device, number=1, min_repeat_ms=MIN_REPEAT_MS)
        with lock_machine():
            return [float(timer(*tensors).mean) for _ in range(TIMING_ROUNDS)]

    def _tensors(self, inputs: Sequence[Array]) -> list[tvm.runtime.Tensor]:
        import tvm

        return [tvm.runtime.tensor(np.ascontiguousarray(array), self._device) for array in inputs]


def iterate_arrays(value: Any) -> Iterator[Array]:
    """Yield the arrays in the result of a model, which may be nested."""
    if hasattr(value, "numpy"):
        yield value.numpy()
    else:
        for element in value:
            yield from iterate_arrays(element)
