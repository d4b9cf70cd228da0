"""Export of a tuned model to a place where it cannot be written."""

from __future__ import annotations

from pathlib import Path

import pytest
from tvm import relax
from tvm.relax.frontend import nn

from searchlab.errors import SearchlabError
from searchlab.model.compiled import compared
from searchlab.target import Target


class Layer(nn.Module):
    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return nn.op.add(x, x)


def test_a_library_that_cannot_be_linked_is_one_sentence(native: Target, tmp_path: Path) -> None:
    exported, _ = Layer().export_tvm({"forward": {"x": nn.spec.Tensor((4, 4), "float32")}})
    module = relax.transform.LegalizeOps()(exported)
    library = tmp_path / "absent" / "model.so"
    with pytest.raises(SearchlabError, match=r"cannot write .*model\.so: .*(error|failed|No such file)") as refused:
        compared(module, module, native, library, 0)
    assert "\n" not in str(refused.value)
