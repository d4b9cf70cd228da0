"""TVM's JSON of programs, which may be untrusted."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from ..errors import SearchlabError, first_line
from ..survival import find_crash
from .primfunc import analyse, program_hash

if TYPE_CHECKING:
    import tvm

HARMLESS_TYPE = re.compile(
    r"None|bool|int|float|DataType|Device|ffi\.(String|Bytes|Array|List|Map|Dict|Shape)"
    r"|(ir|prim|s_tir|target|tirx)\.\w+|relax\.(\w+Type|expr\.\w+)"
)
"""A pattern that matches the types of the objects in TensorIR."""


def load_json(json_text: str) -> Any:
    """Load an object from TVM's JSON, which may be untrusted.

    Only objects whose types match :data:`HARMLESS_TYPE` are created, because TVM's JSON may also contain libraries,
    which TVM would load.

    Raises:
        SearchlabError: If the JSON is damaged or contains other types. TVM itself may raise any exception.
    """
    import tvm

    try:
        graph = json.loads(json_text)  # not with msgspec, since TVM writes infinity
        type_names = [node["type"] for node in graph["nodes"]]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise SearchlabError(f"it is not TVM's JSON: {first_line(error)}") from None
    for name in type_names:
        if not isinstance(name, str) or not HARMLESS_TYPE.fullmatch(name):
            raise SearchlabError(f"it contains an object of type {name!r}, but a program consists of TensorIR")
    # Not ``json_text``: if a key occurs twice, TVM might read the other value.
    return tvm.ir.load_json(json.dumps(graph))


def load_untrusted_json(json_text: str) -> Any:
    """Load an object from TVM's JSON as :func:`load_json` does, after trying it in a fork.

    TVM does not check the graph, and may crash or never return if it is damaged: if an object contains itself, if it
    is of another type than TVM expects, or if it lacks a part.

    Raises:
        SearchlabError: If TVM cannot load the object, or cannot use it as a program.
    """

    def use_as_program() -> None:
        import tvm
        from tvm.s_tir import Schedule

        content = load_json(json_text)
        module = content if isinstance(content, tvm.IRModule) else tvm.IRModule({"main": content})
        program_hash(module)
        for function in module.functions.values():
            if isinstance(function, tvm.tirx.PrimFunc):
                analyse(function, "main")
                tvm.ir.save_json(function)
        Schedule(module)
        module.script()

    if crash := find_crash(use_as_program):
        raise SearchlabError(f"TVM cannot load it: {crash}")
    return load_json(json_text)


def to_float64(func: tvm.tirx.PrimFunc) -> tvm.tirx.PrimFunc:
    """Return ``func`` with float64 in place of all other types of floating-point numbers."""
    import tvm

    graph = json.loads(tvm.ir.save_json(func))
    for node in graph["nodes"]:
        if node["type"] == "ir.PrimType" and re.fullmatch(r"b?float\d+", node["data"]["dtype"]):
            node["data"]["dtype"] = "float64"
    return load_json(json.dumps(graph))
