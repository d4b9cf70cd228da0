"""Studies: what a study file says, the cells it spans, running those that are missing; and one cell, :func:`tune`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import msgspec

from .errors import SearchlabError, UnsupportedWorkload
from .log import Plugin, read_log
from .measure import Cache, LocalSettings, Settings, make_measurer
from .policy import Policy
from .result import Result
from .schema import explained
from .space import Space
from .target import Target, resolve_target
from .tuner import Cell, CostModelSpec, OnTrial, as_plugin, make_space, recall, run_cell, takes_cost_model
from .workload import Workload, parse_workload


class Named(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A space or policy: its name, the options of its constructor, and what to call it in pictures and tables."""

    name: str
    options: dict[str, Any] = {}
    label: str = ""

    @property
    def plugin(self) -> Plugin:
        return Plugin(self.name, self.options)


class NamedCostModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A cost model, and its features: ``knob`` (the choices) or ``program`` (of the scheduled module)."""

    name: str
    features: Literal["knob", "program"] = "knob"
    options: dict[str, Any] = {}
    label: str = ""


class StudySpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a study file may say.

    Every workload is searched in every space by every policy (with every cost model, where it takes one) from
    every seed; ``seeds`` is a list of them, or how many from 0. Each run has ``trials`` trials, asked for
    ``batch`` at a time.
    """

    workloads: list[str]
    spaces: list[str | Named]
    policies: list[str | Named]
    cost_models: list[str | NamedCostModel] = msgspec.field(default_factory=lambda: ["xgboost"])
    seeds: int | list[int] = 1
    trials: int = 64
    batch: int = 8
    target: str | dict[str, Any] = "native"
    measure: Settings = LocalSettings()

    def __post_init__(self) -> None:
        for name in ("workloads", "spaces", "policies", "cost_models"):
            if not getattr(self, name):
                raise ValueError(f"{name} must name at least one, not []")
        for name in ("trials", "batch"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if not self.seed_list or min(self.seed_list) < 0 or len(set(self.seed_list)) < len(self.seed_list):
            raise ValueError(f"seeds must be a count of at least 1, or different numbers from 0 up, not {self.seeds}")

    @property
    def seed_list(self) -> list[int]:
        return list(range(self.seeds)) if isinstance(self.seeds, int) else self.seeds


@dataclass(frozen=True)
class StudyCell:
    """One run of a study, and its log's path under the study's directory."""

    cell: Cell
    path: Path


OnCell = Callable[[StudyCell, int, int], OnTrial]
"""Called with a cell that is about to run, its number from 1 and how many there are; gives what to call per trial."""


@dataclass
class Study:
    """A study, ready to run: ``Study.load("study.toml").run("results/study")``."""

    spec: StudySpec
    base: Path = field(default_factory=Path)

    @classmethod
    def load(cls, path: str | Path) -> Study:
        """The study of a TOML file. Raises SearchlabError naming the key, its value and what it may be."""
        path = Path(path)
        try:
            data = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise SearchlabError(f"cannot read the study {path}: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise SearchlabError(f"{path} is not valid TOML: {error}") from None
        return cls(explained(data, StudySpec, str(path)), path.parent)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], base: str | Path = ".") -> Study:
        """The study that a mapping of the same shape as a study file spells."""
        return cls(explained(dict(data), StudySpec, "the study"), Path(base))

    def cells(self) -> tuple[list[StudyCell], list[str]]:
        """Every run of the study, seeds outermost; and a sentence for each space that has no program for a workload."""
        return self._plan

    @cached_property
    def _plan(self) -> tuple[list[StudyCell], list[str]]:
        spec = self.spec
        target = resolve_target(spec.target)
        workloads = [parse_workload(text) for text in spec.workloads]
        spaces = [Named(entry) if isinstance(entry, str) else entry for entry in spec.spaces]
        strategies = list(self._strategies())
        _distinct("space", [_slug(entry.label or entry.name) for entry in spaces])
        _distinct("policy", [_slug(label) for label, *_ in strategies])
        _distinct("workload", [str(workload) for workload in workloads])
        made: list[tuple[Named, Space]] = []
        left_out: list[str] = []
        for workload in workloads:
            for entry in spaces:
                try:
                    made.append((entry, make_space(entry.plugin, workload, target)))
                except UnsupportedWorkload as error:
                    left_out.append(f"{workload} is not searched in {entry.label or entry.name}: {error}")
        if not made:
            raise SearchlabError("no space of the study fits any of its workloads. " + "; ".join(left_out))
        cells = [
            StudyCell(
                Cell(space, entry.plugin, plugin, cls, model, seed, spec.batch, spec.measure, label, entry.label),
                Path(_slug(str(space.workload)), _slug(entry.label or entry.name), _slug(label), f"seed{seed}.jsonl"),
            )
            for seed in spec.seed_list
            for entry, space in made
            for label, plugin, cls, model in strategies
        ]
        for cell in cells:
            cell.cell.start_policy()  # a wrong option is found before anything is measured
        return cells, left_out

    def _strategies(self) -> Iterator[tuple[str, Plugin, type[Policy], CostModelSpec | None]]:
        """(label, policy, its class, cost model) of each policy, with each cost model where it takes one."""
        models = [NamedCostModel(entry) if isinstance(entry, str) else entry for entry in self.spec.cost_models]
        for entry in self.spec.policies:
            named = Named(entry) if isinstance(entry, str) else entry
            plugin, cls = as_plugin("policy", named.plugin)
            label = named.label or named.name
            if not takes_cost_model(cls):
                yield label, plugin, cls, None
                continue
            for model in models:
                suffix = f"+{model.label or model.name}" if len(models) > 1 else ""
                yield label + suffix, plugin, cls, CostModelSpec(Plugin(model.name, model.options), model.features)

    def run(self, out: str | Path, on_cell: OnCell | None = None) -> list[Result]:
        """Run what is missing of the study under the directory ``out``, and give every run, complete.

        Logs that are there are kept and gone on with. Programs measured in any of them are not measured again.
        """
        out = Path(out)
        cells, _ = self.cells()
        cache: Cache = {}
        target = cells[0].cell.space.target
        with make_measurer(self.spec.measure, target, cache, self.base) as measurer:
            for item in cells:  # before anything is measured: a log of something else is found, the cache is filled
                recall(item.cell, out / item.path, measurer, cache)
            for number, item in enumerate(cells, 1):
                on_trial = on_cell(item, number, len(cells)) if on_cell else _ignore
                run_cell(item.cell, out / item.path, self.spec.trials, measurer, on_trial)
        return [Result(read_log(out / item.path), item.cell.space) for item in cells]


def _ignore(_: object) -> None:
    pass


def _slug(text: str) -> str:
    return re.sub(r"[^\w.+-]+", "_", text)


def _distinct(what: str, names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise SearchlabError(f"two entries are called {name!r} as a {what}; give one of them a label of its own")


def tune(
    workload: str | Workload,
    *,
    space: str | Mapping[str, Any] | Space,
    policy: str | Mapping[str, Any] | type[Policy],
    log: str | Path,
    trials: int = 64,
    batch: int = 8,
    seed: int = 0,
    cost_model: str | Mapping[str, Any] = "xgboost",
    features: str = "knob",
    target: str | Mapping[str, Any] | Target = "native",
    measure: Settings | Mapping[str, Any] | None = None,
    on_trial: OnTrial = _ignore,
) -> Result:
    """Search one workload in one space with one policy; the run is in the file ``log``, which resumes it.

    space, policy, cost_model: a registered name, ``{"name": ..., "options": {...}}``, ``"module:Class"``, or a
    space made already, or a policy's class.
    features: ``knob`` or ``program``. measure: as in a study file, ``{"kind": "local", ...}``.
    Raises SearchlabError for bad input, and where ``log`` is of another run.
    """
    if trials < 1 or batch < 1 or seed < 0:
        raise SearchlabError(f"trials and batch must be at least 1, seed at least 0; not {trials}, {batch} and {seed}")
    settings = explained(dict(measure), Settings, "measure") if isinstance(measure, Mapping) else measure
    settings = settings or LocalSettings()
    if isinstance(space, Space):
        made, space_plugin = space, Plugin(f"{type(space).__module__}:{type(space).__qualname__}")
    else:
        space_plugin, _ = as_plugin("space", space)
        made = make_space(space_plugin, parse_workload(workload), resolve_target(target))
    if str(made.workload) != str(parse_workload(workload)):
        raise SearchlabError(f"the space is of {made.workload}, not of {parse_workload(workload)}")
    policy_plugin, cls = as_plugin("policy", policy)
    model = CostModelSpec(as_plugin("cost model", cost_model)[0], features) if takes_cost_model(cls) else None
    cell = Cell(made, space_plugin, policy_plugin, cls, model, seed, batch, settings)
    cache: Cache = {}
    with make_measurer(settings, made.target, cache) as measurer:
        recall(cell, Path(log), measurer, cache)
        run_cell(cell, Path(log), trials, measurer, on_trial)
    return Result(read_log(log), made)
