"""Images for the tutorial on an MLP: the digits of scikit-learn, or files of Fashion-MNIST (or MNIST) in a directory.

The files of Fashion-MNIST, ``train-images-idx3-ubyte.gz`` and three others, are not downloaded here: they are at
https://github.com/zalandoresearch/fashion-mnist.
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

CLOTHES = ("T-shirt", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
"""The classes of Fashion-MNIST, in the order of their labels."""

DIGITS = tuple("0123456789")

TRAINED_ON, TESTED_ON = 10_000, 512
"""The maximum number of images that are read from the files."""


class Images(NamedTuple):
    """Images of 28x28 pixels between 0 and 1, as rows of 784 numbers, their labels, and the names of the classes."""

    train: Any
    train_labels: Any
    test: Any
    test_labels: Any
    classes: tuple[str, ...]


def load_images(folder: Path | None, classes: tuple[str, ...] = CLOTHES) -> Images:
    """Return the images of the files in ``folder``, or the digits of scikit-learn if it is None."""
    if folder is None:
        return _digits()
    train, test = (_idx(folder / f"{part}-images-idx3-ubyte", dims=3) for part in ("train", "t10k"))
    train_labels, test_labels = (_idx(folder / f"{part}-labels-idx1-ubyte", dims=1) for part in ("train", "t10k"))
    rows = [(images.reshape(len(images), -1) / 255).astype("float32") for images in (train, test)]
    return Images(
        rows[0][:TRAINED_ON], train_labels[:TRAINED_ON], rows[1][:TESTED_ON], test_labels[:TESTED_ON], classes
    )


def draw(image: Any) -> str:
    """Return an image of 28x28 pixels as text, in which a character is two pixels high."""
    pairs = image.reshape(14, 2, 28).mean(axis=1)
    return "\n".join("".join(" .:-=+*#%@"[min(9, int(10 * pixel))] for pixel in row).rstrip() for row in pairs)


def _digits() -> Images:
    """Return 1,797 digits of 8x8 pixels, enlarged to 28x28: each pixel becomes 3x3, with a border of 2."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    images, labels = load_digits(return_X_y=True)
    images = np.kron(images.reshape(-1, 8, 8) / 16, np.ones((3, 3)))
    images = np.pad(images, ((0, 0), (2, 2), (2, 2))).reshape(len(images), -1).astype("float32")
    train, test, train_labels, test_labels = train_test_split(images, labels, test_size=TESTED_ON, random_state=0)
    return Images(train, train_labels, test, test_labels, DIGITS)


def _idx(path: Path, dims: int) -> Any:
    """Return the array of bytes in an IDX file, which may be compressed: ``path`` with or without ``.gz``."""
    packed = path.with_name(f"{path.name}.gz")
    if not (packed.exists() or path.exists()):
        raise SystemExit(f"{packed} is missing; download the four files of Fashion-MNIST into {path.parent}")
    data = gzip.decompress(packed.read_bytes()) if packed.exists() else path.read_bytes()
    shape = np.frombuffer(data, ">i4", dims, offset=4)
    if data[:4] != bytes([0, 0, 8, dims]) or len(data) != 4 + 4 * dims + shape.prod():
        raise SystemExit(f"{path} is not an IDX file of bytes with {dims} dimensions")
    return np.frombuffer(data, np.uint8, offset=4 + 4 * dims).reshape(shape)
