"""Workloads that each break one rule of the contract, and a sound one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from searchlab.arrays import Array
from searchlab.errors import SearchlabError
from searchlab.workload import Workload, rounding


@dataclass(frozen=True)
class Sound(Workload):
    """``y = 2 x``, for a vector."""

    size: int = 16

    @classmethod
    def parse(cls, text: str) -> Self:
        if not text.isdecimal() or int(text) < 1:
            raise SearchlabError(f"{text!r} is not a size, such as 16")
        return cls(int(text))

    @property
    def spelling(self) -> str:
        return str(self.size)

    @property
    def flops(self) -> int:
        return self.size

    def prim_func(self) -> Any:
        from tvm import te

        x = te.placeholder((self.size,), name="x", dtype="float32")
        return te.create_prim_func([x, te.compute((self.size,), lambda i: x[i] * 2, name="y")])

    def reference(self, inputs: dict[str, Array]) -> Array:
        return inputs["x"] * np.float32(2)

    def tolerance(self) -> tuple[float, float]:
        return rounding("float32", 1)


class Mutable(Sound):
    """Its field can be changed."""

    def __setattr__(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)


@dataclass(frozen=True)
class Forgetful(Sound):
    """A field is missing from its spelling."""

    factor: float = 3.0

    @classmethod
    def parse(cls, text: str) -> Self:
        return cls(Sound.parse(text).size, 2.0)

    @classmethod
    def from_log(cls, spelling: str, content: str) -> Self:
        return cls(int(spelling))


class Lenient(Sound):
    """It parses anything."""

    @classmethod
    def parse(cls, text: str) -> Self:
        return cls(int(text) if text.isdecimal() and int(text) else 16)


class Raises(Sound):
    """It raises ValueError for a wrong spelling."""

    @classmethod
    def parse(cls, text: str) -> Self:
        return cls(int(text))


class Countless(Sound):
    """It does not know its number of operations."""

    @property
    def flops(self) -> int:
        return 0


class Unpicklable(Sound):
    """It refuses to be pickled."""

    def __reduce__(self) -> Any:
        raise TypeError("it cannot be pickled")


class Opens(Sound):
    """It reads a file to make a workload that a log contains."""

    @classmethod
    def from_log(cls, spelling: str, content: str) -> Self:
        with open(__file__):
            return cls.parse(spelling)


class Twins(Sound):
    """Two of its arguments have the same name."""

    def prim_func(self) -> Any:
        from tvm import te

        x = te.placeholder((self.size,), name="x", dtype="float32")
        return te.create_prim_func([x, te.compute((self.size,), lambda i: x[i] * 2, name="x")])


class EveryProcess(Sound):
    """The hash seed of the process changes a constant."""

    def prim_func(self) -> Any:
        from tvm import te, tirx

        x = te.placeholder((self.size,), name="x", dtype="float32")
        tiny = tirx.const(hash("searchlab") % 1000003 * 1e-15, "float32")
        return te.create_prim_func([x, te.compute((self.size,), lambda i: x[i] * 2 + tiny, name="y")])


class Misnamed(Sound):
    """Its input has another name than the operand."""

    def inputs(self, seed: int = 0) -> dict[str, Array]:
        return {"X": super().inputs(seed)["x"]}

    def reference(self, inputs: dict[str, Array]) -> Array:
        return next(iter(inputs.values())) * np.float32(2)


class Seedless(Sound):
    """Its inputs are always the same."""

    def inputs(self, seed: int = 0) -> dict[str, Array]:
        return super().inputs(0)


class Global(Sound):
    """It draws its inputs from numpy's global stream."""

    def inputs(self, seed: int = 0) -> dict[str, Array]:
        np.random.seed(seed)
        return {"x": np.random.standard_normal(self.size).astype("float32")}


class Wide(Sound):
    """Its reference is in double precision."""

    def reference(self, inputs: dict[str, Array]) -> Array:
        return inputs["x"] * np.float64(2)


class InPlace(Sound):
    """It computes its reference in place."""

    def reference(self, inputs: dict[str, Array]) -> Array:
        inputs["x"] *= 2
        return inputs["x"].copy()


class Bottomless(Sound):
    """Its tolerance is infinite."""

    def tolerance(self) -> tuple[float, float]:
        return 0.0, float("inf")


class Wrong(Sound):
    """Its reference computes something else."""

    def reference(self, inputs: dict[str, Array]) -> Array:
        return inputs["x"] * np.float32(2.01)


class Loose(Sound):
    """Its tolerance accepts everything."""

    def tolerance(self) -> tuple[float, float]:
        return 1.0, 10.0


BROKEN: dict[str, list[Any]] = {
    "frozen": [Mutable],
    "spelling": [Forgetful],
    "refuses-nonsense": [Lenient, Raises],
    "counts": [Countless],
    "pickles": [Unpicklable],
    "from-log": [Opens],
    "builds-function": [Twins],
    "one-function": [EveryProcess],
    "inputs": [Misnamed],
    "seeded-inputs": [Seedless, Global],
    "reference": [Wide],
    "repeats": [InPlace],
    "tolerance": [Bottomless],
    "right-answer": [Wrong],
    "tight": [Loose],
}
