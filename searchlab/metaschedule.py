"""The interface to MetaSchedule that spaces, features and policies share; it avoids MetaSchedule's slow import."""

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
    """A space that MetaSchedule's own algorithm can search, because its programs come from sampled traces."""

    def draw(self, seed: int) -> Schedule:
        """Return a random program whose decisions TVM samples with ``seed``, which must be at least 1.

        The decisions need not correspond to a config of the space.

        Raises:
            InvalidConfig: If the decisions do not yield a program.
        """

    def config_of(self, schedule: Schedule) -> Config:
        """Return the config that corresponds to the decisions in a schedule's trace.

        Args:
            schedule: A schedule returned by :meth:`draw` or ``schedule``. Its decisions may have been changed since.

        Raises:
            InvalidConfig: If the config is not a member of the space.
        """

    def postprocessing(self) -> tuple[tvm.target.Target, Sequence[Postproc]]:
        """Return the target for TVM's rules, and the list of postprocessors that complete a program, in order."""


def tune_context(
    module: tvm.IRModule,
    target: tvm.target.Target,
    generator: Any = None,
    seed: int = 1,
    strategy: Any = None,
    logger: Callable[..., None] | None = None,
) -> Any:
    """Create a ``TuneContext`` with one thread.

    The FFI constructor is called because the Python class imports all of TVM's tensor intrinsics, which takes 15 s.

    Args:
        module: The module to schedule.
        target: The TVM target.
        generator: MetaSchedule's space generator, if any.
        seed: The random seed, >= 1.
        strategy: MetaSchedule's search strategy, if any.
        logger: A function called with (level, file, line, message). If None, TVM writes to standard error.
    """
    from tvm.s_tir.meta_schedule import _ffi_api

    context = _ffi_api.TuneContext(module, target, generator, strategy, "main", 1, seed, logger)
    if generator is not None:
        _ffi_api.TuneContextInitialize(context)
    return context
