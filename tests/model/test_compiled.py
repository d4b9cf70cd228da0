"""Export of a tuned model to a place where it cannot be written."""

from __future__ import annotations

from pathlib import Path

import pytest
from tvm import relax
from tvm.relax.frontend import nn

from searchlab.errors import SearchlabError
from searchlab.model.compiled import compare_models
from searchlab.target import Target
from tests.support.limits import file_size_limit


class Layer(nn.Module):
    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return nn.op.add(x, x)


def exported(native: Target, library: Path) -> str:
    """Export a model, which must fail, and return the error."""
    model, _ = Layer().export_tvm({"forward": {"x": nn.spec.Tensor((4, 4), "float32")}})
    module = relax.transform.LegalizeOps()(model)
    with pytest.raises(SearchlabError, match=r"cannot write .*model\.so: ") as refused:
        compare_models(module, module, native, library, 0)
    return str(refused.value)


def test_a_library_that_cannot_be_linked_is_one_sentence(native: Target, tmp_path: Path) -> None:
    error = exported(native, tmp_path / "absent" / "model.so")
    assert "\n" not in error and any(word in error for word in ("error", "failed", "No such file"))


def test_an_object_file_that_cannot_be_written_is_one_sentence(native: Target, tmp_path: Path) -> None:
    """LLVM ends the process that cannot write."""
    with file_size_limit(500):
        error = exported(native, tmp_path / "model.so")
    assert "ends the process with exit code 1; free some space" in error and not list(tmp_path.iterdir())
