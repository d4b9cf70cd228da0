"""Boosted trees as plain arrays in a file. Reading a file runs no code of it, and no parser that it could break.

LightGBM trains them (Ke et al., NeurIPS 2017), and its own text format crashes the process where a file is damaged.
"""

from __future__ import annotations

import io
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self
from zipfile import BadZipFile

import numpy as np

from ...costmodel import Array
from ...errors import SearchlabError

if TYPE_CHECKING:
    import lightgbm

Whole = np.ndarray[Any, np.dtype[np.int32]]

ROWS = 512
"""Rows predicted at a time, so that the nodes of all trees fit the memory of any machine."""


@dataclass(frozen=True)
class Trees:
    """The nodes of all trees, one tree after the other.

    feature (n,): the column that a node asks for, or -1 for a leaf. threshold (n,): a row goes to ``left`` if its value
    is at most this, else to ``right``; NaN goes to ``left`` if ``nan_left``. value (n,): what a leaf adds. roots (t,):
    the first node of each tree. classes: the trees of so many outputs take turns.
    """

    feature: Whole
    threshold: Array
    left: Whole
    right: Whole
    nan_left: Whole
    value: Array
    roots: Whole
    classes: int = 1

    @classmethod
    def of(cls, booster: lightgbm.Booster) -> Self:
        """The trees of ``booster``, whose splits are all of numbers."""
        dumped = booster.dump_model()
        feature: list[int] = []
        threshold: list[float] = []
        children: list[tuple[int, int]] = []
        nan_left: list[int] = []
        value: list[float] = []

        def add(node: dict[str, Any]) -> int:
            index = len(feature)
            leaf = "leaf_value" in node
            feature.append(-1 if leaf else node["split_feature"])
            threshold.append(0.0 if leaf else node["threshold"])
            value.append(node["leaf_value"] if leaf else 0.0)
            # A split that saw no NaN takes one for 0, as LightGBM does.
            nan = not leaf and (node["default_left"] if node["missing_type"] == "NaN" else node["threshold"] >= 0)
            nan_left.append(int(nan))
            children.append((index, index))
            if not leaf:
                children[index] = add(node["left_child"]), add(node["right_child"])
            return index

        roots = [add(tree["tree_structure"]) for tree in dumped["tree_info"]]
        left, right = zip(*children, strict=True)
        return cls(
            np.array(feature, np.int32),
            np.array(threshold, np.float64),
            np.array(left, np.int32),
            np.array(right, np.int32),
            np.array(nan_left, np.int32),
            np.array(value, np.float64),
            np.array(roots, np.int32),
            dumped["num_tree_per_iteration"],
        )

    def predict(self, rows: Array) -> Array:
        """The sum over the trees of each class: shape (n,) for one class, else (n, classes). rows: (n, d), n >= 1."""
        summed = np.concatenate([self._predict(rows[i : i + ROWS]) for i in range(0, len(rows), ROWS)])
        return summed[:, 0] if self.classes == 1 else summed

    def _predict(self, rows: Array) -> Array:
        node = np.broadcast_to(self.roots, (len(rows), len(self.roots))).copy()
        open_ = np.nonzero(self.feature[node].ravel() >= 0)[0]  # the places whose node is no leaf yet
        flat, trees = node.ravel(), len(self.roots)
        while len(open_):
            at = flat[open_]
            x = rows[open_ // trees, self.feature[at]]
            goes_left = np.where(np.isnan(x), self.nan_left[at] == 1, x <= self.threshold[at])
            flat[open_] = np.where(goes_left, self.left[at], self.right[at])
            open_ = open_[self.feature[flat[open_]] >= 0]
        leaves = self.value[flat.reshape(len(rows), trees)]
        return np.asarray(leaves.reshape(len(rows), -1, self.classes).sum(axis=1))

    def to_bytes(self) -> bytes:
        """The content of its file, an ``.npz`` of plain arrays."""
        file = io.BytesIO()
        np.savez_compressed(file, **vars(self))
        return file.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes, columns: int, classes: int) -> Self:
        """The trees in a file. Raises SearchlabError unless they are whole, for so many ``columns`` and ``classes``."""
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as file:
                arrays = {name: file[name] for name in cls.__dataclass_fields__}
        except (OSError, ValueError, KeyError, EOFError, TypeError, BadZipFile, zlib.error) as error:
            raise SearchlabError(f"it holds no trees: {error}") from None
        for name, array in arrays.items():
            kind = np.float64 if name in ("threshold", "value") else np.int64 if name == "classes" else np.int32
            if array.dtype != kind or array.ndim != (name != "classes"):
                raise SearchlabError(f"its {name} are of type {array.dtype} and shape {array.shape}")
        trees = cls(**{**arrays, "classes": int(arrays["classes"])})
        nodes = np.arange(len(trees.feature))
        inner = trees.feature >= 0
        sound = (
            trees.classes == classes
            and len(trees.roots) > 0
            and len(trees.roots) % classes == 0
            and all(len(array) == len(nodes) for name, array in arrays.items() if name not in ("roots", "classes"))
            and bool(((trees.roots >= 0) & (trees.roots < len(nodes))).all())
            and bool((trees.feature < columns).all())
            # A child comes after its node, so every path ends.
            and all(bool(((way > nodes) & (way < len(nodes)))[inner].all()) for way in (trees.left, trees.right))
            and bool(np.isfinite(trees.value).all())
        )
        if not sound:
            raise SearchlabError("its trees are damaged")
        return trees
