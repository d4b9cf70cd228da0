"""The MLP tutorial: linear0 tuned and put back in both ways, and the model says what it said."""

from __future__ import annotations

import re
from pathlib import Path

from searchlab import load_log

from .scripts import printed

WAYS = ["as it was", "apply_history_best", "MetaScheduleApplyDatabase"]


def test_small_run(tmp_path: Path) -> None:
    text = printed("mlp", "--small", "--batch", "3", "--space", "knob-template", "--out", str(tmp_path))
    result = load_log(next(tmp_path.glob("*.jsonl")))
    assert str(result.space.workload) == "gemm:3x128x784:bias" and len(result.trials) == 6

    tuned = dict(re.findall(r"^(.*): tuned are (.*) of the model's functions$", text, re.MULTILINE))
    assert tuned == dict(zip(WAYS, ["none", "linear0", "linear0"], strict=True))

    lines = re.findall(r"^(.*): (\S+)% of 512 digits right, the first are ([\d ]+)$", text, re.MULTILINE)
    assert [name for name, *_ in lines] == WAYS
    assert len({(right, digits) for _, right, digits in lines}) == 1 and float(lines[0][1]) > 90

    timed = re.findall(r"^(.*): the model takes \S+ us, linear0 alone \S+ us$", text, re.MULTILINE)
    assert timed == WAYS
