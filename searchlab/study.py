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

from .errors import SearchlabError, UnsupportedSpace, UnsupportedWorkload
from .jobs import check_jobs, run_jobs
from .log import Plugin, read_log
from .measure.contract import Cache
from .measure.settings import LocalSettings, Settings
from .policy import Policy
from .result import Result
from .schema import explained
from .space import Space
from .target import Target, resolve_target
from .tuner import Cell, CostModelSpec, OnTrial, as_plugin, make_space, recall, run_cell, takes_cost_model
from .warm_start import check_apart, check_used, earlier_runs, usable
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
    ``batch`` at a time. Without a target it is this machine, or what a table was measured for; a fleet needs one.

    warm_start: logs of earlier runs, or directories of them. Each run starts from those in its own space, and trains
    its cost model, where that has program features, on the others.
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


OnCell = Callable[[StudyCell, int, int, int], OnTrial]
"""Called with a cell that is about to run, its number from 1, how many there are, and the job, from 0, that runs it.

Gives what to call per trial. The cell that ran in this job before has ended.
"""


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
        """Every run of the study, seeds outermost; and a sentence for each that cannot be.

        That is where a space has no program for a workload, or a policy cannot search a space.
        """
        return self._plan

    @cached_property
    def _plan(self) -> tuple[list[StudyCell], list[str]]:
        spec = self.spec
        target = resolve_target(spec.measure.default_target(self.base) if spec.target is None else spec.target)
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
        held = spec.measure.measurable(self.base)
        if held is not None:
            for entry, space in made:
                if (str(space.workload), space.fingerprint) not in held:
                    where = entry.label or entry.name
                    left_out.append(f"{space.workload} is not searched in {where}: no table is of it for this target")
            made = [(entry, space) for entry, space in made if (str(space.workload), space.fingerprint) in held]
        if not made:
            raise SearchlabError("no space of the study fits any of its workloads. " + "; ".join(left_out))
        runs = earlier_runs([self.base / path for path in spec.warm_start])
        warm = {
            (space, features): usable(runs, space, features)
            for _, space in made
            for features in {_features(model) for *_, model in strategies}
        }
        check_used(runs, list(warm.values()))
        cells = [
            StudyCell(
                Cell(
                    space,
                    entry.plugin,
                    plugin,
                    cls,
                    model,
                    seed,
                    spec.batch,
                    spec.measure,
                    label,
                    entry.label,
                    warm_start=warm[space, _features(model)],
                ),
                Path(_slug(str(space.workload)), _slug(entry.label or entry.name), _slug(label), f"seed{seed}.jsonl"),
            )
            for seed in spec.seed_list
            for entry, space in made
            for label, plugin, cls, model in strategies
        ]
        started: list[StudyCell] = []
        for cell in cells:
            try:
                cell.cell.start_policy()  # a wrong option is found before anything is measured
                started.append(cell)
            except UnsupportedSpace as error:
                left_out.append(f"{cell.path.parent} is not searched: {error}")
        if not started:
            raise SearchlabError("no policy of the study can search any of its spaces. " + "; ".join(left_out))
        return started, list(dict.fromkeys(left_out))

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

    def run(self, out: str | Path, on_cell: OnCell | None = None, jobs: int = 1) -> list[Result]:
        """Run what is missing of the study under the directory ``out``, and give every run, complete.

        Logs that are there are kept and gone on with. Programs measured in any of them are not measured again.
        jobs: how many cells run at the same time, in processes of their own; these share no measurements but those
            that the logs held before. Raises SearchlabError for more than one where this machine is what is measured.
        """
        check_jobs(jobs, self.spec.measure)
        out = Path(out)
        on_cell = on_cell or _ignore_cell
        cells, _ = self.cells()
        check_apart([item.cell.warm_start for item in cells], [out / item.path for item in cells])
        cache: Cache = {}
        target = cells[0].cell.space.target
        with self.spec.measure.make(target, cache, self.base) as measurer:
            for item in cells:  # before anything is measured: a log of something else is found, the cache is filled
                recall(item.cell, out / item.path, measurer, cache)
            if jobs > 1:
                run_jobs(cells, out, self.spec.trials, self.spec.measure, self.base, cache, jobs, on_cell)
            else:
                for number, item in enumerate(cells, 1):
                    on_trial = on_cell(item, number, len(cells), 0)
                    run_cell(item.cell, out / item.path, self.spec.trials, measurer, on_trial)
        return [Result(read_log(out / item.path), item.cell.space) for item in cells]


def _features(model: CostModelSpec | None) -> str | None:
    return model.features if model else None


def _ignore(_: object) -> None:
    pass


def _ignore_cell(*_: object) -> OnTrial:
    return _ignore


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
    target: str | Mapping[str, Any] | Target | None = None,
    measure: Settings | Mapping[str, Any] | None = None,
    warm_start: Sequence[str | Path] = (),
    on_trial: OnTrial = _ignore,
) -> Result:
    """Search one workload in one space with one policy; the run is in the file ``log``, which resumes it.

    space, policy, cost_model: a registered name, ``{"name": ..., "options": {...}}``, ``"module:Class"``, or a
    space made already, or a policy's class.
    features: ``knob`` or ``program``. measure: as in a study file, ``{"kind": "local", ...}``. Without a target it is
    this machine, or what a table was measured for.
    warm_start: logs of earlier runs, or directories of them, to start from: those in this space are told to the
    policy, and the others train a cost model that has program features.
    Raises SearchlabError for bad input, and where ``log`` is of another run.
    """
    if trials < 1 or batch < 1 or seed < 0:
        raise SearchlabError(f"trials and batch must be at least 1, seed at least 0; not {trials}, {batch} and {seed}")
    settings = explained(dict(measure), Settings, "measure") if isinstance(measure, Mapping) else measure
    settings = settings or LocalSettings()
    if isinstance(space, Space):
        made = space
        space_plugin = Plugin(f"{type(space).__module__}:{type(space).__qualname__}", dict(space.made_with))
    else:
        space_plugin, _ = as_plugin("space", space)
        spec = settings.default_target() if target is None else target
        made = make_space(space_plugin, parse_workload(workload), resolve_target(spec))
    if str(made.workload) != str(parse_workload(workload)):
        raise SearchlabError(f"the space is of {made.workload}, not of {parse_workload(workload)}")
    if target is not None and resolve_target(target) != made.target:
        raise SearchlabError(f"the space is for the target {made.target}, not for {resolve_target(target)}")
    policy_plugin, cls = as_plugin("policy", policy)
    model = CostModelSpec(as_plugin("cost model", cost_model)[0], features) if takes_cost_model(cls) else None
    runs = earlier_runs([Path(path) for path in warm_start])
    warm = usable(runs, made, _features(model))
    check_used(runs, [warm])
    check_apart([warm], [Path(log)])
    cell = Cell(made, space_plugin, policy_plugin, cls, model, seed, batch, settings, warm_start=warm)
    cache: Cache = {}
    with settings.make(made.target, cache) as measurer:
        recall(cell, Path(log), measurer, cache)
        run_cell(cell, Path(log), trials, measurer, on_trial)
    return Result(read_log(log), made)
