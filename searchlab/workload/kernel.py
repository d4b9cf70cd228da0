"""A kernel of another tuner: there are recorded times of it, and no program."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Never

if TYPE_CHECKING:
    import tvm
from ..arrays import Array
from ..errors import SearchlabError, UnsupportedWorkload
from .base import Workload

RUNS = 10**9
"""The FLOPs of a kernel whose FLOPs are not known: its throughput in GFLOPS is then that in runs a second."""


@dataclass(frozen=True)
class Kernel(Workload):
    """A kernel by its name, often with the device that it was measured on, as in ``kernel:convolution@A4000``.

    operations: its floating-point operations, if known.
    """

    name: str = ""
    operations: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not re.fullmatch(r"[\w.@+-]+", self.name):
            raise SearchlabError(
                f"kernel: the name {self.name!r} must consist of letters, digits and any of _ . @ + -; "
                f"for example kernel:convolution@A4000"
            )

    @property
    def op(self) -> str:
        return "kernel"

    def __str__(self) -> str:
        return f"kernel:{self.name}" + (f":{self.operations}flop" if self.operations else "")

    @property
    def flops(self) -> int:
        return self.operations or RUNS

    @property
    def unit(self) -> str:
        return "GFLOPS" if self.operations else "runs/s"

    @property
    def reduction(self) -> int:
        self._refuse()

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        self._refuse()

    def reference(self, inputs: dict[str, Array]) -> Array:
        self._refuse()

    def prim_func(self) -> tvm.tirx.PrimFunc:
        self._refuse()

    def _refuse(self) -> Never:
        raise UnsupportedWorkload(
            f"{self} is a kernel of another tuner, so there is no program for it here; use the space parameters, and "
            f"recorded times as a table"
        )


def kernel(name: str, operations: int | None = None) -> Kernel:
    """The kernel ``name``. Raises SearchlabError for a name that cannot be spelled, and for less than one FLOP."""
    return Kernel("float32", False, False, name, operations)
