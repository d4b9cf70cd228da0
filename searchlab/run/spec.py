"""The keys of a study file."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ..measure.settings import LocalSettings, Settings
from ..plugins import Plugin


class Named(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A space or policy: its name, the options of its constructor, and its name in pictures and tables."""

    name: str
    options: dict[str, Any] = {}
    label: str = ""

    @property
    def plugin(self) -> Plugin:
        return Plugin(self.name, self.options)


class NamedCostModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A cost model, and its features: ``knob`` (the choices) or ``program`` (of the scheduled module)."""

    name: str
    features: Literal["knob", "program", "store"] = "knob"
    options: dict[str, Any] = {}
    label: str = ""

    @property
    def plugin(self) -> Plugin:
        return Plugin(self.name, self.options)


class StudySpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The keys of a study file.

    Every policy (with every cost model, if it takes one) searches every workload in every space from every seed.
    ``seeds`` is a list, or the number of seeds from 0 on. Each run has ``trials`` trials, asked for ``batch`` at a
    time. The default target is this machine, or the target of the table; a fleet has no default.

    warm_start: logs of earlier runs, or directories of them. Each policy is told those in the space of its run. A cost
    model with program features is trained on the others.
    """

    workloads: list[str]
    spaces: list[str | Named]
    policies: list[str | Named]
    cost_models: list[str | NamedCostModel] = msgspec.field(default_factory=lambda: ["xgboost"])
    seeds: int | list[int] = 1
    trials: int = 64
    batch: int = 8
    target: str | dict[str, Any] | None = None
    measure: Settings = LocalSettings()
    warm_start: list[str] = []

    def __post_init__(self) -> None:
        for name in ("workloads", "spaces", "policies", "cost_models"):
            if not getattr(self, name):
                raise ValueError(f"{name} must have at least one entry, not []")
        for name in ("trials", "batch"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if not self.seed_list or min(self.seed_list) < 0 or len(set(self.seed_list)) < len(self.seed_list):
            raise ValueError(f"seeds must be a count of at least 1, or different numbers from 0 up, not {self.seeds}")

    @property
    def seed_list(self) -> list[int]:
        return list(range(self.seeds)) if isinstance(self.seeds, int) else self.seeds
