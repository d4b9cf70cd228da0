"""The one thing of ``tvm.s_tir.meta_schedule`` that both features and sketches need, without its price."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import tvm


def tune_context(module: tvm.IRModule, target: tvm.target.Target, generator: Any = None, seed: int = 1) -> Any:
    """A ``TuneContext`` of one thread.

    Made through its FFI constructor: the Python one imports every tensor intrinsic that TVM knows, which takes 15 s.
    """
    from tvm.s_tir.meta_schedule import _ffi_api

    context = _ffi_api.TuneContext(module, target, generator, None, "main", 1, seed, None)
    if generator is not None:
        _ffi_api.TuneContextInitialize(context)
    return context
