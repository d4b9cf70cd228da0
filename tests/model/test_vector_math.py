"""Elementary functions as polynomials: they are accurate, and call no library."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.frontend import nn

from searchlab.model.tasks import lower, tasks_of

FUNCTIONS = {
    "exp": np.exp,
    "tanh": np.tanh,
    "erf": np.vectorize(math.erf),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}
NUMBERS = np.linspace(-16, 16, 4001, dtype=np.float32)


class Functions(nn.Module):
    def forward(self, x: Any) -> Any:
        operators = relax.op.exp, relax.op.tanh, relax.op.erf, relax.op.sigmoid
        return tuple(nn.wrap_nested(operator(x._expr), "y") for operator in operators)


def test_functions_are_polynomials_of_full_accuracy() -> None:
    model = Functions().export_tvm({"forward": {"x": nn.spec.Tensor(NUMBERS.shape, "float32")}})[0]
    module = lower(model)
    assert not any(f"T.{name}(" in module.script() for name in FUNCTIONS)
    results = relax.VirtualMachine(tvm.compile(module, "llvm"), tvm.cpu())["forward"](tvm.runtime.tensor(NUMBERS))
    for result, function in zip(results, FUNCTIONS.values(), strict=True):
        np.testing.assert_allclose(result.numpy(), function(NUMBERS.astype(np.float64)), rtol=1e-6)


def test_a_polynomial_counts_as_one_operation() -> None:
    model = Functions().export_tvm({"forward": {"x": nn.spec.Tensor((NUMBERS.size,), "float32")}})[0]
    for module in (lower(model), lower(lower(model))):
        assert [task.flops for task in tasks_of(module)] == [NUMBERS.size] * 4
    assert all(task.workload and task.workload.flops == NUMBERS.size for task in tasks_of(model))
