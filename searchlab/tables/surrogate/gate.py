"""The gate: whether surrogates can be trusted, measured on complete tables, where the truth is known.

A surrogate is trained on a part of a table: trajectories of some policies on it, and a random sample. Then it predicts
the rest of the table, and policies search it and the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from ...analysis.stats.curves import area_under_curve, best_so_far, gflops
from ...errors import SearchlabError
from ...log.format import Log, read_log
from ...machine.scratch import ScratchFolder
from ...measure.surrogate.manifest import Gate, Manifest, ModelSettings, PolicyFit, digest_of
from ...measure.surrogate.measurer import SurrogateMeasurer
from ...measure.surrogate.model import TrialModel
from ...options import whole
from ...run.plan import OnRun
from ...run.study import Study
from ...space import Config
from ..info import TableInfo
from .train import fit_of, train
from .trials import RANDOM, TrainingData

MOST_TRAINED = 2000
"""A surrogate is trained on at most so many configs, and on less than half of the table."""

TRAINED_BY = ("evolutionary", "annealing", "autotvm-ga", "xgb")
"""The policies whose trajectories a surrogate is trained on."""
TRAJECTORY = 128
"""Trials of a trajectory; fewer on a small table, where trajectories are at most half of the training data."""
TRAINING_SEED = 1_000_000
"""The seed of the trajectories: a seed of no run that is compared."""

POLICIES: tuple[Mapping[str, Any], ...] = (
    {"name": "random"},
    {"name": "qmc"},
    {"name": "bandit"},
    {"name": "xgb"},
    {"name": "evolutionary-model"},
    {"name": "annealing", "batch": 4},
    {"name": "evolutionary", "batch": 16},
    {"name": "autotvm-ga", "batch": 50},
    {"name": "cmaes", "batch": 1},
    {"name": "droplet", "batch": 16, "options": {"start": "random"}},
)
"""The policies that are compared on the table and on the surrogate, as in a study file."""


def measure_gate(
    table: Path,
    settings: ModelSettings,
    *,
    seeds: int = 30,
    trials: int = 100,
    policies: Sequence[Mapping[str, Any]] = POLICIES,
    jobs: int = 1,
    on_run: OnRun | None = None,
) -> Gate:
    """The gate of surrogates with ``settings`` on one complete table.

    seeds, trials: of the runs of each policy. Raises SearchlabError if ``table`` does not hold all of its space.
    """
    whole("seeds", seeds, 2)
    whole("trials", trials, 2)
    log = read_log(table)
    if not TableInfo(log).exhaustive:
        raise SearchlabError(
            f"{table} holds {len(log.records)} of {log.header.space_size or 'an unknown number of'} configs; the gate "
            f"is measured on complete tables, where the truth is known"
        )
    if not np.isfinite(log.costs).any():
        raise SearchlabError(f"no config of {table} succeeded; choose another table")
    with ScratchFolder() as scratch:
        return _Gate(log, settings, seeds, trials, policies, jobs, on_run, Path(scratch)).measured()


@dataclass(frozen=True)
class _Gate:
    table: Log
    settings: ModelSettings
    seeds: int
    trials: int
    policies: Sequence[Mapping[str, Any]]
    jobs: int
    on_run: OnRun | None
    scratch: Path

    def measured(self) -> Gate:
        training = self._training_logs()
        manifest, where = self._surrogate("all", training)
        whole_table = TrainingData.read([self.table.path], self.settings)
        rest = self._rest(whole_table, training)
        model = TrialModel.load(where, manifest)
        fit = fit_of(model, whole_table.rows[rest], [whole_table.trials[i] for i in rest], manifest.trials)

        best = float(np.min(self.table.costs))
        on_table = self._areas("on-table", {"kind": "table", "path": str(self.table.path)}, self.policies, best)
        on_surrogate = self._surrogate_areas("all", where, self.policies)
        left_out: dict[str, float] = {}
        for entry in self.policies:
            name = entry["name"]
            if name in TRAINED_BY:
                others = {other: log for other, log in training.items() if other != name}
                _, without = self._surrogate(name, others)
                left_out[name] = float(np.mean(self._surrogate_areas(name, without, [entry])[name]))
        fits = [
            PolicyFit(
                policy=name,
                table=float(np.mean(areas)),
                surrogate=float(np.mean(on_surrogate[name])),
                left_out=left_out.get(name),
                error=float(np.sqrt((np.var(areas, ddof=1) + np.var(on_surrogate[name], ddof=1)) / self.seeds)),
            )
            for name, areas in on_table.items()
        ]
        with_all = [one.surrogate for one in fits]
        without_own = [one.surrogate if one.left_out is None else one.left_out for one in fits]
        truth = [one.table for one in fits]
        return Gate(
            table=self.table.path.name,
            digest=digest_of(self.table.path.read_bytes()),
            workload=self.table.header.workload,
            space=self.table.header.space,
            configs=len(whole_table.trials),
            settings=self.settings,
            fit=fit,
            seeds=self.seeds,
            trials=self.trials,
            policies=fits,
            spearman=_spearman(truth, with_all),
            area_error=float(np.max(np.abs(np.subtract(truth, with_all)))),
            spearman_left_out=_spearman(truth, without_own),
            area_error_left_out=float(np.max(np.abs(np.subtract(truth, without_own)))),
        )

    def _training_logs(self) -> dict[str, Path]:
        """The logs that the surrogate is trained on, by policy: trajectories, and a random sample."""
        configs = min(MOST_TRAINED, (len(self.table.records) - 1) // 2)
        length = min(TRAJECTORY, configs // (2 * len(TRAINED_BY)))
        logs = self._searched([{"name": name, "trials": length, "batch": 8} for name in TRAINED_BY])
        count = 0
        while missing := configs - len(_met(logs)):
            count += missing  # some configs of the sample are on the trajectories too; the run goes on
            logs |= self._searched([{"name": RANDOM, "trials": count, "batch": 8}])
        return logs

    def _searched(self, policies: Sequence[Mapping[str, Any]]) -> dict[str, Path]:
        """The log of one run of each policy on the table."""
        study = self._study({"kind": "table", "path": str(self.table.path)}, policies, [TRAINING_SEED])
        results = study.run(self.scratch / "training", self.on_run, progress=False)
        return {result.log.header.policy.name: result.log.path for result in results}

    def _surrogate(self, name: str, training: Mapping[str, Path]) -> tuple[Manifest, Path]:
        out = self.scratch / "surrogates" / name
        return train(list(training.values()), out, self.settings), out

    def _rest(self, whole_table: TrainingData, training: Mapping[str, Path]) -> list[int]:
        """The indices of the configs that the surrogate was not trained on."""
        seen = _met(training)
        return [i for i, trial in enumerate(whole_table.trials) if trial.config not in seen]

    def _surrogate_areas(self, name: str, where: Path, policies: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
        """The areas of ``policies`` on the surrogate in ``where``, relative to its own optimum."""
        data = TrainingData.read([self.table.path], self.settings)
        with SurrogateMeasurer([where], accept_failed=True) as measurer:
            costs = [one.cost for one in measurer.measure(data.space, [trial.config for trial in data.trials])]
        measure = {"kind": "surrogate", "path": str(where), "accept": "failed gate"}
        return self._areas(f"on-{name}", measure, policies, min(costs))

    def _areas(
        self, folder: str, measure: Mapping[str, Any], policies: Sequence[Mapping[str, Any]], best: float
    ) -> dict[str, list[float]]:
        """The area under the curve of each run, by policy, relative to an optimum of ``best`` seconds."""
        study = self._study(measure, policies, list(range(self.seeds)))
        results = study.run(self.scratch / folder, self.on_run, self.jobs, progress=False)
        areas: dict[str, list[float]] = {}
        for log in (result.log for result in results):
            curve = gflops(best_so_far(log.costs), log.flops)
            area = float(area_under_curve(curve, log.flops / best / 1e9, self.trials))
            areas.setdefault(log.header.policy.name, []).append(area)
        return areas

    def _study(self, measure: Mapping[str, Any], policies: Sequence[Mapping[str, Any]], seeds: list[int]) -> Study:
        header = self.table.header
        return Study.from_dict({
            "workloads": [header.workload],
            "spaces": [{"name": header.space.name, "options": header.space.options}],
            "policies": [dict(policy) for policy in policies],
            "seeds": seeds,
            "trials": self.trials,
            "measure": dict(measure),
        })  # fmt: skip


def _met(logs: Mapping[str, Path]) -> set[Config]:
    """The configs that some logs hold."""
    return {trial.config for path in logs.values() for trial in read_log(path).trials}


def _spearman(one: Sequence[float], other: Sequence[float]) -> float:
    """Spearman's correlation; 0 where it is not defined."""
    if len(one) < 2 or np.ptp(one) == 0 or np.ptp(other) == 0:
        return 0.0
    return float(spearmanr(one, other).statistic)
