"""What spaces, features and policies share of ``tvm.s_tir.meta_schedule``, without the price of its import."""

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
    """What a space has besides its contract where TVM's own search can go over it: its samples are TVM's."""

    def draw(self, seed: int) -> Schedule:
        """A random program, every sample of it drawn by TVM, from a ``seed`` of at least 1.

        Raises InvalidConfig where what was drawn makes none. TVM may draw what no config of the space is.
        """

    def config_of(self, schedule: Schedule) -> Config:
        """The config that the decisions in the trace of ``schedule`` are. Raises InvalidConfig where it is no member.

        schedule: one of :meth:`draw` or of ``schedule``, with any decisions changed.
        """

    def finishing(self) -> tuple[tvm.target.Target, Sequence[Postproc]]:
        """The target that TVM's rules are told of, and what finishes a program after its trace, in order."""


def tune_context(
    module: tvm.IRModule,
    target: tvm.target.Target,
    generator: Any = None,
    seed: int = 1,
    strategy: Any = None,
    logger: Callable[..., None] | None = None,
) -> Any:
    """A ``TuneContext`` of one thread.

    logger: called with (level, file, line, message); without one TVM writes to the standard error.

    Made through its FFI constructor: the Python one imports every tensor intrinsic that TVM knows, which takes 15 s.
    """
    from tvm.s_tir.meta_schedule import _ffi_api

    context = _ffi_api.TuneContext(module, target, generator, strategy, "main", 1, seed, logger)
    if generator is not None:
        _ffi_api.TuneContextInitialize(context)
    return context
