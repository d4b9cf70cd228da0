"""Models from ONNX files and exported PyTorch programs. Each test needs the package that writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from searchlab.errors import SearchlabError
from searchlab.model.load import load_model
from searchlab.model.tasks import tasks_of

CONV = "conv2d:1x8x8x4x3x3x3:p1:bias:relu"


def test_an_onnx_file_is_loaded(tmp_path: Path) -> None:
    onnx: Any = pytest.importorskip("onnx", reason="the extra onnx is not installed")
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    weights = {
        "w": rng.standard_normal((4, 3, 3, 3)),
        "b": rng.standard_normal(4),
        "v": rng.standard_normal((256, 10)),
    }
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w", "b"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["c"], ["r"]),
            helper.make_node("Flatten", ["r"], ["f"]),
            helper.make_node("MatMul", ["f", "v"], ["y"]),
        ],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 10])],
        [numpy_helper.from_array(value.astype("float32"), name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.save(model, str(tmp_path / "net.onnx"))
    names = [task.name for task in tasks_of(load_model(str(tmp_path / "net.onnx")))]
    assert CONV in names and "gemm:1x10x256" in names


def test_an_exported_pytorch_program_is_loaded(tmp_path: Path) -> None:
    torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.ReLU())
    torch.export.save(torch.export.export(net.eval(), (torch.zeros(1, 3, 8, 8),)), str(tmp_path / "net.pt2"))
    assert next(task.name for task in tasks_of(load_model(str(tmp_path / "net.pt2")))) == CONV


@pytest.mark.parametrize(("name", "package"), [("net.onnx", "onnx"), ("net.pt2", "torch")])
def test_a_file_that_is_missing_or_damaged_is_an_error(name: str, package: str, tmp_path: Path) -> None:
    pytest.importorskip(package, reason=f"{package} is not installed")
    with pytest.raises(SearchlabError, match=f"there is no .*{name}"):
        load_model(str(tmp_path / name))
    (tmp_path / name).write_bytes(b"not a model")
    with pytest.raises(SearchlabError, match=f"cannot convert .*{name}"):
        load_model(str(tmp_path / name))


@pytest.mark.parametrize("name", ["net.onnx", "net.pt2"])
def test_a_missing_extra_names_the_command(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    (tmp_path / name).write_bytes(b"a model")
    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(SearchlabError, match="pip install"):
        load_model(str(tmp_path / name))
