"""Comparing cost models on recorded trials: each model is trained on some of the trials and predicts the others.

The two splits are those of Zheng et al., "TenSet" (NeurIPS 2021, Datasets and Benchmarks).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np
from rich.text import Text

from ..arrays import Floats
from ..costmodel import TaskData, TrainingData, bind, compute_scores, fit_model, make_cost_model, predict_scores
from ..costmodel.features import FEATURES, lay_out, make_features
from ..costmodel.quality import ModelQuality, measure_quality
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
class HeldOutQuality:
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
) -> list[HeldOutQuality]:
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
    recorded_logs = read_logs_in(logs, _RecordedLog)
    if FEATURES[features].builds_programs:
        for recorded_log in recorded_logs:
            recorded_log.result.check_programs()
    if split == "by-task":
        folds = list(_split_by_task(recorded_logs, features))
    else:
        folds = list(_split_within_task(recorded_logs, features, seed, train_fraction))
    return [quality for model in models for fold in folds for quality in _evaluate(model, features, seed, k, fold)]


class _RecordedLog:
    """A log, with the configs and the scores of its measured trials."""

    def __init__(self, path: Path) -> None:
        log = read_log(path)
        self.path, self.result, self.workload = path, Result(log), log.header.workload
        trials = [trial for trial in log.trials if not trial.measurement.nearest]
        self.configs, self.scores = [trial.config for trial in trials], compute_scores(trials)
        successful_count = int(np.count_nonzero(self.scores))
        if successful_count < MIN_TRIALS:
            raise SearchlabError(
                f"{path} has {successful_count} successful trials, but at least {MIN_TRIALS} are needed to judge a "
                f"cost model"
            )


class _TestSet(NamedTuple):
    """The features and the scores of the trials that are held out from a log."""

    recorded_log: _RecordedLog
    features: Floats
    scores: Floats


@dataclass(frozen=True)
class _Fold:
    """The trials that a model is trained on, and those that it predicts."""

    training_data: TrainingData
    test_sets: Sequence[_TestSet]


def _split_within_task(
    recorded_logs: Sequence[_RecordedLog], features_name: str, seed: int, fraction: float
) -> Iterator[_Fold]:
    for log_index, recorded_log in enumerate(recorded_logs):
        config_count = len(recorded_log.configs)
        order = np.random.default_rng([seed, log_index]).permutation(config_count)
        train_count = min(max(round(fraction * config_count), 1), config_count - 1)
        train_indices, test_indices = np.sort(order[:train_count]), np.sort(order[train_count:])
        extract = make_features(features_name, recorded_log.result.space)
        extract.learn([recorded_log.configs[i] for i in train_indices])
        features, scores = extract(recorded_log.configs), recorded_log.scores
        training_data = TrainingData.from_tasks([TaskData(features[train_indices], scores[train_indices])])
        yield _Fold(training_data, [_TestSet(recorded_log, features[test_indices], scores[test_indices])])


def _split_by_task(recorded_logs: Sequence[_RecordedLog], features_name: str) -> Iterator[_Fold]:
    workloads = dict.fromkeys(recorded_log.workload for recorded_log in recorded_logs)
    if len(workloads) < 2:
        raise SearchlabError(
            f"the by-task split trains on other workloads, but every log is for {recorded_logs[0].workload}; "
            f"add logs for another workload, or choose the within-task split"
        )
    feature_class = FEATURES[features_name]
    logs_and_features = [(log, make_features(features_name, log.result.space)(log.configs)) for log in recorded_logs]
    for workload in workloads:
        tasks = [TaskData(features, log.scores) for log, features in logs_and_features if log.workload != workload]
        training_data = TrainingData.from_tasks(tasks, feature_class.absent)
        column_count = training_data.features.shape[1]
        test_sets = [
            _TestSet(log, lay_out(feature_class, features, column_count), log.scores)
            for log, features in logs_and_features
            if log.workload == workload
        ]
        yield _Fold(training_data, test_sets)


def _evaluate(model: Plugin, features_name: str, seed: int, k: int, fold: _Fold) -> Iterator[HeldOutQuality]:
    cost_model = make_cost_model(model, seed)
    bind(cost_model, FEATURES[features_name])
    start = time.perf_counter()
    fit_model(cost_model, *fold.training_data)
    train_seconds = time.perf_counter() - start
    for recorded_log, features, scores in fold.test_sets:
        start = time.perf_counter()
        predicted_scores = predict_scores(cost_model, features)
        predict_seconds = time.perf_counter() - start
        quality = measure_quality(
            predicted_scores, scores, min(k, len(scores)), train_seconds=train_seconds, predict_seconds=predict_seconds
        )
        yield HeldOutQuality(model, recorded_log.path, recorded_log.workload, quality)


TITLES_BY_METRIC = {
    "pairwise_accuracy": "pairs",
    "kendall_tau": "tau",
    "top_k_recall": "recall@k",
    "peak_score": "peak@k",
    "rmse": "rmse",
    "train_seconds": "train ms",
    "predict_seconds": "predict ms",
}


def format_model(model: Plugin) -> str:
    """Return the model as written on the command line: its name and the options that were passed."""
    return ",".join([model.name, *(f"{name}={value}" for name, value in model.options.items())])


def compute_mean_quality(held_out_qualities: Sequence[HeldOutQuality]) -> dict[str, dict[str, float | None]]:
    """Return the mean of each metric over the logs, by model, weighted by the number of held-out trials.

    Logs for which a metric is undefined are ignored. If no log remains, the mean is None.
    """
    qualities_by_model: dict[str, list[ModelQuality]] = {}
    for held_out_quality in held_out_qualities:
        qualities_by_model.setdefault(format_model(held_out_quality.model), []).append(held_out_quality.quality)
    return {
        name: {metric: _compute_mean(qualities, metric) for metric in TITLES_BY_METRIC}
        for name, qualities in qualities_by_model.items()
    }


def _compute_mean(qualities: Sequence[ModelQuality], metric: str) -> float | None:
    defined = [quality for quality in qualities if getattr(quality, metric) is not None]
    if not defined:
        return None
    values = [getattr(quality, metric) for quality in defined]
    return float(np.average(values, weights=[quality.trial_count for quality in defined]))


def make_quality_rows(held_out_qualities: Sequence[HeldOutQuality]) -> list[tuple[Text, ...]]:
    """Return a row for each model, with the metrics in :data:`TITLES_BY_METRIC`.

    Of several models, the best value in each column is bold.
    """
    means = compute_mean_quality(held_out_qualities)
    columns = [[Text(name) for name in means]]
    for metric in TITLES_BY_METRIC:
        metric_values = [row[metric] for row in means.values()]
        finite = [value for value in metric_values if value is not None]
        find_best = min if metric.endswith(("seconds", "rmse")) else max
        best = find_best(finite) if len(finite) > 1 else None
        columns.append([_format_quality(metric, value, is_best=value == best) for value in metric_values])
    return list(zip(*columns, strict=True))


def _format_quality(metric: str, value: float | None, *, is_best: bool) -> Text:
    if value is None:
        return Text("-")
    text = f"{1e3 * value:.1f}" if metric.endswith("seconds") else f"{value:.3f}"
    return Text(text, "bold" if is_best else "")
