"""Loading models: from functions that return Relax modules, ONNX files and exported PyTorch programs."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import SearchlabError, describe, did_you_mean, needs_extra
from ..files import open_file
from ..foreign_code import convert_foreign_errors, find_raise_location
from ..plugins import execute_file, load_attribute

if TYPE_CHECKING:
    import tvm


def load_model(reference: str) -> tvm.IRModule:
    """Return the Relax module that ``reference`` refers to.

    Args:
        reference: ``"module:function"`` or ``"file.py:function"``, where the function returns a Relax module; an ONNX
            file (``*.onnx``), which requires the extra ``onnx``; or an exported PyTorch program (``*.pt2``), which
            requires the extra ``torch``.

    Raises:
        SearchlabError: If there is no such model, or if it cannot be converted to Relax.
    """
    if reference.endswith((".onnx", ".pt2")):
        open_file(reference, kind="the model").close()  # it must exist, and be a regular file
        return _load_onnx(Path(reference)) if reference.endswith(".onnx") else _load_torch(Path(reference))
    module_name, _, function_name = reference.rpartition(":")
    if not module_name:
        raise SearchlabError(
            f"invalid model {reference!r}; use module:function or FILE.py:function (a function that returns a Relax "
            f"module), or the path of an *.onnx or *.pt2 file"
        )
    if module_name.endswith(".py"):
        module = execute_file(Path(module_name))
        if not hasattr(module, function_name):
            hint = did_you_mean(function_name, vars(module))
            raise SearchlabError(f"{module_name} defines no {function_name!r}{hint}")
        function = getattr(module, function_name)
    else:
        function = load_attribute(reference, f"model {reference!r}")
    return to_module(_call_model_function(function, reference), reference)


def to_module(value: Any, source: str) -> tvm.IRModule:
    """Return the Relax module that is ``value`` or its first item. Raises SearchlabError if there is none."""
    import tvm
    from tvm import relax

    module = value[0] if isinstance(value, tuple) and value else value  # as returned by nn.Module.export_tvm
    if not isinstance(module, tvm.IRModule):
        raise SearchlabError(f"{source} must return a Relax module (tvm.IRModule), not {type(value).__name__}")
    if not any(isinstance(function, relax.Function) for function in module.functions.values()):
        raise SearchlabError(f"the module that {source} returned contains no Relax function")
    return module


def _call_model_function(function: Any, reference: str) -> Any:
    if not callable(function):
        return function
    required_kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if any(
        parameter.default is parameter.empty and parameter.kind in required_kinds
        for parameter in inspect.signature(function).parameters.values()
    ):
        raise SearchlabError(f"{reference} must be callable without arguments")
    with convert_foreign_errors(
        lambda error: SearchlabError(f"{reference} failed: {describe(error)} at {find_raise_location(error)}")
    ):
        return function()


def _load_onnx(path: Path) -> tvm.IRModule:
    with needs_extra("reading an ONNX file", "onnx"):
        import onnx  # type: ignore[import-not-found,unused-ignore]
    from tvm.relax.frontend.onnx import from_onnx

    try:
        return from_onnx(onnx.load(str(path)))
    except Exception as error:  # onnx and TVM may raise anything
        raise SearchlabError(f"TVM cannot convert {path} to Relax: {describe(error)}") from error


def _load_torch(path: Path) -> tvm.IRModule:
    with needs_extra("reading a PyTorch program", "torch"):
        import torch  # type: ignore[import-not-found,unused-ignore]
    from tvm.relax.frontend.torch import from_exported_program

    try:
        return from_exported_program(torch.export.load(str(path)))
    except Exception as error:  # PyTorch and TVM may raise anything
        raise SearchlabError(f"TVM cannot convert {path} to Relax: {describe(error)}") from error
