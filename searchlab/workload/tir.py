"""The workload ``tir``: any PrimFunc, with the result of the unscheduled program as its reference."""

from __future__ import annotations

import base64
import json
import math
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import ml_dtypes
import msgspec
import numpy as np

from ..arrays import Array
from ..errors import SearchlabError, did_you_mean, first_line
from ..files import read_text
from ..options import Count, Natural
from ..plugins import execute_file
from ..schema import UNREADABLE
from ..units import RUNS
from .base import UNKNOWN_FLOPS, Argument, Workload
from .primfunc import OPERATIONS, analyse, calls_partial_function, compile_for_cpu, program_hash
from .tir_json import load_json, load_untrusted_json, to_float64

if TYPE_CHECKING:
    import tvm

MAX_PROGRAM_BYTES = 1 << 26
"""The maximum size of a decompressed program in bytes."""

MIN_ERROR_COUNT = 64
"""The minimum number of elements from whose errors a tolerance is determined."""

TWIN_SUFFIX = "_reference"
"""The suffix of the name of a NumPy function that computes the same results as a PrimFunc."""


@dataclass(frozen=True)
class Tir(Workload):
    """A PrimFunc in TensorIR, such as a fused operator of a model. Use :func:`from_primfunc` to create it.

    Users specify it as ``tir:PATH.py:NAME`` (a TVMScript function in a Python file, which is executed), or as
    ``tir:PATH.json``, followed by ``:NAME`` if the file contains a module with several functions. Logs contain the
    program and refer to it as ``tir:NAME@DIGEST``.

    Attributes:
        name: The function's name.
        digest: The structural hash of the function, which identifies the computation.
        program: The function in TVM's JSON, compressed with zlib and encoded with base64.
        operations: The number of floating-point operations per execution, or 0 if TVM cannot count them.
        outputs: The number of results, which are the last arguments.
        terms: The largest number of elements that any block reduces to a single one.
        is_checked: Whether TVM can load the program.
    """

    name: str
    digest: str
    program: str = field(compare=False, repr=False)
    operations: int = field(compare=False, repr=False)
    outputs: int = field(compare=False, repr=False)
    terms: int = field(compare=False, repr=False)
    is_checked: bool = field(default=False, compare=False, repr=False)

    @classmethod
    def parse(cls, text: str) -> Self:
        path, _, name = text.rpartition(":") if re.search(r"\.(py|json):", text) else (text, "", "")
        if path.endswith(".py") and name:
            return cls._from_python(Path(path), name)
        if path.endswith(".json"):
            return cls._from_json(Path(path), name)
        if re.fullmatch(r"[\w.+-]+@[0-9a-f]{16}", text):
            raise SearchlabError(
                f"the program of 'tir:{text}' is in the logs that refer to it, so the workload cannot be created "
                f"from its name alone; specify the file that contains it, as in tir:model.py:{text.partition('@')[0]}"
            )
        raise SearchlabError(
            f"workload 'tir:{text}' must be tir:PATH.py:NAME, for a function in TVMScript, or tir:PATH.json[:NAME], "
            f"for TVM's JSON"
        )

    @classmethod
    def _from_python(cls, path: Path, name: str) -> Self:
        module = execute_file(path)
        function = vars(module).get(name)
        if function is None:
            raise SearchlabError(f"{path} defines no {name!r}{did_you_mean(name, vars(module))}")
        workload = cls.from_function(function, name)
        if (twin := vars(module).get(name + TWIN_SUFFIX)) is not None:
            workload.check_twin(twin, f"{name}{TWIN_SUFFIX} in {path}")
        return workload

    @classmethod
    def _from_json(cls, path: Path, name: str) -> Self:
        import tvm

        json_text = read_text(path)
        try:
            content = load_untrusted_json(json_text)
        except Exception as error:  # TVM may raise anything
            raise SearchlabError(f"{path} is not a PrimFunc or a module in TVM's JSON: {first_line(error)}") from None
        if isinstance(content, tvm.IRModule):
            functions = {
                variable.name_hint: function
                for variable, function in content.functions.items()
                if isinstance(function, tvm.tirx.PrimFunc)
            }
            if not name and len(functions) == 1:
                name = next(iter(functions))
            if name not in functions:
                raise SearchlabError(
                    f"{path} contains the functions {', '.join(functions) or '(none)'}; name one of them, as in "
                    f"tir:{path}:{next(iter(functions), 'main')}{did_you_mean(name, functions) if name else ''}"
                )
            content = functions[name]
        return cls.from_function(content, name or path.stem)

    @classmethod
    def from_function(cls, func: Any, name: str = "") -> Self:
        """Return the workload that computes ``func``; see :func:`from_primfunc`."""
        import tvm

        if not isinstance(func, tvm.tirx.PrimFunc):
            raise SearchlabError(
                f"a tir workload must be created from a tvm.tirx.PrimFunc, not from {type(func).__name__}"
            )
        own_name = str(func.attrs["global_symbol"]) if func.attrs and "global_symbol" in func.attrs else "main"
        name = re.sub(r"[^\w.+-]", "_", name or own_name)
        analysis = analyse(func, name)
        for attribute in ("op_pattern", "relax.primvalue", OPERATIONS):  # attributes that only a model needs
            if func.attrs and attribute in func.attrs:
                func = func.without_attr(attribute)
        func = func.with_attr("global_symbol", "main")
        json_text = tvm.ir.save_json(func)
        try:
            load_json(json_text)
        except SearchlabError as error:
            raise SearchlabError(f"the function {name} cannot be a workload: {error}") from None
        program = base64.b64encode(zlib.compress(json_text.encode(), 9)).decode()
        digest = program_hash(tvm.IRModule({"main": func}))
        return cls(name, digest, program, *analysis, is_checked=True)

    @property
    def spelling(self) -> str:
        return f"{self.name}@{self.digest}"

    @property
    def result_count(self) -> int:
        return self.outputs

    @property
    def flops(self) -> int:
        return self.operations or UNKNOWN_FLOPS

    @property
    def unit(self) -> str:
        return "GFLOPS" if self.operations else RUNS

    def prim_func(self) -> tvm.tirx.PrimFunc:
        """Return the function. Raises SearchlabError if :attr:`program` is damaged or does not match :attr:`digest`."""
        import tvm

        damaged = f"the program of {self} is damaged"
        try:
            decompressor = zlib.decompressobj()
            json_bytes = decompressor.decompress(base64.b64decode(self.program, validate=True), MAX_PROGRAM_BYTES)
            if decompressor.unconsumed_tail or not decompressor.eof:
                raise SearchlabError(f"it is incomplete, or larger than {MAX_PROGRAM_BYTES >> 20} MB")
            func = (load_json if self.is_checked else load_untrusted_json)(json_bytes.decode())
            digest = program_hash(tvm.IRModule({"main": func}))
        except Exception as error:  # TVM may raise anything
            raise SearchlabError(f"{damaged}: {first_line(error)}") from None
        if digest != self.digest:
            raise SearchlabError(f"{damaged}: its digest is {digest}, not {self.digest}")
        object.__setattr__(self, "is_checked", True)
        return func

    def inputs(self, seed: int = 0) -> dict[str, Array]:
        """Return inputs as in :class:`Workload`, but absolute values if the program calls a function such as sqrt."""
        inputs = super().inputs(seed)
        if not calls_partial_function(self.prim_func()):
            return inputs
        # The absolute value of the smallest integer, such as -128, does not fit into its type.
        return {
            name: np.abs(np.maximum(value, np.iinfo(value.dtype).min + 1) if value.dtype.kind == "i" else value)
            for name, value in inputs.items()
        }

    def exact_inputs(self, seed: int = 0) -> dict[str, Array] | None:
        """Return inputs with exact results, or None; not even the program as written may round them."""
        if calls_partial_function(self.prim_func()):
            return None
        inputs = super().exact_inputs(seed)
        if inputs is None or not self._float64_program:
            return inputs
        result_pairs = zip(self._run(self._unscheduled_program, inputs), self.reference(inputs), strict=True)
        return inputs if all(np.array_equal(actual, expected) for actual, expected in result_pairs) else None

    def reference(self, inputs: dict[str, Array]) -> tuple[Array, ...]:
        """Return the results of the unscheduled program on this machine's CPU, computed in float64 if possible.

        Raises:
            SearchlabError: If the program writes to its inputs, or its results depend on what they were before.
        """
        results = self._run(self._reference_program, inputs)
        return tuple(
            result.astype(argument.dtype, copy=False)
            for result, argument in zip(results, self.arguments[-self.result_count :], strict=True)
        )

    @cached_property
    def _reference_program(self) -> Any:
        """The program that computes the reference, which has been checked to write all of its results."""
        program = self._float64_program or self._unscheduled_program
        self._check_program(program)
        return program

    @cached_property
    def _unscheduled_program(self) -> Any:
        return compile_for_cpu(self.prim_func())

    @cached_property
    def _float64_program(self) -> Any:
        """The program with float64 for all floating-point types; None if it does not compile or is not more exact."""
        if not all(
            argument.is_float and argument.dtype != "float64" for argument in self.arguments[-self.result_count :]
        ):
            return None
        try:
            return compile_for_cpu(to_float64(self.prim_func()))
        except Exception:  # TVM may raise anything
            return None

    def _check_program(self, program: Any) -> None:
        """Raise SearchlabError if the results of ``program`` depend on what their arrays contained before."""
        inputs = self.inputs()
        results = self._run(program, inputs)
        results_over_ones = self._run(program, inputs, lambda argument: np.ones(argument.shape).astype(argument.dtype))
        for argument, first, second in zip(
            self.arguments[-self.result_count :], results, results_over_ones, strict=True
        ):
            if first.tobytes() != second.tobytes() and not np.array_equal(first, second, equal_nan=argument.is_float):
                raise SearchlabError(
                    f"the function {self.name} does not write to every element of its result {argument.name}, or "
                    "reads elements that it has not yet written; a workload's results depend only on its inputs"
                )

    def _run(
        self,
        program: Any,
        inputs: dict[str, Array],
        initialize: Callable[[Argument], Array] = Argument.unwritten,
    ) -> tuple[Array, ...]:
        """Return the results of a compiled program, in the dtype in which it computes.

        Args:
            program: One of the programs above.
            inputs: The operands by name.
            initialize: A function that returns the initial content of a result's array.

        Raises:
            SearchlabError: If the program writes to its inputs.
        """
        import tvm

        is_float64 = program is self._float64_program

        def compute_dtype(dtype: str) -> str:
            return "float64" if is_float64 and "float" in dtype else dtype

        operands = [value.astype(compute_dtype(str(value.dtype)), copy=False) for value in inputs.values()]
        operand_tensors = [tvm.runtime.tensor(operand) for operand in operands]
        result_tensors = [
            tvm.runtime.tensor(initialize(argument._replace(dtype=compute_dtype(argument.dtype))))
            for argument in self.arguments[-self.result_count :]
        ]
        program(*operand_tensors, *result_tensors)
        for name, tensor, operand in zip(inputs, operand_tensors, operands, strict=True):
            if tensor.numpy().tobytes() != operand.tobytes():
                raise SearchlabError(
                    f"the function {self.name} writes to its input {name}; a workload writes only to its last "
                    "arguments, which are its results"
                )
        return tuple(tensor.numpy() for tensor in result_tensors)

    def tolerance(self) -> tuple[float, float]:
        """Return (rtol, atol), where atol is four times the largest error of the unscheduled program.

        The errors are differences from :meth:`reference` in at least :data:`MIN_ERROR_COUNT` elements. The unscheduled
        program sums sequentially. Other orders are hardly less accurate, because rounding errors grow fastest in a
        sequential sum and more slowly with partial sums (Higham, "Accuracy and stability of numerical algorithms",
        2002, chapter 4). If there is no program in float64, the largest error is assumed to be sqrt(terms) times the
        machine epsilon times the largest result, as for independent rounding errors (Higham and Mary, SIAM J. Sci.
        Comput. 2019).
        """
        rtol = atol = 0.0
        arguments = self.arguments[-self.result_count :]
        for seed in range(math.ceil(MIN_ERROR_COUNT / min(argument.elements for argument in arguments))):
            inputs = self.inputs(seed)
            expected_results = self.reference(inputs)
            results = self._run(self._unscheduled_program, inputs) if self._float64_program else expected_results
            for argument, expected, actual in zip(arguments, expected_results, results, strict=True):
                is_finite = np.isfinite(expected) & np.isfinite(actual)
                if argument.is_float and is_finite.any():
                    eps = float(ml_dtypes.finfo(argument.dtype).eps)  # type: ignore[no-untyped-call]
                    largest = float(np.abs(expected[is_finite].astype(np.float64)).max())
                    errors = np.abs(actual[is_finite].astype(np.float64) - expected[is_finite].astype(np.float64))
                    error = float(errors.max()) if self._float64_program else math.sqrt(self.terms) * eps * largest
                    rtol, atol = max(rtol, 4 * eps), max(atol, 4 * error, eps * largest)
        return rtol, atol

    def check_twin(self, twin: Any, where: str) -> None:
        """Check that the function ``twin``, called with the inputs, returns the same results as the program.

        Raises:
            SearchlabError: If the results differ by more than the tolerance; the message calls the twin ``where``.
        """
        inputs, (rtol, atol) = self.inputs(), self.tolerance()
        value = twin(*inputs.values())
        twin_results = [np.asarray(result) for result in (value if isinstance(value, tuple) else (value,))]
        own_results = self.reference(inputs)
        shapes = [list(result.shape) for result in own_results]
        twin_shapes = [list(result.shape) for result in twin_results]
        if shapes != twin_shapes:
            raise SearchlabError(f"{where} returns results of the shapes {twin_shapes}, but the program {shapes}")
        for number, (own_result, twin_result) in enumerate(zip(own_results, twin_results, strict=True)):
            if not np.allclose(own_result, twin_result, rtol=rtol, atol=atol):
                difference = np.abs(own_result - twin_result).max()
                raise SearchlabError(f"result {number} of {where} differs from the program's by up to {difference}")

    def content(self) -> str:
        """Return the program and its properties as JSON."""
        return json.dumps([self.program, self.operations, self.outputs, self.terms])

    @classmethod
    def from_log(cls, spelling: str, content: str) -> Self:
        """Return the workload that a log contains. The program itself is read only when it is used."""
        name, _, digest = spelling.rpartition("@")
        try:
            fields = msgspec.json.decode(content, type=tuple[str, Natural, Count, Natural])
        except UNREADABLE as error:
            raise SearchlabError(f"the program of tir:{spelling} is damaged: {error}") from None
        return cls(name, digest, *fields)


def from_primfunc(func: tvm.tirx.PrimFunc, name: str = "") -> Tir:
    """Return the workload that computes ``func``.

    Its results are the arguments that ``func`` writes to, which must be the last ones. Inputs are random: see
    :meth:`Workload.inputs`. A program is correct if its results agree with those of the unscheduled ``func``.

    Args:
        func: A function in TensorIR with blocks, fixed shapes and dense arguments, such as the result of Relax's
            ``LegalizeOps`` and ``FuseTIR``. Its attribute ``op_pattern`` is ignored.
        name: The name for logs and reports; by default, the function's ``global_symbol``.

    Raises:
        SearchlabError: If ``func`` is not such a function.

    Example:
        >>> import searchlab
        >>> from searchlab.workload import from_primfunc
        >>> workload = from_primfunc(searchlab.gemm(8, 8, 8).prim_func(), "matmul")
        >>> workload.name, workload.flops, list(workload.shapes.values())
        ('matmul', 1024, [(8, 8), (8, 8), (8, 8)])
    """
    return Tir.from_function(func, name)
