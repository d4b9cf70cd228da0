"""The parts of ``tvm.s_tir.meta_schedule`` that spaces, features and policies share, without its slow import."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from .space import Config

if TYPE_CHECKING:
    import tvm
    from tvm.s_tir import Schedule
    from tvm.s_tir.meta_schedule.postproc import Postproc


@runtime_checkable
class TracedSpace(Protocol):
    """A space that TVM's own search can search: it has these methods too, and its samples are TVM's."""

    def draw(self, seed: int) -> Schedule:
        """A random program, whose samples TVM draws from a ``seed`` of at least 1.

        Raises InvalidConfig if the samples make no program. They may belong to no config of the space.
        """

    def config_of(self, schedule: Schedule) -> Config:
        """The config of the decisions in the trace of ``schedule``. Raises InvalidConfig if it is no member.

        schedule: made by :meth:`draw` or by ``schedule``; its decisions may have been changed.
        """

    def finishing(self) -> tuple[tvm.target.Target, Sequence[Postproc]]:
        """The target for TVM's rules, and the steps that finish a program after its trace, in order."""


def tune_context(
    module: tvm.IRModule,
    target: tvm.target.Target,
    generator: Any = None,
    seed: int = 1,
    strategy: Any = None,
    logger: Callable[..., None] | None = None,
) -> Any:
    """A ``TuneContext`` of one thread.

    logger: called with (level, file, line, message); without a logger, TVM writes to the standard error.

    It is made by its FFI constructor: the Python one imports every tensor intrinsic of TVM, which takes 15 s.
    """
    from tvm.s_tir.meta_schedule import _ffi_api

    context = _ffi_api.TuneContext(module, target, generator, strategy, "main", 1, seed, logger)
    if generator is not None:
        _ffi_api.TuneContextInitialize(context)
    return context
