"""Trained cost models in files: what a model was trained on, and the model in the format of its own library.

A file is a ZIP archive of ``model.json``, of the training data as NumPy arrays, and of the files that
:meth:`~searchlab.costmodel.CostModel.dump` returns. A model that returns none is trained again when it is loaded, which
results in the same predictions. Nothing in a file is executed, and plug-ins that a file names must be registered.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from ..errors import SearchlabError, describe
from ..files import check_unpacked, read_bytes, write_file
from ..options import checks_arguments
from ..plugins import Plugin, names_from
from ..space import Space
from .bound import BoundCostModel, TrainingData
from .contract import COST_MODELS, fit_model, make_cost_model
from .features import Columns, make_features

HEADER_NAME = "model.json"
FILE_DESCRIPTION = "cost model"


class SavedModel(msgspec.Struct, frozen=True, kw_only=True):
    """The header of a file.

    Attributes:
        searchlab_model: The version of the format.
        cost_model: The name of the cost model and its options.
        seed: The seed of the cost model.
        features: The name of the features.
        columns: The columns of the features; see :class:`~searchlab.costmodel.features.Features`.
        workload: The workload of the space on which the model was trained.
        fingerprint: The fingerprint of this space.
        best: The cost with score 1, in seconds, or None if no trial succeeded.
        digest: The SHA-256 digest of all other files in the archive.
    """

    searchlab_model: Literal["1.0"] = "1.0"
    cost_model: Plugin
    seed: int
    features: str
    columns: Columns
    workload: str
    fingerprint: str
    best: float | None
    digest: str


@checks_arguments
def save_model(bound: BoundCostModel, path: str | Path) -> None:
    """Write a trained cost model to a file.

    Args:
        bound: The cost model with its features, after :meth:`BoundCostModel.fit` or :meth:`BoundCostModel.pretrain`.
        path: The file to write. An existing file is replaced.

    Raises:
        SearchlabError: If the model has not been trained, was not made by
            :func:`~searchlab.costmodel.make_cost_model`, or cannot be written.

    Example:
        >>> import searchlab
        >>> from searchlab.costmodel import load_model, make_cost_model, save_model
        >>> from searchlab.costmodel.features import make_features
        >>> from searchlab.plugins import Plugin
        >>> result = searchlab.load_log("gemm.jsonl")
        >>> model = make_cost_model(Plugin("xgboost"), seed=0)
        >>> bound = searchlab.BoundCostModel(model, make_features("knob", result.space))
        >>> bound.fit(result.trials)
        >>> save_model(bound, "gemm.model")
        >>> load_model("gemm.model", result.space).predict([trial.config for trial in result.trials]).shape
        (3,)
    """
    model, space = bound.model, bound.features.space
    if bound.rows is None:
        raise SearchlabError("the cost model has not been trained, so there is nothing to save; call fit first")
    if model.plugin is None:
        raise SearchlabError("only cost models from make_cost_model can be saved, which know their name and options")
    files: dict[str, bytes] = {}
    rows_by_folder = {"start": bound.start_rows, "rows": None if bound.rows is bound.start_rows else bound.rows}
    for folder, rows in rows_by_folder.items():
        if rows is not None:
            files |= {f"{folder}/{name}.npy": _encode_array(array) for name, array in rows._asdict().items()}
    with COST_MODELS.convert_errors(type(model), "dump"):
        files |= {f"trained/{name}": data for name, data in model.dump().items()}
    header = SavedModel(
        cost_model=model.plugin,
        seed=model.seed,
        features=bound.features.name,
        columns=bound.features.columns,
        workload=str(space.workload),
        fingerprint=space.fingerprint,
        best=float(bound.best) if np.isfinite(bound.best) else None,
        digest=_hash_files(files),
    )
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as zip_file:
        for name, data in {HEADER_NAME: msgspec.json.encode(header), **files}.items():
            zip_info = zipfile.ZipInfo(name)  # without the time, so that the same model results in the same file
            zip_info.compress_type = zipfile.ZIP_DEFLATED
            zip_file.writestr(zip_info, data)
    write_file(path, archive.getvalue())


@checks_arguments
def load_model(path: str | Path, space: Space) -> BoundCostModel:
    """Read a trained cost model from a file.

    Its predictions are those of the saved model. ``fit`` trains it again, on the new trials only, unless it had started
    from other tasks: see :meth:`~searchlab.costmodel.CostModel.start_from`.

    Args:
        path: The file, written by :func:`save_model`.
        space: The space whose configs it is to predict. A model with features of the program accepts any space; a model
            with features of the knobs requires the one on which it was trained.

    Raises:
        SearchlabError: If the file is missing or damaged, names a plug-in that is not installed, or belongs to a
            different space.
    """
    with _convert_errors(path):
        files = _read_archive(path)
        header = msgspec.json.decode(files.pop(HEADER_NAME, b""), type=SavedModel)
        if header.digest != _hash_files(files):
            raise ValueError("its digest does not match its content")
        start_rows, own_rows = _read_rows(files, "start"), _read_rows(files, "rows")
    with names_from(path):
        model = make_cost_model(header.cost_model, header.seed)
    bound = BoundCostModel(model, make_features(header.features, space))
    if header.fingerprint != space.fingerprint and not bound.features.builds_programs:
        raise SearchlabError(
            f"the model in {path} predicts from knobs of a space of {header.workload}, which is not this space of "
            f"{space.workload}; train a model here, or one with the features 'program'"
        )
    bound.features.use_columns(header.columns)
    trained_files = {name.partition("/")[2]: data for name, data in files.items() if name.startswith("trained/")}
    if start_rows is not None:
        with COST_MODELS.convert_errors(type(model), "start_from"):
            model.start_from(*start_rows)
        bound.start_rows = bound.rows = start_rows
    if own_rows is not None:
        bound.rows = own_rows
        if trained_files:
            with _convert_errors(path):
                model.restore(trained_files)
        else:
            fit_model(model, *own_rows)
    bound.best = np.inf if header.best is None else header.best
    return bound


@contextmanager
def _convert_errors(path: str | Path) -> Iterator[None]:
    """Convert any exception that a damaged file causes, in zipfile, NumPy or a model's library, to a SearchlabError."""
    try:
        yield
    except SearchlabError:
        raise
    except Exception as error:
        raise SearchlabError(
            f"{path} is not a saved cost model, or is damaged: {describe(error)}; save the model again"
        ) from None


def _read_archive(path: str | Path) -> dict[str, bytes]:
    archive_bytes = read_bytes(path, kind=FILE_DESCRIPTION)
    with zipfile.ZipFile(io.BytesIO(archive_bytes)) as archive:
        zip_infos = archive.infolist()
        check_unpacked(path, len(archive_bytes), sum(zip_info.file_size for zip_info in zip_infos))
        return {zip_info.filename: archive.read(zip_info) for zip_info in zip_infos}


def _read_rows(files: Mapping[str, bytes], folder: str) -> TrainingData | None:
    file_names = [f"{folder}/{name}.npy" for name in TrainingData._fields]
    if not any(name in files for name in file_names):
        return None
    features, scores, groups = (np.load(io.BytesIO(files[name]), allow_pickle=False) for name in file_names)
    if features.ndim != 2 or not scores.shape == groups.shape == features.shape[:1]:
        raise ValueError("its arrays differ in length")
    return TrainingData(features, scores, groups)


def _encode_array(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def _hash_files(files: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name in sorted(files):
        digest.update(f"{name} {len(files[name])}\n".encode() + files[name])
    return digest.hexdigest()
