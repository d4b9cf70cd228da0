"""Training a surrogate from recorded trials, and writing its directory."""

from __future__ import annotations

import gzip
import statistics
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from scipy.stats import kendalltau

from ...costmodel import Array
from ...errors import SearchlabError
from ...log.format import Log, read_bytes
from ...machine.host import library_versions
from ...measure.surrogate.manifest import NAME, Fit, Gate, Manifest, ModelSettings, digest_of
from ...measure.surrogate.model import BUILD, FAILURE, NOISE, RUN, TrialModel, file_of, member
from ...measure.surrogate.trees import Trees
from ...records import Failure, Trial
from .trials import Indices, TrainingData

LEAST_SECONDS = 1e-9
"""Seconds below this count as this much: logs of toys hold zeros, which have no logarithm."""
LEAST_NOISE = 1e-6
"""The same for the standard deviation of the log seconds of repeats."""
HELD_OUT = 0.2
"""The share of the random sample on which the held-out figures are measured."""


def train(where: Sequence[Path], out: Path, settings: ModelSettings, gates: Sequence[Gate] = ()) -> Manifest:
    """Train a surrogate on the logs ``where``, and write its directory ``out``: data, models and manifest.

    gates: those of complete tables; those of spaces of the same name are kept. Equal logs and settings give equal
    files, given the same libraries. Raises SearchlabError for logs that do not fit together, for a gate with other
    settings, and if the directory cannot be written.
    """
    data = TrainingData.read(where, settings)
    family = [gate for gate in gates if gate.space.name == data.header.space.name]
    for gate in family:
        if _but_seed(gate.settings) != _but_seed(settings):
            raise SearchlabError(
                f"the gate on {gate.table} was measured with other settings, "
                f"{msgspec.json.encode(gate.settings).decode()}; measure it with those of the surrogate"
            )
    _, files = _trained(data, settings, np.arange(len(data.trials)))
    for number, log in enumerate(data.logs):
        files[f"data/{number:02d}-{_name(log)}.jsonl.gz"] = _compressed(log)
    header = data.header
    repeats = [len(trial.measurement.seconds) for trial in data.trials if trial.measurement.failure is None]
    manifest = Manifest(
        workload=header.workload,
        space=header.space,
        fingerprint=header.fingerprint,
        space_size=header.space_size,
        target=header.target,
        measure=header.measure,
        workers=header.workers,
        settings=settings,
        trials=len(data.trials),
        columns=data.columns,
        width=data.rows.shape[1],
        failures=_failures(data.trials),
        repeats=statistics.mode(repeats),
        versions=dict(library_versions()),
        files={name: digest_of(content) for name, content in files.items()},
        held_out=_held_out(data, settings),
        gates=family,
    )
    files[NAME] = msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"
    _write(out, files)
    return manifest


def fit_of(model: TrialModel, rows: Array, trials: Sequence[Trial], trained_on: int) -> Fit:
    """How well ``model`` predicts ``trials`` from their ``rows``."""
    predicted = model.predict(rows)
    costs = np.array([trial.cost for trial in trials])
    both = np.isfinite(costs) & predicted.succeeds
    truth, guess = np.log(costs[both]), predicted.log_seconds[both]
    varies = len(truth) > 1 and float(np.ptp(truth)) > 0
    tau = float(kendalltau(truth, guess).statistic) if varies else None
    return Fit(
        trained_on=trained_on,
        tested_on=len(trials),
        r2=float(1 - np.sum((truth - guess) ** 2) / np.sum((truth - truth.mean()) ** 2)) if varies else None,
        tau=tau if tau is not None and np.isfinite(tau) else None,
        outcomes=float(np.mean(np.isfinite(costs) == predicted.succeeds)),
        spread=float(predicted.spread.mean()),
    )


def _but_seed(settings: ModelSettings) -> ModelSettings:
    return msgspec.structs.replace(settings, seed=0)


def _held_out(data: TrainingData, settings: ModelSettings) -> Fit:
    """The fit, on a part of the random sample, of a surrogate that is trained on all other trials."""
    rng = np.random.default_rng([settings.seed, 1])
    test = np.sort(rng.permutation(data.sampled)[: max(2, round(HELD_OUT * len(data.sampled)))])
    rest = np.setdiff1d(np.arange(len(data.trials)), test)
    model, _ = _trained(data, settings, rest)
    return fit_of(model, data.rows[test], [data.trials[i] for i in test], len(rest))


def _trained(data: TrainingData, settings: ModelSettings, chosen: Indices) -> tuple[TrialModel, dict[str, bytes]]:
    """The models of the ``chosen`` trials, and their files."""
    trials = [data.trials[i] for i in chosen]
    rows = data.rows[chosen]
    measured = [trial.measurement for trial in trials]
    fine = np.array([one.failure is None for one in measured])
    good = [one for one in measured if one.failure is None]
    models: dict[str, Trees] = {}

    def add(name: str, x: Array, y: Array, seed: int, **more: Any) -> None:
        models[name] = _boosted(x, y, settings, seed, **more)

    log_seconds = np.log([one.cost for one in good])
    for number in range(settings.members):
        add(member(number), rows[fine], log_seconds, number)
    for number, (name, seconds) in enumerate(
        ((BUILD, [one.build_seconds for one in good]), (RUN, [one.run_seconds for one in good])), settings.members
    ):
        add(name, rows[fine], np.log(np.maximum(seconds, LEAST_SECONDS)), number)
    repeated = np.array([len(one.seconds) > 1 for one in good])
    if repeated.any():
        spreads = [float(np.std(np.log(one.seconds), ddof=1)) for one in good if len(one.seconds) > 1]
        noise = np.log(np.maximum(spreads, LEAST_NOISE))
        add(NOISE, rows[fine][repeated], noise, settings.members + 2)
    kinds = list(_failures(trials))
    if kinds:
        classes = np.array([0 if one.failure is None else 1 + kinds.index(one.failure) for one in measured])
        add(FAILURE, rows, classes, settings.members + 3, objective="multiclass", num_class=1 + len(kinds))
    files = {file_of(name): trees.to_bytes() for name, trees in models.items()}
    return TrialModel(models, settings.members, kinds), files


def _boosted(rows: Array, labels: Array, settings: ModelSettings, seed: int, **more: Any) -> Trees:
    """Trees that predict ``labels`` (n,) from ``rows`` (n, d), each from a part of both."""
    import lightgbm

    drawn = int(np.random.default_rng([settings.seed, seed]).integers(2**31 - 1))
    parameters = {
        "objective": "regression",
        "num_leaves": settings.num_leaves,
        "learning_rate": settings.learning_rate,
        "min_data_in_leaf": 3,
        "min_data_in_bin": 1,
        "feature_fraction": 0.8,
        "bagging_fraction": 0.8,
        "bagging_freq": 1,
        "seed": drawn,
        "deterministic": True,
        "force_row_wise": True,  # else it times both ways and takes the quicker
        "num_threads": 1,
        "verbosity": -1,
        **more,
    }
    data = lightgbm.Dataset(rows, label=labels, params=parameters)
    return Trees.of(lightgbm.train(parameters, data, num_boost_round=settings.rounds))


def _failures(trials: Sequence[Trial]) -> dict[Failure, tuple[float, float]]:
    """The kinds of failure, the most frequent first, with the median build and run seconds of each."""
    failed = [trial.measurement for trial in trials if trial.measurement.failure is not None]
    kinds = Counter(one.failure for one in failed).most_common()
    return {
        kind: (
            statistics.median(one.build_seconds for one in failed if one.failure == kind),
            statistics.median(one.run_seconds for one in failed if one.failure == kind),
        )
        for kind, _ in kinds
        if kind is not None
    }


def _name(log: Log) -> str:
    """The name of the strategy of ``log`` and its seed, for a file."""
    name = "".join(letter if letter.isalnum() or letter in "+-." else "_" for letter in log.header.name)
    return f"{name}-seed{log.header.seed}"


def _compressed(log: Log) -> bytes:
    if log.path.suffix == ".gz":
        return log.path.read_bytes()
    return gzip.compress(read_bytes(log.path)[: log.size], mtime=0)


def _write(out: Path, files: dict[str, bytes]) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise SearchlabError(f"{out} exists and is not empty; name another directory, or remove it")
    try:
        for name, content in files.items():
            path = out / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    except OSError as error:
        raise SearchlabError(f"cannot write the surrogate {out}: {error.strerror}") from None
