"""The MLP tutorial: linear0 is tuned and replaced in both ways, and the model's predictions stay the same."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from searchlab import load_log
from studies.tutorials.images import draw, load_images

from .scripts import printed, refusal

WAYS = ["as it was", "apply_history_best", "MetaScheduleApplyDatabase"]
MODELS = [*WAYS, "with a library"]


def test_the_tutorial_runs_with_few_trials(tmp_path: Path) -> None:
    text = printed("mlp", "--small", "--batch", "3", "--space", "knob-template", "--out", str(tmp_path))
    result = load_log(next(tmp_path.glob("*.jsonl")))
    assert str(result.space.workload) == "gemm:3x128x784:bias" and len(result.trials) == 6

    tuned = dict(re.findall(r"^(.*): tuned are (.*) of the model's functions$", text, re.MULTILINE))
    assert tuned == dict(zip(WAYS, ["none", "linear0", "linear0"], strict=True))

    lines = re.findall(r"^(.*): (\S+)% of 512 images right, the first are ([\d ]+)$", text, re.MULTILINE)
    assert [name for name, *_ in lines] == MODELS
    assert len({(right, digits) for _, right, digits in lines}) == 1 and float(lines[0][1]) > 90

    timed_models = re.findall(r"^(.*): the model takes \S+ us, linear0 alone \S+ us$", text, re.MULTILINE)
    assert timed_models == MODELS
    assert '"tirx.is_scheduled": True' in text and 'R.call_dps_packed("numpy.relu"' in text
    assert f"the tuned model sees: {lines[0][2].split()[0]}\n" in text


def write_idx(path: Path, array: Any) -> None:
    head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes()
    path.write_bytes(gzip.compress(head + array.astype(np.uint8).tobytes()))


def test_files_of_fashion_mnist_are_read(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (20, 28, 28)), rng.integers(0, 10, 20)
    for part in ("train", "t10k"):
        write_idx(tmp_path / f"{part}-images-idx3-ubyte.gz", images)
        write_idx(tmp_path / f"{part}-labels-idx1-ubyte.gz", labels)
    read = load_images(tmp_path)
    np.testing.assert_allclose(read.train.reshape(20, 28, 28) * 255, images, rtol=1e-5)
    np.testing.assert_array_equal(read.test_labels, labels)
    assert read.classes[9] == "Ankle boot" and len(draw(read.train[0]).splitlines()) == 14
    (tmp_path / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(b"hello, world"))
    with pytest.raises(SystemExit, match="is not an IDX file"):
        load_images(tmp_path)


def test_missing_images_are_named_in_a_sentence(tmp_path: Path) -> None:
    assert "train-images-idx3-ubyte.gz is missing" in refusal("mlp", "--images", str(tmp_path))
