"""Trained surrogates in files; loading a file runs no code from it."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Annotated
from zipfile import BadZipFile, is_zipfile

import msgspec
import numpy as np

from ..errors import SearchlabError
from ..plugins import Plugin
from ..space import Space
from .contract import COST_MODELS, make_cost_model
from .features import FEATURES, make_features
from .surrogate import Rows, Surrogate


class _Saved(msgspec.Struct, frozen=True, kw_only=True):
    """The header of a saved model; its training rows are beside it."""

    searchlab_model: Annotated[int, msgspec.Meta(ge=1, le=1)] = 1
    model: Plugin
    seed: Annotated[int, msgspec.Meta(ge=0)]
    features: str
    columns: list[tuple[str, int | str]]
    fingerprint: str
    space: str


def save(surrogate: Surrogate, path: str | Path) -> None:
    """Write a trained surrogate to the file ``path``.

    The file holds the model's name, options and seed, the columns of its features, and its training rows, as an
    ``.npz`` of plain arrays. :func:`load` trains again, which gives the same model, since training is a function of
    just these. So one format suits every cost model, and no file runs code.
    Raises SearchlabError if it was never trained or was made by hand, or if the file cannot be written.
    """
    model, features = surrogate.model, surrogate.features
    if surrogate.rows is None:
        raise SearchlabError("the cost model was not trained yet, so there is nothing to save; call fit first")
    if surrogate.started:
        raise SearchlabError("a cost model that started from other tasks (base-margin) cannot be saved; pool them")
    if model.plugin is None or features.name not in FEATURES:
        raise SearchlabError("a saved cost model must be made by make_cost_model, and its features by make_features")
    saved = _Saved(
        model=model.plugin.spelled(), seed=model.seed, features=features.name, columns=features.columns,
        fingerprint=features.space.fingerprint, space=_called(features.space),
    )  # fmt: skip
    header = np.frombuffer(msgspec.json.encode(saved), dtype=np.uint8)
    try:
        with open(path, "wb") as file:
            np.savez_compressed(file, header=header, **surrogate.rows._asdict())
    except OSError as error:
        raise SearchlabError(f"cannot write the cost model {path}: {error.strerror}") from None


def load(path: str | Path, space: Space) -> Surrogate:
    """The surrogate saved at ``path``, for configs of ``space``. The same libraries give the same bits.

    A model of ``knob`` features works only in the space it was trained in, a model of features of programs in any.
    Raises SearchlabError if the file is unreadable, damaged, of another space, or names an unknown model, or (except
    within :func:`~searchlab.plugins.trusting`) one that is not registered.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            saved = msgspec.json.decode(file["header"].tobytes(), type=_Saved)
            rows = Rows(file["features"], file["scores"], file["groups"])
    except OSError as error:
        raise SearchlabError(f"cannot read the cost model {path}: {error.strerror or error}") from None
    except (ValueError, KeyError, EOFError, TypeError, AttributeError, RuntimeError, BadZipFile, zlib.error) as error:
        why = error if is_zipfile(path) else "it is not an .npz archive"
        raise SearchlabError(f"{path} is no cost model that searchlab saved: {why}") from None
    columns = len(saved.columns) if saved.features == "knob" else rows.features.shape[-1]
    shapes = {"features": (rows.scores.size, columns), "scores": (rows.scores.size,), "groups": (rows.scores.size,)}
    for name, part in rows._asdict().items():
        if part.shape != shapes[name] or part.dtype != (np.int64 if name == "groups" else np.float64) or not part.size:
            raise SearchlabError(f"{path} is damaged: its {name} are of shape {part.shape} and type {part.dtype}")
    if saved.features == "knob" and saved.fingerprint != space.fingerprint:
        raise SearchlabError(
            f"{path} was trained on the knobs of {saved.space}, not of {_called(space)}; "
            f"only a model of features of programs works in another space"
        )
    model = make_cost_model(COST_MODELS.of_file(saved.model, Path(path)), saved.seed)
    surrogate = Surrogate(model, make_features(saved.features, space))
    surrogate.features.settle(saved.columns)
    surrogate.train(rows)
    return surrogate


def _called(space: Space) -> str:
    return f"{type(space).__name__} of {space.workload} for {space.target}"
