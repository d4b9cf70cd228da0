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
from itertools import compress
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
from ..survival import find_crash
from ..units import RUNS
from .base import UNKNOWN_FLOPS, Argument, Workload, arguments_of

if TYPE_CHECKING:
    import tvm

MAX_BYTES = 1 << 26
"""The maximum size of a decompressed program in bytes."""

ERRORS = 64
"""The minimum number of elements from whose errors a tolerance is determined."""

TWIN = "_reference"
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
        if (twin := vars(module).get(name + TWIN)) is not None:
            workload.check_twin(twin, f"{name}{TWIN} in {path}")
        return workload

    @classmethod
    def _from_json(cls, path: Path, name: str) -> Self:
        import tvm

        text = read_text(path)
        try:
            content = load_untrusted_json(text)
        except Exception as error:  # TVM may raise anything
            raise SearchlabError(f"{path} is not a PrimFunc or a module in TVM's JSON: {first_line(error)}") from None
        if isinstance(content, tvm.IRModule):
            functions = {v.name_hint: f for v, f in content.functions.items() if isinstance(f, tvm.tirx.PrimFunc)}
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
        from tvm.s_tir import SBlockRealize

        if not isinstance(func, tvm.tirx.PrimFunc):
            raise SearchlabError(
                f"a tir workload must be created from a tvm.tirx.PrimFunc, not from {type(func).__name__}"
            )
        own_name = str(func.attrs["global_symbol"]) if func.attrs and "global_symbol" in func.attrs else "main"
        name = re.sub(r"[^\w.+-]", "_", name or own_name)
        if not isinstance(func.body, SBlockRealize):
            raise SearchlabError(f"the function {name} is not in TensorIR with blocks, so no schedule can change it")
        if func.attrs and func.attrs.get("tirx.is_scheduled", False):
            raise SearchlabError(f"the function {name} is already scheduled; tune the function before it is scheduled")
        operations = operations_of(func)
        for attribute in ("op_pattern", "relax.primvalue", OPERATIONS):  # attributes that only a model needs
            if func.attrs and attribute in func.attrs:
                func = func.without_attr(attribute)
        func = func.with_attr("global_symbol", "main")
        try:
            arguments = arguments_of(func)
        except SearchlabError as error:
            raise SearchlabError(f"the function {name} cannot be a workload: {error}") from None
        is_written, terms = _examine(func)
        results = sum(is_written)
        if not results or not all(is_written[-results:]):
            names = list(compress([argument.name for argument in arguments], is_written))
            raise SearchlabError(
                f"the function {name} writes to {', '.join(names) or 'none of its arguments'}; a workload writes only "
                f"to its last arguments, which are its results"
            )
        text = tvm.ir.save_json(func)
        try:
            load_json(text)
        except SearchlabError as error:
            raise SearchlabError(f"the function {name} cannot be a workload: {error}") from None
        program = base64.b64encode(zlib.compress(text.encode(), 9)).decode()
        digest = program_hash(tvm.IRModule({"main": func}))
        return cls(name, digest, program, operations, results, terms, is_checked=True)

    @property
    def spelling(self) -> str:
        return f"{self.name}@{self.digest}"

    @property
    def results(self) -> int:
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
            unpack = zlib.decompressobj()
            text = unpack.decompress(base64.b64decode(self.program, validate=True), MAX_BYTES)
            if unpack.unconsumed_tail or not unpack.eof:
                raise SearchlabError(f"it is incomplete, or larger than {MAX_BYTES >> 20} MB")
            func = (load_json if self.is_checked else load_untrusted_json)(text.decode())
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
        if not _is_partial(self.prim_func()):
            return inputs
        # The absolute value of the smallest integer, such as -128, does not fit into its type.
        return {
            name: np.abs(np.maximum(value, np.iinfo(value.dtype).min + 1) if value.dtype.kind == "i" else value)
            for name, value in inputs.items()
        }

    def exact_inputs(self, seed: int = 0) -> dict[str, Array] | None:
        """Return inputs with exact results, or None; not even the program as written may round them."""
        if _is_partial(self.prim_func()):
            return None
        inputs = super().exact_inputs(seed)
        if inputs is None or not self._in_float64:
            return inputs
        pairs = zip(self._compute(self._as_written, inputs), self.reference(inputs), strict=True)
        is_exact = all(np.array_equal(computed_results, exact) for computed_results, exact in pairs)
        return inputs if is_exact else None

    def reference(self, inputs: dict[str, Array]) -> tuple[Array, ...]:
        """Return the results of the unscheduled program on this machine's CPU, computed in float64 if possible.

        Raises:
            SearchlabError: If the program writes to its inputs, or its results depend on what they were before.
        """
        computed_results = self._compute(self._in_float64 or self._as_written, inputs)
        arguments = self.arguments[-self.results :]
        return tuple(
            result.astype(argument.dtype, copy=False)
            for result, argument in zip(computed_results, arguments, strict=True)
        )

    def _compute(self, program: Any, inputs: dict[str, Array]) -> tuple[Array, ...]:
        """Run ``program``, one of the two defined below, and return its results in the dtype in which it computes."""
        import tvm

        exact = program is self._in_float64

        def compute_dtype(dtype: str) -> str:
            return "float64" if exact and "float" in dtype else dtype

        operands = [value.astype(compute_dtype(str(value.dtype)), copy=False) for value in inputs.values()]

        def run(initial: Callable[[Argument], Array]) -> tuple[Array, ...]:
            results = [
                tvm.runtime.tensor(initial(argument._replace(dtype=compute_dtype(argument.dtype))))
                for argument in self.arguments[-self.results :]
            ]
            arrays = [tvm.runtime.tensor(operand) for operand in operands]
            program(*arrays, *results)
            for name, array, operand in zip(inputs, arrays, operands, strict=True):
                if array.numpy().tobytes() != operand.tobytes():
                    raise SearchlabError(
                        f"the function {self.name} writes to its input {name}; a workload writes only to its last "
                        "arguments, which are its results"
                    )
            return tuple(result.numpy() for result in results)

        computed_results = run(Argument.unwritten)
        if not self._is_examined:
            repeated = run(lambda argument: np.ones(argument.shape).astype(argument.dtype))
            for argument, first, second in zip(
                self.arguments[-self.results :], computed_results, repeated, strict=True
            ):
                if first.tobytes() != second.tobytes() and not np.array_equal(
                    first, second, equal_nan=argument.is_float
                ):
                    raise SearchlabError(
                        f"the function {self.name} does not write to every element of its result {argument.name}, or "
                        "reads elements that it has not yet written; a workload's results depend only on its inputs"
                    )
            self.__dict__["_is_examined"] = True  # once is enough
        return computed_results

    @cached_property
    def _is_examined(self) -> bool:
        """Whether the program has been found to write to all of its results without reading them first."""
        return False

    @cached_property
    def _as_written(self) -> Any:
        return _compile(self.prim_func())

    @cached_property
    def _in_float64(self) -> Any:
        """The program with float64 for all floating-point types; None if it does not compile or is not more exact."""
        if not all(argument.is_float and argument.dtype != "float64" for argument in self.arguments[-self.results :]):
            return None
        try:
            return _compile(_in_float64(self.prim_func()))
        except Exception:  # TVM may raise anything
            return None

    def tolerance(self) -> tuple[float, float]:
        """Return (rtol, atol), where atol is four times the largest error of the unscheduled program.

        The errors are differences from :meth:`reference` in at least :data:`ERRORS` elements. The unscheduled program
        sums sequentially. Other orders are hardly less accurate, because rounding errors grow fastest in a sequential
        sum and more slowly with partial sums (Higham, "Accuracy and stability of numerical algorithms", 2002, chapter
        4). If there is no program in float64, the largest error is assumed to be sqrt(terms) times the machine epsilon
        times the largest result, as for independent rounding errors (Higham and Mary, SIAM J. Sci. Comput. 2019).
        """
        return self._tolerance

    @cached_property
    def _tolerance(self) -> tuple[float, float]:
        rtol = atol = 0.0
        results = self.arguments[-self.results :]
        for seed in range(math.ceil(ERRORS / min(math.prod(argument.shape) for argument in results))):
            inputs = self.inputs(seed)
            exact = self.reference(inputs)
            computed_results = self._compute(self._as_written, inputs) if self._in_float64 else exact
            for argument, expected, actual in zip(results, exact, computed_results, strict=True):
                finite = np.isfinite(expected) & np.isfinite(actual)
                if argument.is_float and finite.any():
                    eps = float(ml_dtypes.finfo(argument.dtype).eps)  # type: ignore[no-untyped-call]
                    largest = float(np.abs(expected[finite].astype(np.float64)).max())
                    errors = np.abs(actual[finite].astype(np.float64) - expected[finite].astype(np.float64))
                    error = float(errors.max()) if self._in_float64 else math.sqrt(self.terms) * eps * largest
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
        shapes, twin_shapes = ([list(result.shape) for result in results] for results in (own_results, twin_results))
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


def program_hash(module: tvm.IRModule) -> str:
    """Return the structural hash of a module, which identifies its program in logs and caches."""
    from tvm_ffi import structural_hash

    return f"{structural_hash(module) & (1 << 64) - 1:016x}"


def _compile(func: tvm.tirx.PrimFunc) -> Any:
    import tvm

    with tvm.target.Target("llvm"):
        return tvm.compile(tvm.IRModule({"main": func}), target="llvm")["main"]


def _in_float64(func: tvm.tirx.PrimFunc) -> tvm.tirx.PrimFunc:
    """Return ``func`` with float64 in place of all other types of floating-point numbers."""
    import tvm

    graph = json.loads(tvm.ir.save_json(func))
    for node in graph["nodes"]:
        if node["type"] == "ir.PrimType" and re.fullmatch(r"b?float\d+", node["data"]["dtype"]):
            node["data"]["dtype"] = "float64"
    return load_json(json.dumps(graph))


HARMLESS = re.compile(
    r"None|bool|int|float|DataType|Device|ffi\.(String|Bytes|Array|List|Map|Dict|Shape)"
    r"|(ir|prim|s_tir|target|tirx)\.\w+|relax\.(\w+Type|expr\.\w+)"
)
"""A pattern that matches the types of the objects in TensorIR."""


def load_json(text: str) -> Any:
    """Load an object from TVM's JSON, which may be untrusted.

    Only objects whose types match :data:`HARMLESS` are created, because TVM's JSON may also contain libraries, which
    TVM would load.

    Raises:
        SearchlabError: If the JSON is damaged or contains other types. TVM itself may raise any exception.
    """
    import tvm

    try:
        graph = json.loads(text)  # not with msgspec, since TVM writes infinity
        types = [node["type"] for node in graph["nodes"]]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise SearchlabError(f"it is not TVM's JSON: {first_line(error)}") from None
    for name in types:
        if not isinstance(name, str) or not HARMLESS.fullmatch(name):
            raise SearchlabError(f"it contains an object of type {name!r}, but a program consists of TensorIR")
    return tvm.ir.load_json(json.dumps(graph))  # not ``text``: if a key occurs twice, TVM might read the other value


def load_untrusted_json(text: str) -> Any:
    """Load an object from TVM's JSON as :func:`load_json` does, after trying it in a fork.

    TVM does not check the graph, and may crash or never return if it is damaged: if an object contains itself, if it
    is of another type than TVM expects, or if it lacks a part.

    Raises:
        SearchlabError: If TVM cannot load the object, or cannot use it as a program.
    """

    def use() -> None:
        import tvm
        from tvm.s_tir import Schedule

        content = load_json(text)
        module = content if isinstance(content, tvm.IRModule) else tvm.IRModule({"main": content})
        program_hash(module)
        for function in module.functions.values():
            if isinstance(function, tvm.tirx.PrimFunc):
                Tir.from_function(function)
        Schedule(module)
        module.script()

    if crash := find_crash(use):
        raise SearchlabError(f"TVM cannot load it: {crash}")
    return load_json(text)


OPERATIONS = "searchlab.operations"
"""The attribute of a function with the number of its operations, if they cannot be counted in its body."""


def operations_of(func: tvm.tirx.PrimFunc) -> int:
    """Return the number of floating-point operations of one execution, or 0 if TVM cannot count them."""
    import tvm
    from tvm.s_tir.analysis import estimate_tir_flops

    if func.attrs and OPERATIONS in func.attrs:
        return int(func.attrs[OPERATIONS])
    try:
        return max(0, int(estimate_tir_flops(tvm.IRModule({"main": func}))))
    except Exception:  # for example, because an extent is not a constant
        return 0


def _examine(func: tvm.tirx.PrimFunc) -> tuple[list[bool], int]:
    """Return, for each argument, whether ``func`` writes to it, and the most elements that a block reduces to one."""
    from tvm.s_tir import SBlock
    from tvm.tirx import BufferStore, IntImm
    from tvm_ffi import structural_walk

    is_written = [False] * len(func.params)
    terms = [1]

    def store(node: BufferStore) -> None:
        for number, parameter in enumerate(func.params):
            is_written[number] = is_written[number] or node.buffer.same_as(parameter)

    def block(node: SBlock) -> None:
        extents = [axis.dom.extent for axis in node.iter_vars if axis.iter_type == axis.CommReduce]
        terms.append(math.prod(int(extent) for extent in extents if isinstance(extent, IntImm)))

    structural_walk(func.body, [(BufferStore, store), (SBlock, block)])
    return is_written, max(terms)


PARTIAL = {"sqrt", "rsqrt", "log", "log2", "log10", "log1p", "pow", "acosh"}
"""Functions that are not defined for all negative numbers."""


def _is_partial(func: tvm.tirx.PrimFunc) -> bool:
    from tvm.ir import Call, Op
    from tvm_ffi import structural_walk

    function_names: set[str] = set()

    def call(node: Call) -> None:
        if isinstance(node.op, Op):
            function_names.add(str(node.op.name).rpartition(".")[2])

    structural_walk(func.body, (Call, call))
    return not PARTIAL.isdisjoint(function_names)
