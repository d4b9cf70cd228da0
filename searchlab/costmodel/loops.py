"""A scheduled program's loops and their buffer accesses, extracted in the same way as by AutoTVM.

Source: Apache TVM 0.17, ``src/autotvm/touch_extractor.cc`` (``EnterItervar_``, ``ExitItervar_``, ``EnterMem_``,
``IndexParser``) and ``src/autotvm/feature_visitor.h`` (``AnnotationType``).

AutoTVM analyses a tensor expression after storage flattening. This module analyses a scheduled TIR module from TVM 0.27
with compacted allocations. Note the following points:

- A reduction that is not decomposed initialises its result within its innermost loop, not in separate loops.
- Buffers have their TIR names: ``A_global``, not ``A.global``.
- Indices are parsed as sums. A loop variable within a quotient or remainder has stride 1, which AutoTVM's parser also
  usually finds. A loop of length 1 has stride 0, as in AutoTVM after simplification.
- Loads within an index and conditions are ignored.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import tvm

ANNOTATIONS = (
    "blockIdx.x",
    "blockIdx.y",
    "blockIdx.z",
    "threadIdx.x",
    "threadIdx.y",
    "threadIdx.z",
    "unrolled",
    "vectorized",
    "parallel",
    "serial",
    "vthread",
)
"""The loop kinds, in AutoTVM's order."""


@dataclass
class Touch:
    """How a loop accesses a buffer in one load or store.

    Attributes:
        stride: The distance between the elements accessed in two successive iterations.
        count: The number of elements that the complete loop touches.
        reuse: The number of accesses to each element.
        thread_count: The factor by which count grows from a parallel loop's body to the loop.
        thread_reuse: The corresponding factor for reuse.
    """

    stride: int
    count: int = 1
    reuse: int = 1
    thread_count: int = 0
    thread_reuse: int = 0


@dataclass
class Loop:
    """A loop and its buffer accesses.

    Attributes:
        level: The depth, from 1.
        topdown: The product of the loop lengths from the outermost loop down to this one.
        bottomup: The number of iterations within this loop, or -1 if it accesses no buffer.
        adds: The number of floating-point operations of this kind directly within this loop.
        touches: The accesses, by buffer and number: A_0, A_1.
    """

    length: int
    level: int
    annotation: str
    topdown: int
    bottomup: int = -1
    adds: int = 0
    multiplies: int = 0
    divides: int = 0
    touches: dict[str, Touch] = field(default_factory=dict)

    @property
    def parallel_level(self) -> int:
        """The level of parallelism: 2 for GPU blocks, 1 for threads, 0 for a serial loop."""
        if self.annotation.startswith("blockIdx"):
            return 2
        return 1 if self.annotation.startswith("threadIdx") or self.annotation == "parallel" else 0


def extract_loops(module: tvm.IRModule) -> list[Loop]:
    """Return a scheduled program's loops, in the order in which they begin."""
    collector = _LoopCollector()
    collector.visit_statement(_lowering_passes()(module)["main"].body)
    return collector.loops


@cache
def _lowering_passes() -> Any:
    """Return the passes that compact allocations without changing any loop."""
    import tvm
    from tvm.s_tir import transform

    return tvm.transform.Sequential(
        [
            transform.LowerInitBlock(),
            transform.PlanAndUpdateBufferAllocationLocation(),
            transform.ConvertBlocksToOpaque(),
            transform.CompactBufferAllocation(),
        ]
    )


_LinearSum = dict[Any, int]
"""An index in the form of a sum: a mapping from each term to its factor. A term is a variable's hash, () for the
constant, or a non-empty tuple for any other expression."""


class _LoopCollector:
    """A walk through a program that collects its loops."""

    def __init__(self) -> None:
        self.loops: list[Loop] = []
        # The loops around the current statement by variable, outermost loop first:
        self._open_loops: dict[int, Loop] = {}
        self._access_counts: Counter[str] = Counter()

    def visit_statement(self, node: Any) -> None:
        match type(node).__name__:
            case "For":
                self._visit_loop(node)
            case "SBlockRealize":
                self.visit_statement(node.block.body)
            case "SeqStmt":
                for child in node.seq:
                    self.visit_statement(child)
            case "IfThenElse":
                self.visit_statement(node.then_case)
                if node.else_case is not None:
                    self.visit_statement(node.else_case)
            case "BufferStore":
                self._visit_access(node.buffer, node.indices)
                self._visit_expression(node.value)
            case "Evaluate":
                self._visit_expression(node.value)
            case _:
                if hasattr(node, "body"):
                    self.visit_statement(node.body)

    def _visit_loop(self, node: Any) -> None:
        outer_loops = list(self._open_loops.values())
        length = int(node.extent) if type(node.extent).__name__ == "IntImm" else -1
        topdown = length * (outer_loops[-1].topdown if outer_loops else 1)
        loop = Loop(length, len(outer_loops) + 1, _read_annotation(node), topdown)
        self.loops.append(loop)
        variable = hash(node.loop_var)
        self._open_loops[variable] = loop
        self.visit_statement(node.body)
        del self._open_loops[variable]
        _close_loop(loop, outer_loops)

    def _visit_expression(self, node: Any) -> None:
        node_type = type(node).__name__
        if node_type == "TensorLoad":
            self._visit_access(node.source, node.indices)
            return
        count_field = {"Add": "adds", "Sub": "adds", "Mul": "multiplies", "Div": "divides", "Mod": "divides"}.get(
            node_type
        )
        if count_field and self._open_loops and str(node.ty).startswith(("float", "bfloat")):
            innermost = next(reversed(self._open_loops.values()))
            setattr(innermost, count_field, getattr(innermost, count_field) + 1)
        for operand in _list_operands(node):
            self._visit_expression(operand)

    def _visit_access(self, buffer: Any, indices: Any) -> None:
        name = str(buffer.name)
        access = f"{name}_{self._access_counts[name]}"
        self._access_counts[name] += 1
        flat_index: _LinearSum = {}
        for index, extent in zip(indices, buffer.shape, strict=True):
            flat_index = _add_sums(_scale_sum(flat_index, int(extent)), _parse_index(index))
        inner_variables = {
            variable for term in flat_index if isinstance(term, tuple) for variable in _collect_variables(term)
        }
        for variable, loop in self._open_loops.items():
            stride = flat_index.get(variable, 0) or int(variable in inner_variables)
            loop.touches[access] = Touch(stride if loop.length != 1 else 0)


def _close_loop(loop: Loop, outer_loops: list[Loop]) -> None:
    """Update the access counts of ``loop`` and of the loops around it at the end of ``loop``."""
    for name, touch in loop.touches.items():
        for ancestor in (*outer_loops, loop):
            if touch.stride:
                ancestor.touches[name].count *= loop.length
            else:
                ancestor.touches[name].reuse *= loop.length
    loop.bottomup = max((touch.count * touch.reuse for touch in loop.touches.values()), default=-1)
    enclosing_level = loop.parallel_level + 1
    if outer_loops and outer_loops[-1].parallel_level == enclosing_level:
        # The body of parallel loops is their threads' reference.
        for ancestor in (ancestor for ancestor in outer_loops if ancestor.parallel_level == enclosing_level):
            for name, touch in loop.touches.items():
                ancestor.touches[name].thread_count, ancestor.touches[name].thread_reuse = -touch.count, -touch.reuse
    for touch in loop.touches.values():
        if touch.thread_count < 0:
            touch.thread_count = touch.count // -touch.thread_count
            touch.thread_reuse = touch.reuse // -touch.thread_reuse


def _read_annotation(node: Any) -> str:
    from tvm.tirx import ForKind

    if node.thread_binding is not None:
        tag = str(node.thread_binding.thread_tag)
        return "vthread" if tag.startswith("vthread") else tag
    kinds = {ForKind.UNROLLED: "unrolled", ForKind.VECTORIZED: "vectorized", ForKind.PARALLEL: "parallel"}
    return kinds.get(ForKind(node.kind), "serial")


def _list_operands(node: Any) -> list[Any]:
    for field_names in (("a", "b"), ("condition", "true_value", "false_value"), ("value", "body"), ("value",), ("a",)):
        if all(hasattr(node, name) for name in field_names):
            operands = [getattr(node, name) for name in field_names]
            return operands if all(hasattr(operand, "ty") for operand in operands) else []
    return list(node.args) if hasattr(node, "args") else []


def _parse_index(node: Any) -> _LinearSum:
    match type(node).__name__:
        case "Var":
            return {hash(node): 1}
        case "IntImm":
            return {(): int(node)}
        case "Add":
            return _add_sums(_parse_index(node.a), _parse_index(node.b))
        case "Sub":
            return _add_sums(_parse_index(node.a), _scale_sum(_parse_index(node.b), -1))
        case "Cast":
            return _parse_index(node.value)
    operands = [_parse_index(operand) for operand in _list_operands(node)]
    if type(node).__name__ == "Mul":
        for factor, terms in (operands, reversed(operands)):
            if factor.keys() <= {()}:
                return _scale_sum(terms, factor.get((), 0))
    return {(type(node).__name__, *(frozenset(operand.items()) for operand in operands)): 1}


def _add_sums(first: _LinearSum, second: _LinearSum) -> _LinearSum:
    summed = dict(first)
    for term, factor in second.items():
        summed[term] = summed.get(term, 0) + factor
    return {term: factor for term, factor in summed.items() if factor}


def _scale_sum(terms: _LinearSum, multiplier: int) -> _LinearSum:
    return {term: factor * multiplier for term, factor in terms.items() if multiplier}


def _collect_variables(term: tuple[Any, ...]) -> set[int]:
    """Return the variables in a term that is not itself a variable."""
    variables: set[int] = set()
    for operand in term[1:]:
        for factor_term, _ in operand:
            variables |= _collect_variables(factor_term) if isinstance(factor_term, tuple) else {factor_term}
    return variables
