"""A model's inputs: their types, random values, symbolic dimensions, and weights that become constants."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from rich import filesize

from ..arrays import Array
from ..errors import SearchlabError, did_you_mean, first_line
from ..files import open_file, replace_file

if TYPE_CHECKING:
    import tvm


class Input(msgspec.Struct, frozen=True):
    """The name, shape and dtype of a model's input."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}{list(self.shape)}"


def find_main_function(module: tvm.IRModule) -> str:
    """Return the name of the model's function: ``main``, or that of the only Relax function.

    Raises SearchlabError if there are several or none.
    """
    from tvm import relax

    names = [
        variable.name_hint for variable, function in module.functions.items() if isinstance(function, relax.Function)
    ]
    if "main" in names:
        return "main"
    if len(names) != 1:
        raise SearchlabError(f"the model has {len(names)} Relax functions ({', '.join(names)}); name one of them main")
    return str(names[0])


def inputs_of(module: tvm.IRModule) -> list[Input]:
    """Return the inputs of a model, including its weights if they are parameters.

    Raises:
        SearchlabError: If a parameter is not a tensor of a fixed shape.
    """
    from tvm.tirx import IntImm

    inputs = []
    for parameter in module[find_main_function(module)].params:
        name, shape = str(parameter.name), getattr(parameter.ty, "shape", None)
        if shape is None:
            raise SearchlabError(f"the model's input {name} is not a tensor of a fixed shape")
        symbols = [str(extent) for extent in shape if not isinstance(extent, IntImm)]
        if symbols:
            raise SearchlabError(
                f"the model's input {name} has the symbolic dimension {symbols[0]}; choose a size, for example with "
                f"--shape {symbols[0]}=1 (in Python, with relax.transform.BindSymbolicVars)"
            )
        inputs.append(Input(name, tuple(int(extent) for extent in shape), str(_dtype_of(parameter))))
    return inputs


def random_inputs(inputs: Sequence[Input], rng: np.random.Generator) -> Iterator[Array]:
    """Yield an array for each of a model's inputs.

    Floating-point numbers are normal, divided by the square root of the number of elements that a layer sums, so that
    the outputs of deep models neither vanish nor overflow. Integers are 0 or 1, in case they are indices.
    """
    for model_input in inputs:
        shape, dtype = model_input.shape, model_input.dtype
        if "float" not in dtype:
            yield rng.integers(0, 2, shape).astype(dtype)
            continue
        summand_count = max(1, int(np.prod(shape[1:], dtype=int))) if len(shape) > 1 else 1
        yield (rng.standard_normal(shape) / np.sqrt(summand_count)).astype(dtype)


def read_arrays(path: Path) -> dict[str, Array]:
    """Return the arrays in a NumPy archive (``*.npz``). Raises SearchlabError if it is none, or contains pickles."""
    with open_file(path, kind="the arrays") as file:
        try:
            with np.load(file, allow_pickle=False) as archive:
                return dict(archive)
        except Exception as error:  # NumPy may raise anything
            raise SearchlabError(
                f"{path} is no archive of arrays, as numpy.savez writes it: {first_line(error)}"
            ) from None


def check_arrays(arrays: Mapping[str, Array], inputs: Sequence[Input], path: Path) -> None:
    """Raise SearchlabError if an array, which was read from ``path``, is no input, or of another shape or dtype."""
    expected = {model_input.name: model_input for model_input in inputs}
    for name, array in arrays.items():
        if name not in expected:
            raise SearchlabError(
                f"{path} contains {name!r}, but the model's inputs are {', '.join(expected)}"
                f"{did_you_mean(name, expected)}"
            )
        shape, dtype = expected[name].shape, expected[name].dtype
        if array.shape != shape:
            raise SearchlabError(
                f"{name} in {path} has the shape {list(array.shape)}, but the model takes {list(shape)}"
            )
        if str(array.dtype) != dtype:
            raise SearchlabError(
                f"{name} in {path} is {array.dtype}, but the model takes {dtype}; convert it with .astype({dtype!r})"
            )


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write a NumPy archive. Arrays of types that NumPy cannot store, such as bfloat16, become float32."""
    with replace_file(path) as file:
        storable = {
            name: array.astype("float32") if array.dtype.kind == "V" else array for name, array in arrays.items()
        }
        np.savez(file, allow_pickle=False, **storable)


def fix_dimensions(module: tvm.IRModule, sizes_by_dimension: Mapping[str, int]) -> tvm.IRModule:
    """Return a Relax module in which the named symbolic dimensions have fixed sizes.

    Raises SearchlabError if there is no such dimension.
    """
    from tvm import relax

    if not sizes_by_dimension:
        return module
    functions = [function for function in module.functions.values() if isinstance(function, relax.Function)]
    variables = [variable for function in functions for variable in relax.analysis.defined_symbolic_vars(function)]
    dimension_names = {str(variable.name) for variable in variables}
    for name in sizes_by_dimension:
        if name not in dimension_names:
            remark = "all of them are fixed"
            if dimension_names:
                remark = f"its symbolic dimensions are {', '.join(sorted(dimension_names))}"
            raise SearchlabError(f"the model has no dimension {name!r}; {remark}{did_you_mean(name, dimension_names)}")
    return relax.transform.BindSymbolicVars(dict(sizes_by_dimension))(module)


def bind_weights(module: tvm.IRModule, path: Path) -> tvm.IRModule:
    """Return a Relax module in which the parameters named in a NumPy archive are constants.

    Raises:
        SearchlabError: If an array is not a parameter of the model's function, or differs in shape or dtype.
    """
    from tvm import relax

    main_function, arrays = find_main_function(module), read_arrays(path)
    check_arrays(arrays, inputs_of(module), path)
    return relax.transform.BindParams(main_function, arrays)(module)


def describe_weights(module: tvm.IRModule) -> str:
    """Return what a lowered model computes from its weights in every run, or "" if none of them is a parameter.

    Parameters count as weights if they follow the inputs that the attribute ``num_input`` of the function counts.
    """
    from tvm import relax

    function = module[find_main_function(module)]
    if not function.attrs or "num_input" not in function.attrs:
        return ""
    weights = list(function.params)[int(function.attrs["num_input"]) :]
    if not weights:
        return ""
    weight_variables, called_functions, computed_bytes = set(weights), [], 0
    for block in function.body.blocks:
        for binding in block.bindings:
            call = binding.value
            if not isinstance(call, relax.Call) or getattr(call.op, "name", "") != "relax.call_tir":
                continue
            variables = [argument for argument in call.args[1] if isinstance(argument, relax.Var)]
            if variables and weight_variables.issuperset(variables):
                weight_variables.add(binding.var)
                called_functions.append(str(call.args[0].name_hint))
                computed_bytes += _count_bytes(binding.var)
    computation_text = ""
    if called_functions:
        function_names = ", ".join(dict.fromkeys(called_functions))
        computation_text = (
            f", and every run computes {filesize.decimal(computed_bytes)} from them, with {len(called_functions)} "
            f"calls of {function_names}"
        )
    weights_size_text = filesize.decimal(sum(map(_count_bytes, weights)))
    return (
        f"{len(weights)} weights ({weights_size_text}) are arguments of the model{computation_text}; --bind FILE.npz "
        f"makes them constants, which are transformed only once, also to the layout that a space with weights=packed "
        f"prefers"
    )


def count_elements(variable: Any) -> int:
    """Return the number of elements of a tensor variable; 0 if it is no tensor of a fixed shape."""
    from tvm.tirx import IntImm

    shape = getattr(variable.ty, "shape", None)
    if shape is None or not all(isinstance(extent, IntImm) for extent in shape):
        return 0
    return math.prod(int(extent) for extent in shape)


def _count_bytes(variable: Any) -> int:
    element_count = count_elements(variable)
    return element_count * int(_dtype_of(variable).itemsize) if element_count else 0


def _dtype_of(variable: Any) -> Any:
    """Return the dtype of a tensor variable, which has a type of its own in TensorIR."""
    return getattr(variable.ty.dtype, "dtype", variable.ty.dtype)
