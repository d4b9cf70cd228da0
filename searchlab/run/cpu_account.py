"""The CPU time of policies and cost models, which runs charge to their batches."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..costmodel import BoundCostModel


class CpuAccount:
    """The CPU time that a policy and its cost model use, divided among the batches of a run.

    Other work on the machine is not charged.

    Args:
        cost_model: The policy's cost model, or None if it uses none.
        other_cpu_seconds: A function that returns the CPU time that other processes have spent on the policy's behalf,
            in seconds.

    Attributes:
        propose_seconds: The CPU time used to propose the last batch.
        train_seconds: The CPU time used to learn from the batch before it.
        feature_seconds: The part of both times that the cost model used for features.
        predict_seconds: The wall time that the cost model used for predictions while the last batch was proposed.
    """

    def __init__(self, cost_model: BoundCostModel | None, other_cpu_seconds: Callable[[], float]) -> None:
        self.propose_seconds = 0.0
        self.train_seconds = 0.0
        self.feature_seconds = 0.0
        self.predict_seconds = 0.0
        self._cost_model = cost_model
        self._other_cpu_seconds = other_cpu_seconds
        self._accounted_feature_seconds = 0.0  # of the cost model's total, what earlier batches or nobody is charged
        if cost_model is not None:
            cost_model.clock = self._read_clock

    @contextmanager
    def charge_training(self) -> Iterator[None]:
        """Charge the CPU time within the context for learning from a batch."""
        start = self._read_clock()
        yield
        self.train_seconds = self._read_clock() - start

    @contextmanager
    def charge_proposing(self) -> Iterator[None]:
        """Charge the CPU time within the context for proposing a batch.

        A policy that trains its cost model while proposing is charged like one that does so in `tell`.
        """
        fit_start, predict_start, _ = self._read_cost_model()
        start = self._read_clock()
        yield
        seconds = self._read_clock() - start
        fit_end, predict_end, features_end = self._read_cost_model()
        self.train_seconds += fit_end - fit_start
        self.propose_seconds = seconds - (fit_end - fit_start)
        self.predict_seconds = predict_end - predict_start
        self.feature_seconds = features_end - self._accounted_feature_seconds
        self._accounted_feature_seconds = features_end

    @contextmanager
    def charge_nothing(self) -> Iterator[None]:
        """Charge nobody for the features that the cost model extracts within the context."""
        *_, features_start = self._read_cost_model()
        yield
        *_, features_end = self._read_cost_model()
        self._accounted_feature_seconds += features_end - features_start

    def _read_clock(self) -> float:
        return time.process_time() + self._other_cpu_seconds()

    def _read_cost_model(self) -> tuple[float, float, float]:
        """Return the seconds that the cost model has used so far for training, predictions and features."""
        model = self._cost_model
        return (model.fit_seconds, model.predict_seconds, model.feature_seconds) if model else (0.0, 0.0, 0.0)
