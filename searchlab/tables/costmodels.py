"""Comparing cost models on recorded trials: each model is trained on some of the trials and predicts the others.

The two splits are those of Zheng et al., "TenSet" (NeurIPS 2021, Datasets and Benchmarks).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from rich.text import Text

from ..arrays import Floats
from ..costmodel import TrainingData, bind, fit_model, make_cost_model, predictions, scores_of
from ..costmodel.features import FEATURES, lay_out, make_features
from ..costmodel.quality import ModelQuality, model_quality
from ..errors import SearchlabError
from ..log.read import read_log, read_logs_in
from ..log.result import Result
from ..options import Between, Count, Seed, check_option, checks_arguments
from ..plugins import Plugin
from ..run.spec import FeaturesName

MIN_TRIALS = 8
"""The minimum number of successful trials in a log."""

Split = Literal["within-task", "by-task"]


@dataclass(frozen=True)
class HeldOut:
    """The quality of a model's predictions for the trials of a log that it was not trained on."""

    model: Plugin
    log: Path
    workload: str
    quality: ModelQuality


@checks_arguments
def evaluate(
    logs: Sequence[Path],
    models: Sequence[Plugin],
    *,
    features: str = "knob",
    split: str = "within-task",
    seed: Seed = 0,
    train_fraction: Annotated[float, Between(0.01, 0.99)] = 0.7,
    k: Count = 5,
) -> list[HeldOut]:
    """Evaluate each model on trials that are held out from each log.

    Args:
        logs: Logs or directories of logs. Scores are relative to the best trial in each log.
        models: The cost models with their options.
        features: One of ``FEATURES``.
        split: ``within-task`` trains on a random part of a log's trials and tests on the rest. ``by-task`` holds out
            each workload in turn, with all of its logs, and trains on the logs of the other workloads.
        seed: The seed for the random part and for the models.
        train_fraction: The size of the random part, as a fraction between 0 and 1.
        k: The k in top-k recall and in the peak score.

    Raises:
        SearchlabError: If a log is unreadable or has fewer than 8 successful trials, or if the models, features or
            split are unknown or incompatible.
    """
    check_option("features", features, FeaturesName)
    check_option("split", split, Split)
    for model in models:  # detect wrong names and options before anything slow starts
        bind(make_cost_model(model, seed), FEATURES[features])
    if split == "by-task" and not FEATURES[features].builds_programs:
        raise SearchlabError(
            f"the by-task split trains on other workloads, but {features} features are not comparable between spaces; "
            f"choose program features or the within-task split"
        )
    recorded_trials = read_logs_in(logs, _RecordedTrials)
    if FEATURES[features].builds_programs:
        for trials in recorded_trials:
            trials.result.check_programs()
    if split == "by-task":
        parts = list(_by_task(recorded_trials, features))
    else:
        parts = list(_within_task(recorded_trials, features, seed, train_fraction))
    return [result for model in models for part in parts for result in _evaluate(model, features, seed, k, part)]


class _RecordedTrials:
    """The measured trials of one log."""

    def __init__(self, path: Path) -> None:
        log = read_log(path)
        self.path, self.result, self.workload = path, Result(log), log.header.workload
        trials = [trial for trial in log.trials if not trial.measurement.nearest]
        self.configs, self.scores = [trial.config for trial in trials], scores_of(trials)
        if (successful := int(np.count_nonzero(self.scores))) < MIN_TRIALS:
            raise SearchlabError(
                f"{path} has {successful} successful trials, but at least {MIN_TRIALS} are needed to judge a cost model"
            )


@dataclass(frozen=True)
class _Part:
    """The trials that a model is trained on, and those that it predicts.

    Attributes:
        tests: The held-out trials, their features and their scores.
    """

    train: TrainingData
    tests: Sequence[tuple[_RecordedTrials, Floats, Floats]]


def _within_task(
    recorded_trials: Sequence[_RecordedTrials], features: str, seed: int, fraction: float
) -> Iterator[_Part]:
    for number, trials in enumerate(recorded_trials):
        n = len(trials.configs)
        order = np.random.default_rng([seed, number]).permutation(n)
        train_count = min(max(round(fraction * n), 1), n - 1)
        train, test = np.sort(order[:train_count]), np.sort(order[train_count:])
        extract = make_features(features, trials.result.space)
        extract.learn([trials.configs[i] for i in train])
        rows = extract(trials.configs)
        held_out = (trials, rows[test], trials.scores[test])
        yield _Part(TrainingData.from_tasks([(rows[train], trials.scores[train])]), [held_out])


def _by_task(recorded_trials: Sequence[_RecordedTrials], features: str) -> Iterator[_Part]:
    workloads = dict.fromkeys(trials.workload for trials in recorded_trials)
    if len(workloads) < 2:
        raise SearchlabError(
            f"the by-task split trains on other workloads, but every log is for {recorded_trials[0].workload}; "
            f"add logs for another workload, or choose the within-task split"
        )
    kind = FEATURES[features]
    parts = [(trials, make_features(features, trials.result.space)(trials.configs)) for trials in recorded_trials]
    for workload in workloads:
        tasks = [(rows, trials.scores) for trials, rows in parts if trials.workload != workload]
        train = TrainingData.from_tasks(tasks, kind.absent)
        width = train.features.shape[1]
        held_out = [(trials, rows) for trials, rows in parts if trials.workload == workload]
        yield _Part(train, [(trials, lay_out(kind, rows, width), trials.scores) for trials, rows in held_out])


def _evaluate(model: Plugin, features: str, seed: int, k: int, part: _Part) -> Iterator[HeldOut]:
    cost_model = make_cost_model(model, seed)
    bind(cost_model, FEATURES[features])
    start = time.perf_counter()
    fit_model(cost_model, *part.train)
    train_seconds = time.perf_counter() - start
    for trials, rows, scores in part.tests:
        start = time.perf_counter()
        predicted_scores = predictions(cost_model, rows)
        predict_seconds = time.perf_counter() - start
        quality = model_quality(
            predicted_scores, scores, min(k, len(scores)), train_seconds=train_seconds, predict_seconds=predict_seconds
        )
        yield HeldOut(model, trials.path, trials.workload, quality)


COLUMNS = {
    "pairwise_accuracy": "pairs",
    "kendall_tau": "tau",
    "top_k_recall": "recall@k",
    "peak_score": "peak@k",
    "rmse": "rmse",
    "train_seconds": "train ms",
    "predict_seconds": "predict ms",
}


def model_name(model: Plugin) -> str:
    """Return the model as written on the command line: its name and the options that were passed."""
    return ",".join([model.name, *(f"{name}={value}" for name, value in model.options.items())])


def mean_quality(held_out: Sequence[HeldOut]) -> dict[str, dict[str, float | None]]:
    """Return the mean of each metric over the logs, by model, weighted by the number of held-out trials.

    Logs for which a metric is undefined are ignored. If no log remains, the mean is None.
    """
    by_name: dict[str, list[ModelQuality]] = {}
    for result in held_out:
        by_name.setdefault(model_name(result.model), []).append(result.quality)
    return {name: {column: _mean(qualities, column) for column in COLUMNS} for name, qualities in by_name.items()}


def _mean(qualities: Sequence[ModelQuality], column: str) -> float | None:
    values = [(getattr(q, column), q.trials) for q in qualities if getattr(q, column) is not None]
    return sum(value * trials for value, trials in values) / sum(trials for _, trials in values) if values else None


def quality_rows(held_out: Sequence[HeldOut]) -> list[tuple[Text, ...]]:
    """Return a row for each model, with :data:`COLUMNS`. Of several models, the best value in each column is bold."""
    means = mean_quality(held_out)
    columns = [[Text(name) for name in means]]
    for column in COLUMNS:
        values = [row[column] for row in means.values()]
        finite = [value for value in values if value is not None]
        choose = min if column.endswith(("seconds", "rmse")) else max
        best = choose(finite) if len(finite) > 1 else None
        columns.append([_quality_text(column, value, is_best=value == best) for value in values])
    return list(zip(*columns, strict=True))


def _quality_text(column: str, value: float | None, *, is_best: bool) -> Text:
    if value is None:
        return Text("-")
    text = f"{1e3 * value:.1f}" if column.endswith("seconds") else f"{value:.3f}"
    return Text(text, "bold" if is_best else "")
