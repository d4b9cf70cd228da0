"""The tutorial on tuning a model, with a model that is tuned in seconds: it is killed once, and goes on."""

from __future__ import annotations

import re
from pathlib import Path

from searchlab.log.read import find_logs, read_log

from .scripts import printed

FILE = Path(__file__).parents[1] / "model" / "models.py"


def test_a_killed_command_goes_on(tmp_path: Path) -> None:
    options = ["--trials", "12", "--batch", "2", "--kills", "1"]
    text = printed("resnet18", "--file", str(FILE), "--models", "mlp", *options, cwd=tmp_path)
    assert "gemm:2x8x16:nt:bias:relu" in text and "of which can be tuned" in text
    (killed,) = re.findall(r"^killed after (\d+) trials$", text, re.MULTILINE)
    assert int(killed) >= 6
    assert len(re.findall(r"^\$ searchlab model tune", text, re.MULTILINE)) == 2
    out = tmp_path / "results" / "tutorials" / "mlp"
    assert sum(len(read_log(path).records) for path in find_logs(out / "tasks")) == 12
    assert "its outputs differ by at most" in text
    assert (out / "model.so").is_file() == ("the tuned model is" in text)  # not if another process slowed it down
