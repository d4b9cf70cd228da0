"""A plug-in to be checked, with all that it needs to be started, here or in another process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from ..costmodel import COST_MODELS, BoundCostModel, CostModel, make_cost_model
from ..costmodel.features import make_features
from ..errors import InvalidConfig, SearchlabError, UnsupportedWorkload
from ..plugins import Plugin, PluginSpec
from ..policy import Policy, Traits
from ..records import Trial
from ..space import SPACES, Config, Space
from ..target import Target
from ..workload import Workload
from .check import Breach, NotApplicable, Refused
from .probes import global_streams
from .toys import Cost, flaky
from .toys import run as run_policy

"""A registered name, ``"module:Class"``, ``{"name": ..., "options": {...}}``, or a class."""


class _Subject:
    def __getstate__(self) -> dict[str, Any]:
        # Another process starts the plug-in anew, and gets no cached run of this process.
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]


@dataclass(frozen=True)
class SpaceSubject(_Subject):
    """A space, for one workload and target."""

    plugin: Plugin
    cls: type[Any]
    workload: Workload
    target: Target
    seed: int = 0
    time_limit: float = 120.0

    @classmethod
    def of(cls, spec: PluginSpec, workload: Workload, target: Target, seed: int = 0) -> SpaceSubject:
        plugin, space_class = SPACES.named(spec)
        SPACES.check_options(plugin.name, space_class, plugin.options)
        return cls(plugin, space_class, workload, target, seed)

    def start(self) -> Space:
        """The space afresh. Raises Refused if it does not take the workload, target or options."""
        try:
            space = self.cls(self.workload, self.target, **self.plugin.options)
        except SearchlabError as error:
            raise Refused(
                f"space {self.plugin.name!r} refuses {self.workload} on {self.target.kind}: {error}"
            ) from error
        started: Space = _derived(space, Space, self.plugin)
        return started

    @cached_property
    def space(self) -> Space:
        return self.start()

    @cached_property
    def samples(self) -> list[Config]:
        """40 distinct random configs, or all configs of a smaller space."""
        return self.space.sample_new(np.random.default_rng(self.seed), 40, ())

    @cached_property
    def valid(self) -> list[Config]:
        """The first three of the samples that make programs. Raises NotApplicable in a space without programs."""
        if not self.space.has_programs:
            raise NotApplicable("its configs have no programs")
        configs: list[Config] = []
        for config in self.samples:
            try:
                self.space.schedule(config)
            except InvalidConfig:
                continue
            configs.append(config)
            if len(configs) == 3:
                break
        return configs


@dataclass(frozen=True)
class PolicySubject(_Subject):
    """A policy, with the spaces that it is checked in, and the cost model that it is given if it takes one.

    spaces: by their use, ``large`` and ``dependent``. small: spaces that are small enough to be exhausted, by name.
    """

    plugin: Plugin
    cls: type[Any]
    spaces: Mapping[str, SpaceSubject]
    small: Mapping[str, SpaceSubject]
    cost_model: Plugin
    features: str
    seed: int = 0
    time_limit: float = 120.0

    @property
    def traits(self) -> Traits:
        return traits_of(self.cls)

    def start(self, where: SpaceSubject, seed: int | None = None) -> Policy:
        """The policy afresh. Raises Refused if it does not take the space or the options."""
        seed = self.seed if seed is None else seed
        space = where.space
        options = dict(self.plugin.options)
        if self.traits.takes_cost_model:
            model = make_cost_model(self.cost_model, seed)
            options["cost_model"] = BoundCostModel(model, make_features(self.features, space))
        try:
            policy = self.cls(space, seed=seed, **options)
        except SearchlabError as error:
            raise Refused(
                f"policy {self.plugin.name!r} refuses to start in space {where.plugin.name!r}: {error}. If it works "
                "in certain spaces only, name one of them, as in: --space sketch --workload gemm:64x64x64"
            ) from error
        started: Policy = _derived(policy, Policy, self.plugin)
        return started

    def run(self, where: SpaceSubject, cost: Cost = flaky, *, seed: int | None = None, trials: int = 32) -> list[Trial]:
        """The trials of a fresh policy, in batches of eight. The global random streams start the same in each run."""
        with global_streams(0):
            return run_policy(self.start(where, seed), cost, trials)

    @cached_property
    def runs(self) -> dict[str, list[Trial]]:
        """An ordinary run in each space."""
        return {name: self.run(where) for name, where in self.spaces.items()}


@dataclass(frozen=True)
class CostModelSubject(_Subject):
    """A cost model."""

    plugin: Plugin
    cls: type[Any]
    seed: int = 0
    time_limit: float = 120.0

    @classmethod
    def of(cls, spec: PluginSpec, seed: int = 0) -> CostModelSubject:
        plugin, model_class = COST_MODELS.named(spec)
        COST_MODELS.check_options(plugin.name, model_class, plugin.options)
        return cls(plugin, model_class, seed)

    def start(self) -> CostModel:
        """The model afresh. Raises Refused if it does not take the options."""
        try:
            model = self.cls(seed=self.seed, **self.plugin.options)
        except SearchlabError as error:
            raise Refused(f"cost model {self.plugin.name!r} refuses to start: {error}") from error
        started: CostModel = _derived(model, CostModel, self.plugin)
        return started


def _derived(instance: Any, contract: type[Any], plugin: Plugin) -> Any:
    """``instance``, if its class derives from ``contract``. Raises Breach otherwise."""
    if not isinstance(instance, contract):
        fix = f"derive the class from searchlab.{contract.__name__}"
        raise Breach(f"{plugin.name} makes a {type(instance).__name__}", fix)
    return instance


def traits_of(cls: type[Any]) -> Traits:
    """What ``cls`` declares of itself; nothing if it is no Policy, which a check says."""
    return cls.traits if issubclass(cls, Policy) else Traits()


def first_taken(spec: PluginSpec, workloads: Sequence[Workload], target: Target, seed: int = 0) -> SpaceSubject:
    """The space for the first of ``workloads`` that it takes; for the first of all if it takes none."""
    subjects = [SpaceSubject.of(spec, workload, target, seed) for workload in workloads]
    for subject in subjects:
        try:
            subject.cls(subject.workload, target, **subject.plugin.options)
        except UnsupportedWorkload:
            continue
        except Exception:  # a check will say what is wrong
            pass
        return subject
    return subjects[0]
