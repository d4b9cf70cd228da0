"""The keys of a study file."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from ..executors.contract import parse_executor
from ..log.budget import UNLIMITED, Budget
from ..measure.settings import LocalSettings, Settings
from ..plugins import Plugin

OF_SUITE = ("workloads", "spaces", "target", "measure")
"""The keys of a study that the tables of a suite bring."""

FeaturesName = Literal["knob", "autotvm-knob", "program", "per-store", "itervar", "curve"]
"""The features of a cost model; see :data:`~searchlab.costmodel.features.FEATURES`."""


class NamedPlugin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The name of a plug-in, and the options of its constructor."""

    name: str
    options: dict[str, Any] = {}

    @property
    def plugin(self) -> Plugin:
        return Plugin(self.name, self.options)


class Named(NamedPlugin, frozen=True):
    """A space; ``label`` is its name in pictures and tables."""

    label: str = ""


class NamedCostModel(NamedPlugin, frozen=True):
    """A cost model, and its features.

    These are of the choices, ``knob`` or as AutoTVM has them ``autotvm-knob``; or of the scheduled module: ``program``,
    ``per-store`` (only for pack-sum), and AutoTVM's ``itervar`` and ``curve``.
    """

    features: FeaturesName = "knob"
    label: str = ""


class NamedPolicy(Named, frozen=True):
    """A policy, and what it has over the settings of the study.

    batch, trials, seconds, stop_after: the design point of one strategy may be another than that of the others.
    cost_model: the only one that this policy runs with; the cost models of the study are not tried with it. features:
    over those of the cost model. warm_start: in place of the study's.
    """

    batch: int | None = None
    trials: int | None = None
    seconds: float | None = None
    stop_after: int | None = None
    cost_model: str | NamedPlugin | None = None
    features: FeaturesName | None = None
    warm_start: list[str] | None = None

    def __post_init__(self) -> None:
        _check_counts(self)


class NamedSuite(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A suite of tables. noise: as for a table, whether the repeats of a measurement are drawn anew."""

    name: str
    noise: bool = False


class StudySpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The keys of a study file.

    Every policy (with every cost model, if it takes one) searches every workload in every space from every seed. A
    policy whose class or entry names a cost model has only that one.
    ``seeds`` is a list, or the number of seeds from 0 on. Each run has ``trials`` trials, asked for ``batch`` at a
    time; by default 64, or, with ``seconds`` or ``stop_after``, as many as these allow.

    seconds: of charged time (proposing, training, building, running) after which a run ends. stop_after: the number of
    trials without a gain over 1 % of the best throughput after which it ends. A run ends where the first of these, or
    ``trials``, is reached, with a whole batch (but for ``trials``); a study with more of them goes on.

    The default target is this machine, or the target of the table; a fleet has no default.

    warm_start: logs of earlier runs, directories of them, or ``"store"`` and ``"store:PATH"``, which give the runs that
    a store holds of the same space, target and machine. Each policy is told those in the space of its run. A cost
    model with features of programs is trained on the others, one with knob features on other shapes in the same space.

    contrasts: pairs of strategies, by name or label, that the study is made to compare. They are registered in the log
    of each run as it begins, and a report tests them with more power than all other pairs, which are exploratory.

    starts: ``"shared"``: from one seed, policies that have not learned anything yet draw the same configs, and the
    difference of two policies is that of what they do then. ``"own"``: each draws its own, by its name.

    suite: a suite of tables (``v1``), one split of it (``v1/dev``), or one table (``v1/TABLE``), by name or by the
    path of its directory. It takes the place of workloads, spaces, target and measure, which each table brings; trials
    and seeds are by default those of its protocol.

    executor: where the runs are made, as ``"local"`` or ``{ name = "slurm", options = { ... } }``; by default in this
    process, one after the other. It changes no run.
    """

    policies: list[str | NamedPolicy]
    workloads: list[str] = []
    spaces: list[str | Named] = []
    suite: str | NamedSuite | None = None
    cost_models: list[str | NamedCostModel] = msgspec.field(default_factory=lambda: ["xgboost"])
    seeds: int | list[int] = 1
    trials: int | None = None
    seconds: float | None = None
    stop_after: int | None = None
    batch: int = 8
    target: str | dict[str, Any] | None = None
    measure: Settings = LocalSettings()
    warm_start: list[str] = []
    contrasts: list[tuple[str, str]] = []
    starts: Literal["shared", "own"] = "shared"
    executor: str | NamedPlugin | None = None

    def __post_init__(self) -> None:
        for pair in self.contrasts:
            if pair[0] == pair[1]:
                raise ValueError(f"a contrast is of two strategies, not {list(pair)}")
        for name in ("policies", "cost_models", *(() if self.suite else ("workloads", "spaces"))):
            if not getattr(self, name):
                place = ", or the study a suite" if name in OF_SUITE else ""
                raise ValueError(f"{name} must have at least one entry, not []{place}")
        _check_counts(self)
        if not self.seed_list or min(self.seed_list) < 0 or len(set(self.seed_list)) < len(self.seed_list):
            raise ValueError(f"seeds must be a count of at least 1, or different numbers from 0 up, not {self.seeds}")

    @property
    def seed_list(self) -> list[int]:
        return list(range(self.seeds)) if isinstance(self.seeds, int) else self.seeds

    @property
    def named_suite(self) -> NamedSuite | None:
        return NamedSuite(self.suite) if isinstance(self.suite, str) else self.suite

    @property
    def named_executor(self) -> Plugin | None:
        given = self.executor
        if given is None:
            return None
        return parse_executor(given) if isinstance(given, str) else given.plugin

    @property
    def policy_entries(self) -> list[NamedPolicy]:
        return [NamedPolicy(entry) if isinstance(entry, str) else entry for entry in self.policies]

    @property
    def cost_model_entries(self) -> list[NamedCostModel]:
        return [NamedCostModel(entry) if isinstance(entry, str) else entry for entry in self.cost_models]

    def budget(self, entry: NamedPolicy) -> Budget:
        """The budget of each run of ``entry``."""
        trials, seconds, stop_after = (
            getattr(self if getattr(entry, name) is None else entry, name)
            for name in ("trials", "seconds", "stop_after")
        )
        return budget_of(trials, seconds, stop_after)

    @property
    def facts(self) -> dict[str, object]:
        """What a study is, in words, by name."""

        def names(entries: Iterable[str | Named | NamedCostModel]) -> str:
            return ", ".join(one if isinstance(one, str) else one.label or one.name for one in entries)

        budget = budget_of(self.trials, self.seconds, self.stop_after)
        trials = "any number" if budget.trials == UNLIMITED else budget.trials
        where = {"workloads": ", ".join(self.workloads), "spaces": names(self.spaces)}
        return {
            **({"suite": self.named_suite.name} if self.named_suite else where),
            "policies": names(self.policies),
            "cost models": names(self.cost_models),
            "seeds": len(self.seed_list),
            "trials": f"{trials}, asked for {self.batch} at a time",
            **({} if self.seconds is None else {"seconds": self.seconds}),
            **({} if self.stop_after is None else {"stop after": f"{self.stop_after} trials without a gain"}),
        }


def budget_of(trials: int | None, seconds: float | None, stop_after: int | None) -> Budget:
    """The budget with these parts. Without ``trials`` it has 64, or no limit of them if it has another part."""
    if trials is None:
        trials = 64 if seconds is None and stop_after is None else UNLIMITED
    return Budget(trials, seconds, stop_after)


def _check_counts(settings: StudySpec | NamedPolicy) -> None:
    """Raise ValueError for a budget that allows nothing, or a batch of less than one."""
    for name in ("trials", "batch", "stop_after"):
        value = getattr(settings, name)
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, not {value}")
    if settings.seconds is not None and not 0 < settings.seconds < math.inf:
        raise ValueError(f"seconds must be more than 0, not {settings.seconds}")
