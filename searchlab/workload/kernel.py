"""The workload ``kernel``: other tuners' kernels, for which only recorded times exist."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Never, Self

from ..arrays import Array
from ..errors import SearchlabError, UnsupportedWorkload
from ..units import RUNS
from .base import UNKNOWN_FLOPS, Workload

if TYPE_CHECKING:
    import tvm


@dataclass(frozen=True)
class Kernel(Workload):
    """A kernel measured by another tuner, often with the device in its name: ``kernel:convolution@A4000``.

    It has no program, so it can only be searched in a table of recorded times.

    Attributes:
        name: The kernel's name, often followed by ``@`` and the device.
        operations: The number of floating-point operations per execution, if known.

    Raises:
        SearchlabError: If the name contains characters other than letters, digits and ``_.@+-``, or if ``operations``
            is below 1.
    """

    name: str = ""
    operations: int | None = None

    def __post_init__(self) -> None:
        if self.operations is not None and self.operations < 1:  # it may be far larger than any extent
            raise SearchlabError(f"kernel: operations must be at least 1, not {self.operations}")
        if not re.fullmatch(r"[\w.@+-]+", self.name):
            raise SearchlabError(
                f"kernel: the name {self.name!r} may contain only letters, digits and the characters _ . @ + -, "
                f"for example kernel:convolution@A4000"
            )

    @classmethod
    def parse(cls, text: str) -> Self:
        name, *operations = text.split(":")
        if not operations:
            return cls(name)
        if len(operations) > 1 or not re.fullmatch(r"\d{1,24}flop", operations[0]):
            raise SearchlabError(
                f"workload 'kernel:{text}': only the number of floating-point operations per execution may follow the "
                f"name, as in kernel:{name}:7549747200flop"
            )
        return cls(name, int(operations[0].removesuffix("flop")))

    @property
    def spelling(self) -> str:
        return self.name + (f":{self.operations}flop" if self.operations else "")

    @property
    def flops(self) -> int:
        return self.operations or UNKNOWN_FLOPS

    @property
    def unit(self) -> str:
        return "GFLOPS" if self.operations else RUNS

    @property
    def cluster(self) -> str:
        """The kernel's name without the device, such as ``convolution``; empty if the name has no device."""
        name, at, _ = self.name.partition("@")
        return name if at else ""

    def tolerance(self) -> tuple[float, float]:
        self._refuse()

    def reference(self, inputs: dict[str, Array]) -> Array:
        self._refuse()

    def prim_func(self) -> tvm.tirx.PrimFunc:
        self._refuse()

    def _refuse(self) -> Never:
        raise UnsupportedWorkload(
            f"{self} is another tuner's kernel and has no program here; use the parameters space with a table of "
            "recorded times"
        )
