"""The comparison of whole models with what users run: one is tuned and timed, and the page follows the records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from searchlab.model.inputs import inputs_of
from searchlab.model.load import load_model
from tests.support.benchmarks import BENCHMARKS, script

peers, model_peers, end_to_end = map(script, ("peers", "model_peers", "end_to_end"))

MODELS = Path(__file__).parents[1] / "model" / "models.py"


def test_a_model_is_tuned_and_timed_only_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = f"mlp --file {MODELS} --trials 3 --batch 1 --rounds 1 --threads 1 --peers".split()
    end_to_end.main([*words, "--out", str(tmp_path)])
    first = capsys.readouterr().out.splitlines()[-1]
    assert first.startswith("mlp on 1: ") and " instead of " in first
    row = json.loads((tmp_path / "mlp-1t.json").read_text())
    assert row["trials"] == 3 and 0 < row["ours_seconds"] < 1 and 0 < row["default_seconds"] < 1
    assert row["curve"][-1][0] == 3
    end_to_end.main([*words, "--out", str(tmp_path)])
    assert capsys.readouterr().out.splitlines() == [first]
    library = tmp_path / "mlp-1t" / "tuned" / "model.so"
    end_to_end.main([*words, "--library", str(library), "--out", str(tmp_path / "other")])
    assert capsys.readouterr().out.startswith("mlp on 1: ")


def test_peers_that_are_not_installed_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match=r"the peer 'pytorch' requires the package 'torch'.*pip install '\.\[peers\]'"):
        end_to_end.main(["gpt2"])
    with pytest.raises(SystemExit, match="the peer 'onnxruntime' requires the package 'onnxruntime'"):
        end_to_end.main(["gpt2", "--peers", "onnxruntime"])


@pytest.mark.parametrize("name", end_to_end.TITLES)
def test_a_network_has_the_weights_of_the_relax_module(name: str) -> None:
    """Whether it computes the same is checked whenever the script runs."""
    torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")
    module = load_model(f"{BENCHMARKS.parent / 'tutorials' / 'models.py'}:{name}")
    function = module["forward"]
    tensors = [torch.empty(model_input.shape, device="meta") for model_input in inputs_of(module)]
    count = int(function.attrs["num_input"])
    weights = iter(tensors[count:])
    result = model_peers.NETWORKS[name](weights, *tensors[:count])
    assert not list(weights)
    assert result.shape == tuple(int(extent) for extent in function.ret_ty.shape)


def row(threads: int, **ratios: float) -> dict[str, Any]:
    return {
        "model": "gpt2",
        "threads": threads,
        "trials": 1000,
        "date": "2026-11-28",
        "machine": "2 cores of a CPU",
        "default_seconds": 1.25,
        "ours_seconds": 0.01,
        "difference": "1.0e-06",
        "curve": [[8, 0.5], [16, 0.01]],
        "peers": {
            name: {
                "seconds": 0.01 * ratio,
                "ratio": ratio,
                "ratio_quartiles": [0.9 * ratio, 1.1 * ratio],
                "version": "1.2",
                "difference": "2.0e-06",
            }
            for name, ratio in ratios.items()
        },
    }


def test_the_page_names_the_strongest_peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(end_to_end, "RECORDS", tmp_path)
    assert "Not measured yet" in "\n".join(end_to_end.page())
    for measured in (
        row(2, pytorch=2.0, inductor=1.0, onnxruntime=0.5),
        row(1, pytorch=3.0, inductor=2.0, onnxruntime=4.0),
    ):
        (tmp_path / f"gpt2-{measured['threads']}t.json").write_text(json.dumps(measured))
    page = "\n".join(end_to_end.page())
    assert "| GPT-2 block | 1 | 1,250 | **10.00** | 30.00 | 20.00 | 40.00 | Inductor | 2.00 (1.80 to 2.20) |" in page
    assert "| GPT-2 block | 2 | 1,250 | 10.00 | 20.00 | 10.00 | **5.00** | ONNX Runtime | 0.50 (0.45 to 0.55) |" in page
    assert "in 1 of 2 rows; the geometric mean of the ratios is 1.00" in page
    assert "differ by at most 2.0e-06" in page and "Inductor 1.2, ONNX Runtime 1.2, PyTorch 1.2" in page
    end_to_end.draw(end_to_end.read_rows(), tmp_path / "chart.png")
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG")


def test_the_page_follows_the_records() -> None:
    """If this fails, run ``python studies/benchmarks/end_to_end.py --page``."""
    assert end_to_end.PAGE.read_text("utf-8") == "\n".join(end_to_end.page()).rstrip() + "\n"
