"""What spaces, features and policies share of ``tvm.s_tir.meta_schedule``, without its slow import."""

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
    """A space that MetaSchedule's own search can search, since its programs come from sampled traces."""

    def draw(self, seed: int) -> Schedule:
        """Return a random program, whose decisions TVM samples from ``seed`` >= 1.

        The decisions may correspond to no config of the space.

        Raises:
            InvalidConfig: If they make no program.
        """

    def config_of(self, schedule: Schedule) -> Config:
        """Return the config of the decisions in the trace of ``schedule``.

        Args:
            schedule: A result of :meth:`draw` or ``schedule``; its decisions may have been changed since.

        Raises:
            InvalidConfig: If the config is not a member of the space.
        """

    def finishing(self) -> tuple[tvm.target.Target, Sequence[Postproc]]:
        """Return the target for TVM's rules, and the postprocessors that finish a program, in order."""


def tune_context(
    module: tvm.IRModule,
    target: tvm.target.Target,
    generator: Any = None,
    seed: int = 1,
    strategy: Any = None,
    logger: Callable[..., None] | None = None,
) -> Any:
    """Create a ``TuneContext`` with one thread.

    This calls its FFI constructor: the Python one imports every tensor intrinsic of TVM, which takes 15 s.

    Args:
        module: The module to schedule.
        target: TVM's target.
        generator: MetaSchedule's space generator, if any.
        seed: The random seed, >= 1.
        strategy: MetaSchedule's search strategy, if any.
        logger: Called with (level, file, line, message); without one, TVM writes to the standard error.
    """
    from tvm.s_tir.meta_schedule import _ffi_api

    context = _ffi_api.TuneContext(module, target, generator, strategy, "main", 1, seed, logger)
    if generator is not None:
        _ffi_api.TuneContextInitialize(context)
    return context
