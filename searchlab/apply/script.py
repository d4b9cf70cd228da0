"""Writing a schedule as a Python script that needs only TVM: the workload's module and the trace's instructions.

TVM's ``Trace.as_python`` is correct only for the values that occur in TVM's own schedules. It fails for the entire
trace if an instruction contains an expression of random variables or a number that float32 cannot represent. It writes
strings without escapes, True as 1, NaN as a bare name, numbers without their dtype, and constants in an index map as
numbers, which TVM does not accept there. Instructions that may contain such values are therefore written here; TVM
writes the others.
"""

from __future__ import annotations

import ast
import json
import keyword
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import SearchlabError, last_line
from ..measure.code import why_not_replayed
from ..target import Target
from ..workload import Workload, program_hash

if TYPE_CHECKING:
    from tvm.s_tir import Schedule
    from tvm.s_tir.schedule import Instruction
    from tvm.tirx import IndexMap

THREADS = "TVM_NUM_THREADS"
"""The environment variable that TVM reads when it starts its thread pool, and whenever a program runs."""

Names = Mapping[int, str]
"""The name of each random variable in a trace, by its object's address."""


def python_script(schedule: Schedule, workload: Workload, target: Target, title: str) -> str:
    """Return a script that builds the module of ``schedule``, checks it, and prints it.

    The script also defines ``module``, ``apply_trace``, ``sch`` and ``target``.

    Args:
        schedule: The schedule.
        workload: The schedule's workload.
        target: The target for which the program is compiled.
        title: The script's first comment.

    Raises:
        SearchlabError: If the schedule is not a transformation of the workload's module, or contains a value without a
            Python literal.
    """
    import tvm

    if why := why_not_replayed(schedule, workload):
        raise _unwritable(why)
    program = program_hash(schedule.mod)
    body = "\n".join(f"    {line}" for line in _statements(schedule) or ["pass"])
    spec = {"num-cores": target.cores, **target.spec} if target.kind == "llvm" else target.spec
    threads = (
        f'import os\n\nos.environ.setdefault("{THREADS}", "{target.cores}")  # as in the trials\n\n'
        if target.kind == "llvm"
        else ""
    )
    tensorized = [str(one.attrs[0]) for one in schedule.trace.insts if one.kind.name == "Tensorize"]
    intrinsics = "".join(_registration(name) for name in dict.fromkeys(tensorized))
    return f'''\
# {" ".join(title.split())}
# Written by searchlab; it needs only TVM (apache-tvm {tvm.__version__}).
{threads}import tvm
from tvm.s_tir import Schedule{", TensorIntrin" if intrinsics else ""}
from tvm_ffi import structural_hash

module = tvm.script.from_source({_block(workload.module.script())})


def apply_trace(sch: Schedule) -> None:
{body}

{intrinsics}
target = tvm.target.Target({_value(spec, {})})  # tvm.compile(sch.mod, target=target) builds it
sch = Schedule(module)
apply_trace(sch)
program = f"{{structural_hash(sch.mod) & (1 << 64) - 1:016x}}"
assert program == "{program}", f"this TVM builds a different program: {{program}}"
print(sch.mod.script())
'''


def _statements(schedule: Schedule) -> list[str]:
    """Return each instruction in the trace as a statement on ``sch``, a ``Schedule`` of the unscheduled module.

    Random variables are named as in TVM: ``b0`` for a block, ``l1`` for a loop, ``v2`` for a number.
    """
    from tvm.s_tir.schedule import Instruction
    from tvm.s_tir.schedule.trace import Trace

    names: dict[int, str] = {}
    ours: list[str | None] = []
    # All instructions, in a form that TVM can write, because it numbers random variables across all of them.
    plain: list[Any] = []
    for instruction in schedule.trace.insts:
        kind = str(instruction.kind.name)
        ours.append(_written(instruction, names))
        if kind == "Annotate":
            instruction = Instruction(instruction.kind, [instruction.inputs[0], 0], [""], [])
        elif kind == "Split":
            ones = [1] * (len(instruction.inputs) - 1)
            instruction = Instruction(
                instruction.kind, [instruction.inputs[0], *ones], instruction.attrs, instruction.outputs
            )
        plain.append(instruction)
        for output in instruction.outputs:
            letter = {"SBlockRV": "b", "LoopRV": "l"}.get(type(output).__name__, "v")
            names[_address(output)] = f"{letter}{len(names)}"
        if ours[-1] is not None and kind == "Split":
            ours[-1] = f"{', '.join(names[_address(output)] for output in instruction.outputs)} = {ours[-1]}"
    try:
        theirs = [str(line) for line in Trace(plain, schedule.trace.decisions).as_python()]
    except Exception as error:  # TVM gives up on the entire trace
        raise _unwritable(last_line(error)) from None
    return [own or line for own, line in zip(ours, theirs, strict=True)]


def _written(instruction: Instruction, names: Names) -> str | None:
    """Return a statement without outputs for instruction kinds that may contain any value, and None for others."""

    def text(value: Any) -> str:
        return _value(value, names)

    inputs, attributes = instruction.inputs, instruction.attrs
    match str(instruction.kind.name):
        case "Annotate":
            return f"sch.annotate({text(inputs[0])}, {text(attributes[0])}, {text(inputs[1])})"
        case "Split":
            unit_iters, no_predication = map(bool, attributes)
            options = "" if unit_iters else ", preserve_unit_iters=False"
            options += ", disable_predication=True" if no_predication else ""
            return f"sch.split({text(inputs[0])}, {text(inputs[1:])}{options})"
        case "TransformLayout":
            index, kind, pad_value, injective = attributes
            buffer = f'("{("read", "write")[int(kind)]}", {int(index)})'
            options = "" if pad_value is None else f", pad_value={_index_map(pad_value)}"
            options += ", assume_injective_transform=True" if injective else ""
            return f"sch.transform_layout({text(inputs[0])}, {buffer}, {_index_map(inputs[1])}{options})"
        case "TransformBlockLayout":
            return f"sch.transform_block_layout({text(inputs[0])}, {_index_map(attributes[0])})"
    return None


# --- values ---------------------------------------------------------------------------------------------------

_OPERATORS = {"Add": "+", "Sub": "-", "Mul": "*", "FloorDiv": "//", "FloorMod": "%"}
_FUNCTIONS = {"Min": "tvm.tirx.min", "Max": "tvm.tirx.max"}


def _value(value: Any, names: Names) -> str:
    """Return ``value`` as a Python expression, or the name of a random variable.

    Raises SearchlabError if ``value`` has no Python expression.
    """
    if isinstance(value, str):
        return json.dumps(str(value), ensure_ascii=False)  # Python has the same escapes
    if value is None or isinstance(value, bool | int):
        return repr(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else f'float("{value}")'
    if isinstance(value, Mapping) or hasattr(value, "items"):
        return "{" + ", ".join(f"{_value(key, names)}: {_value(item, names)}" for key, item in value.items()) + "}"
    if isinstance(value, Sequence):
        return "[" + ", ".join(_value(item, names) for item in value) + "]"
    if name := names.get(_address(value)):
        return name
    kind = type(value).__name__
    if kind == "IntImm":
        dtype = str(value.ty.dtype)
        return str(int(value.value)) if dtype == "int32" else f'tvm.tirx.IntImm("{dtype}", {int(value.value)})'
    if kind == "FloatImm":
        return f'tvm.tirx.FloatImm("{value.ty.dtype}", {_value(float(value.value), names)})'
    if kind in _OPERATORS:
        return f"({_value(value.a, names)} {_OPERATORS[kind]} {_value(value.b, names)})"
    if kind in _FUNCTIONS:
        return f"{_FUNCTIONS[kind]}({_value(value.a, names)}, {_value(value.b, names)})"
    raise _unwritable(f"{kind} {value}")


def _index_map(index_map: IndexMap) -> str:
    """Return an index map as a lambda, or as TVM's JSON if an index is not int32 or an operation is not supported."""
    import tvm

    names: dict[int, str] = {}
    for index in index_map.initial_indices:
        name = str(index.name)
        if not name.isidentifier() or keyword.iskeyword(name) or name in names.values():
            name = f"i{len(names)}"
        names[_address(index)] = name
    try:
        indices = index_map.initial_indices
        if any(str(index.ty.dtype) != "int32" for index in indices) or len(set(names.values())) < len(indices):
            raise _unwritable("")
        results = [_result(index, names) for index in index_map.final_indices]
    except SearchlabError:
        return f"tvm.ir.load_json({_block(tvm.ir.save_json(index_map))})"
    # Remove the parentheses that operator precedence makes superfluous.
    return ast.unparse(ast.parse(f"lambda {', '.join(names.values())}: ({', '.join(results)},)", mode="eval"))


def _result(index: Any, names: Names) -> str:
    """Return the expression for an index map's result, where TVM does not accept a plain number."""
    if type(index).__name__ == "IntImm":
        return f'tvm.tirx.IntImm("{index.ty.dtype}", {int(index.value)})'
    return _value(index, names)


def _block(text: str) -> str:
    """Return ``text`` as a multi-line literal if possible."""
    if "'''" in text or "\\" in text or text.endswith("'"):
        return repr(text)
    return f"'''\n{text}\n'''"


def _address(value: Any) -> int:
    """Return the address of TVM's object, since random variables with equal expressions are distinct."""
    return int(value.__chandle__())


def _registration(name: str) -> str:
    """Return the statement that registers a tensor intrinsic, which is otherwise known only to this process."""
    from tvm.s_tir import TensorIntrin

    intrinsic = TensorIntrin.get(name)
    functions = [_block(function.script()) for function in (intrinsic.desc, intrinsic.impl)]
    desc, impl = (f"tvm.script.from_source({text})" for text in functions)
    return f"TensorIntrin.register({_value(name, {})}, {desc}, {impl}, override=True)\n"


def _unwritable(what: str) -> SearchlabError:
    return SearchlabError(f"cannot write the schedule as Python: {what}; use --show trace or --show tir")
