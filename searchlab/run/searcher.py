"""Asking and telling the policy of a run: each call is timed, and each batch is checked against the contract."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from ..costmodel import scores_of
from ..costmodel.quality import ModelQuality, model_quality
from ..errors import InvalidConfig, SearchlabError
from ..policy import POLICIES
from ..records import Trial
from ..space import Config
from .busy import taking
from .plan import Run


class Searcher:
    """A new policy that has learned from the warm start of its run.

    batches: how many batches it was asked for. batch_size: how many configs the last of them has.
    train_seconds, propose_seconds: of the CPU, to learn from the last batch, and to propose the batch after that. Other
        work on the machine is not charged. elsewhere: tells the seconds that other processes have taken for the policy.
    """

    def __init__(self, run: Run, elsewhere: Callable[[], float] = lambda: 0.0) -> None:
        self.policy, self.cost_model = run.start()
        if self.cost_model is not None:
            self.cost_model.clock = self._seconds
        self.batches = 0
        self.propose_seconds = 0.0
        self._run = run
        self._asked: set[Config] = set()
        self.batch_size = 0
        self._predict_seconds = 0.0
        self._elsewhere = elsewhere
        start = self._seconds()
        with POLICIES.blamed(type(self.policy), "warm_start"):
            run.warm_start.feed(self.policy, self.cost_model)
        self.train_seconds = self._seconds() - start

    def ask(self, n: int) -> Sequence[Config]:
        """The next batch; empty if the policy has no more. Raises SearchlabError for a breach of the contract."""
        predicted = self.cost_model.predict_seconds if self.cost_model else 0.0
        trained = self.cost_model.fit_seconds if self.cost_model else 0.0
        start = self._seconds()
        with POLICIES.blamed(type(self.policy), "ask"), taking(self._run.strategy.policy.name, "ask"):
            configs = self.policy.ask(n)
            if isinstance(configs, Sequence):
                configs = list(configs)  # its __len__ and __iter__ are the plug-in's code
        taken = self._seconds() - start
        # A policy that trains its cost model as it proposes is charged as one that trains it when it is told.
        trained = self.cost_model.fit_seconds - trained if self.cost_model else 0.0
        self.train_seconds += trained
        self.propose_seconds = taken - trained
        self._predict_seconds = self.cost_model.predict_seconds - predicted if self.cost_model else 0.0
        self._check(configs, n)
        self._asked.update(configs)
        self.batch_size = len(configs)
        self.batches += 1
        return configs

    def tell(self, trials: Sequence[Trial]) -> None:
        """Learn from a batch if it is whole. If a run ends within a batch, a resumed run completes it first."""
        if len(trials) == self.batch_size:
            start = self._seconds()
            with POLICIES.blamed(type(self.policy), "tell"), taking(self._run.strategy.policy.name, "tell"):
                self.policy.tell(trials)
            self.train_seconds = self._seconds() - start

    def _seconds(self) -> float:
        return time.process_time() + self._elsewhere()

    @property
    def share(self) -> float:
        """The share of its batch's time that each trial is charged."""
        return 1 / self.batch_size

    def quality(self, batch: Sequence[Trial]) -> ModelQuality | None:
        """How well the cost model predicted a whole batch before it was told; None before it is trained.

        The fastest quarter of a batch counts as its top, since many batches have only eight trials.
        """
        cost_model = self.cost_model
        if cost_model is None or not cost_model.fitted:
            return None
        predicted = cost_model.predict([trial.config for trial in batch])
        return model_quality(
            predicted, scores_of(batch, cost_model.best), max(1, len(batch) // 4),
            train_seconds=cost_model.train_seconds, predict_seconds=self._predict_seconds,
        )  # fmt: skip

    def _check(self, configs: Sequence[Config], n: int) -> None:
        broken = f"policy {self._run.strategy.policy.name!r} broke its contract: it was asked for"
        if not isinstance(configs, Sequence) or not all(isinstance(config, Config) for config in configs):
            raise SearchlabError(f"{broken} a list of configs and gave {configs!r:.200}")
        if len(configs) > n:
            raise SearchlabError(f"{broken} {n} configs and gave {len(configs)}")
        fresh: set[Config] = set()
        for config in configs:
            if config in self._asked or config in fresh:
                raise SearchlabError(f"{broken} new configs and repeated {config.to_json()}")
            fresh.add(config)
            try:
                self._run.space.knobs(config)
            except InvalidConfig as error:
                self._run.space.check_repeats()
                raise SearchlabError(f"{broken} configs of its space and gave {config.to_json()}: {error}") from None
