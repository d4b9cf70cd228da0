"""A schedule as a Python script that needs only TVM: the workload's module, and each instruction of the trace.

TVM's own ``Trace.as_python`` is right for the values in TVM's own schedules. It fails for the whole trace if an
instruction holds an expression of random variables, or a number that float32 cannot hold. It writes strings without
escapes, True as 1, NaN as a bare name, numbers without their dtype, and constants of an index map as numbers, which TVM
does not take there. So instructions that may hold such values are written here, and the others by TVM.
"""

from __future__ import annotations

import json
import keyword
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import SearchlabError, last_line
from ..measure.code import program_hash
from ..measure.replay import why_not_replayed
from ..target import Target
from ..workload import Workload
from .threads import THREADS

if TYPE_CHECKING:
    from tvm.s_tir import Schedule
    from tvm.s_tir.schedule import Instruction
    from tvm.tirx import IndexMap

Names = Mapping[int, str]
"""The name of each random variable of a trace, by the address of its object."""


def python_script(schedule: Schedule, workload: Workload, target: Target, title: str) -> str:
    """A script that makes the module of ``schedule``, checks it, and prints it; ``title`` is its first comment.

    It also defines ``module``, ``apply_trace``, ``sch`` and ``target``. Raises SearchlabError if the schedule is
    no transformation of the workload's module, or holds a value that Python cannot spell.
    """
    import tvm

    if why := why_not_replayed(schedule, workload):
        raise _unwritable(why)
    program = program_hash(schedule.mod)
    lines = statements(schedule)
    body = "\n".join(f"    {line}" for line in lines or ["pass"])
    spec = {"num-cores": target.cores, **target.spec} if target.kind == "llvm" else target.spec
    threads = (
        f'import os\n\nos.environ.setdefault("{THREADS}", "{target.cores}")  # as in the trials; TVM takes half\n\n'
        if target.kind == "llvm"
        else ""
    )
    intrinsics = "".join(_registration(name) for name in _intrinsics(schedule))
    return f'''\
# {" ".join(title.split())}
# Written by searchlab; it needs nothing but TVM (apache-tvm {tvm.__version__}).
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
assert program == "{program}", f"this TVM makes another program of it: {{program}}"
print(sch.mod.script())
'''


def statements(schedule: Schedule) -> list[str]:
    """Each instruction of the trace as a statement about ``sch``, a ``Schedule`` of the unscheduled module.

    Random variables have TVM's names: ``b0`` a block, ``l1`` a loop, ``v2`` a number.
    """
    from tvm.s_tir.schedule import Instruction
    from tvm.s_tir.schedule.trace import Trace

    names: dict[int, str] = {}
    ours: list[str | None] = []
    plain: list[Any] = []  # all instructions in a form that TVM can write, since TVM counts the random variables of all
    for instruction in schedule.trace.insts:
        kind = str(instruction.kind.name)
        writer = _WRITERS.get(kind)
        ours.append(writer(instruction, names) if writer else None)
        if kind == "Annotate":
            instruction = Instruction(instruction.kind, [instruction.inputs[0], 0], [""], [])
        elif kind == "Split":
            ones = [1] * (len(instruction.inputs) - 1)
            instruction = Instruction(
                instruction.kind, [instruction.inputs[0], *ones], instruction.attrs, instruction.outputs
            )
        plain.append(instruction)
        for output in instruction.outputs:
            names[_address(output)] = f"{_letter(output)}{len(names)}"
        if ours[-1] is not None and kind == "Split":
            ours[-1] = f"{', '.join(names[_address(output)] for output in instruction.outputs)} = {ours[-1]}"
    try:
        theirs = [str(line) for line in Trace(plain, schedule.trace.decisions).as_python()]
    except Exception as error:  # TVM gives up on the whole trace
        raise _unwritable(last_line(error)) from None
    return [own or line for own, line in zip(ours, theirs, strict=True)]


# --- instructions that may hold any value ---------------------------------------------------------------------


def _annotate(instruction: Instruction, names: Names) -> str:
    where, value = instruction.inputs
    key = _value(instruction.attrs[0], names)
    return f"sch.annotate({_value(where, names)}, {key}, {_value(value, names)})"


def _split(instruction: Instruction, names: Names) -> str:
    loop, *factors = instruction.inputs
    unit_iters, no_predication = map(bool, instruction.attrs)
    options = ("" if unit_iters else ", preserve_unit_iters=False") + (
        ", disable_predication=True" if no_predication else ""
    )
    return f"sch.split({_value(loop, names)}, {_value(factors, names)}{options})"


def _transform_layout(instruction: Instruction, names: Names) -> str:
    block, index_map = instruction.inputs
    index, kind, pad_value, injective = instruction.attrs
    buffer = f'("{("read", "write")[int(kind)]}", {int(index)})'
    options = ("" if pad_value is None else f", pad_value={_index_map(pad_value)}") + (
        ", assume_injective_transform=True" if injective else ""
    )
    return f"sch.transform_layout({_value(block, names)}, {buffer}, {_index_map(index_map)}{options})"


def _transform_block_layout(instruction: Instruction, names: Names) -> str:
    return f"sch.transform_block_layout({_value(instruction.inputs[0], names)}, {_index_map(instruction.attrs[0])})"


_WRITERS = {
    "Annotate": _annotate,
    "Split": _split,
    "TransformLayout": _transform_layout,
    "TransformBlockLayout": _transform_block_layout,
}


# --- values ---------------------------------------------------------------------------------------------------

_OPERATORS = {"Add": "+", "Sub": "-", "Mul": "*", "FloorDiv": "//", "FloorMod": "%"}
_FUNCTIONS = {"Min": "tvm.tirx.min", "Max": "tvm.tirx.max"}


def _value(value: Any, names: Names) -> str:
    """``value`` as a Python expression; a random variable by its name. Raises SearchlabError if it has none."""
    if isinstance(value, str):
        return json.dumps(str(value), ensure_ascii=False)  # whose escapes are Python's too
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
    """An index map as a Python function; as TVM's JSON if its indices are not int32, or if it holds other calls."""
    import tvm

    names: dict[int, str] = {}
    for index in index_map.initial_indices:
        name = str(index.name)
        if not name.isidentifier() or keyword.iskeyword(name) or name in names.values():
            name = f"i{len(names)}"
        names[_address(index)] = name
    try:
        if any(str(index.ty.dtype) != "int32" for index in index_map.initial_indices) or len(set(names.values())) < len(
            index_map.initial_indices
        ):
            raise _unwritable("")
        results = [_result(index, names) for index in index_map.final_indices]
    except SearchlabError:
        return f"tvm.ir.load_json({_block(tvm.ir.save_json(index_map))})"
    return f"lambda {', '.join(names.values())}: ({', '.join(map(_bare, results))},)"


def _result(index: Any, names: Names) -> str:
    """A result of an index map; TVM does not take a plain number for it."""
    if type(index).__name__ == "IntImm":
        return f'tvm.tirx.IntImm("{index.ty.dtype}", {int(index.value)})'
    return _value(index, names)


def _bare(text: str) -> str:
    """``text`` without parentheses around the whole."""
    depth = 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return text[1:-1] if letter == ")" and place == len(text) - 1 and text[0] == "(" else text
    return text


def _block(text: str) -> str:
    """``text`` as a literal of several lines, if possible."""
    if "'''" in text or "\\" in text or text.endswith("'"):
        return repr(text)
    return f"'''\n{text}\n'''"


def _letter(random_variable: Any) -> str:
    kind = type(random_variable).__name__
    return {"SBlockRV": "b", "LoopRV": "l"}.get(kind, "v")


def _address(value: Any) -> int:
    """The address of TVM's object: two random variables of equal expressions are not the same."""
    return int(value.__chandle__())


# --- tensor intrinsics, known only to the process that registered them ----------------------------------------


def _intrinsics(schedule: Schedule) -> list[str]:
    """The names of the tensor intrinsics in the trace, each once."""
    used = [instruction for instruction in schedule.trace.insts if instruction.kind.name == "Tensorize"]
    return list(dict.fromkeys(str(instruction.attrs[0]) for instruction in used))


def _registration(name: str) -> str:
    from tvm.s_tir import TensorIntrin

    intrinsic = TensorIntrin.get(name)
    functions = [_block(function.script()) for function in (intrinsic.desc, intrinsic.impl)]
    desc, impl = (f"tvm.script.from_source({text})" for text in functions)
    return f"TensorIntrin.register({_value(name, {})}, {desc}, {impl}, override=True)\n"


def _unwritable(what: str) -> SearchlabError:
    return SearchlabError(f"the schedule cannot be written as Python: {what}; use --show trace or --show tir")
