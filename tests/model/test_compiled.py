"""Export of a tuned model to a place where it cannot be written."""

from __future__ import annotations

from pathlib import Path

import pytest
from tvm import relax
from tvm.relax.frontend import nn

from searchlab.errors import SearchlabError
from searchlab.model.compiled import compare_and_export
from searchlab.target import Target
from tests.support.cli import run_python
from tests.support.limits import file_size_limit


class Layer(nn.Module):
    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return nn.op.add(x, x)


def export_error(native: Target, library: Path) -> str:
    """Export a model, which must fail, and return the error."""
    model, _ = Layer().export_tvm({"forward": {"x": nn.spec.Tensor((4, 4), "float32")}})
    module = relax.transform.LegalizeOps()(model)
    with pytest.raises(SearchlabError, match=r"cannot write .*model\.so: ") as refused:
        compare_and_export(module, module, native, library, 0)
    return str(refused.value)


def test_a_library_that_cannot_be_linked_is_one_sentence(native: Target, tmp_path: Path) -> None:
    error = export_error(native, tmp_path / "absent" / "model.so")
    assert "\n" not in error and any(word in error for word in ("error", "failed", "No such file"))


def test_an_object_file_that_cannot_be_written_is_one_sentence(native: Target, tmp_path: Path) -> None:
    """LLVM ends the process that cannot write."""
    with file_size_limit(500):
        error = export_error(native, tmp_path / "model.so")
    assert "ends the process with exit code 1; free some space" in error and not list(tmp_path.iterdir())


PROGRAM = """
import os
os.environ["TVM_NUM_THREADS"] = "4"
import numpy as np, tvm, time
from tvm import te
from searchlab.survival import find_crash
from tests.support.limits import file_size_limit
a = te.placeholder((1 << 16,), name="a")
schedule = tvm.s_tir.Schedule(te.create_prim_func([a, te.compute((1 << 16,), lambda i: a[i] + 1, name="b")]))
schedule.parallel(schedule.get_loops(schedule.get_sblock("b"))[0])
library = tvm.compile(schedule.mod, target={"kind": "llvm", "num-cores": 4})
library["main"](*(tvm.runtime.tensor(np.zeros(1 << 16, "float32")) for _ in "ab"))
time.sleep(1)  # by now, the threads of the pool sleep
with file_size_limit(500):
    print(find_crash(lambda: library.export_library("model.so"), 20))
"""


def test_a_fork_of_a_process_with_threads_can_be_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork has no threads of TVM's pool, but would wait for them, or crash, when LLVM ends it."""
    monkeypatch.chdir(tmp_path)
    assert run_python("-c", PROGRAM).stdout == "it ends the process with exit code 1\n"
