"""The loop, ``ask -> measure -> log -> tell``; and resuming, which is running it again over the logged trials."""

from __future__ import annotations

import inspect
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from .costmodel import CostModel, Surrogate
from .errors import InvalidConfig, SearchlabError
from .features import make_features
from .log import Header, LogWriter, Plugin, Record
from .measure import Cache, LocalSettings, Measurer, Settings, protocol
from .policy import Policy
from .records import Trial
from .registry import check_options, load
from .space import Config, Space
from .target import Target
from .workload import Workload

LIBRARIES = ("searchlab", "apache-tvm", "apache-tvm-ffi", "numpy", "xgboost", "lightgbm", "scikit-learn", "optuna")

OnTrial = Callable[[Trial], None]
"""Called with every trial in order, measured now or replayed from the log."""


@dataclass(frozen=True)
class CostModelSpec:
    """Which cost model, and what it sees of a config."""

    plugin: Plugin
    features: str = "knob"


@dataclass(frozen=True)
class Cell:
    """One run: a workload in a space, searched by a policy (with a cost model where it takes one) from a seed."""

    space: Space
    space_plugin: Plugin
    policy: Plugin
    policy_class: type[Policy]
    cost_model: CostModelSpec | None
    seed: int
    batch: int
    settings: Settings
    label: str = ""
    space_label: str = ""

    def header(self, workers: int) -> Header:
        local = isinstance(self.settings, LocalSettings)
        return Header(
            workload=str(self.space.workload),
            space=self.space_plugin.spelled(),
            fingerprint=self.space.fingerprint,
            policy=self.policy.spelled(),
            cost_model=self.cost_model.plugin.spelled() if self.cost_model else None,
            features=self.cost_model.features if self.cost_model else "",
            seed=self.seed,
            batch=self.batch,
            target=self.space.target.to_json(),
            measure=protocol(self.settings),
            host={"cpu": cpu_model()} if local else {},
            label=self.label,
            space_label=self.space_label,
            workers=workers,
            versions=library_versions(),
            created=time.time(),
        )

    def start_policy(self) -> Policy:
        """The policy afresh. Raises SearchlabError for an option that it does not take."""
        options = dict(self.policy.options)
        check_options("policy", self.policy.name, self.policy_class, 1, options)
        if self.cost_model is not None:
            options["cost_model"] = Surrogate(
                make_cost_model(self.cost_model.plugin, self.seed), make_features(self.cost_model.features, self.space)
            )
        return self.policy_class(self.space, seed=self.seed, **options)


def make_space(plugin: Plugin, workload: Workload, target: Target) -> Space:
    """Raises SearchlabError (UnsupportedWorkload where the space has no program for the workload or target)."""
    cls = load("space", plugin.name)
    check_options("space", plugin.name, cls, 2, plugin.options)
    space = cls(workload, target, **plugin.options)
    assert isinstance(space, Space)
    return space


def make_cost_model(plugin: Plugin, seed: int) -> CostModel:
    cls = load("cost model", plugin.name)
    check_options("cost model", plugin.name, cls, 0, plugin.options)
    model = cls(seed=seed, **plugin.options)
    assert isinstance(model, CostModel)
    return model


def takes_cost_model(policy: type[Policy]) -> bool:
    return "cost_model" in inspect.signature(policy).parameters


def recall(cell: Cell, path: Path, measurer: Measurer, cache: Cache) -> None:
    """Take what the log at ``path`` measured, if it is there, into ``cache``.

    Raises SearchlabError where the log is damaged, or of another run.
    """
    if path.exists():
        writer = LogWriter(path, cell.header(measurer.workers))
        writer.close()
        for record in writer.records:
            if record.program:
                cache.setdefault(record.program, replace(record.measurement, reused=False))


def run_cell(cell: Cell, path: Path, trials: int, measurer: Measurer, on_trial: OnTrial = lambda trial: None) -> None:
    """Bring the log at ``path`` to ``trials`` trials, or to all that the space has.

    The policy starts afresh and is told what the log holds; from there on it is measured. Raises SearchlabError
    where the log is of another run, or where the policy asks for something else than the log says.
    """
    policy = cell.start_policy()
    writer = LogWriter(path, cell.header(measurer.workers))
    try:
        records = writer.records
        if len(records) >= trials:
            return
        asked: set[Config] = set()
        done, train_seconds = 0, 0.0
        while done < trials:
            start = time.perf_counter()
            configs = policy.ask(cell.batch)
            propose_seconds = time.perf_counter() - start
            _check_ask(cell, configs, asked)
            asked.update(configs)
            if not configs:
                break
            # A run that ends within a batch leaves the rest of it for the run that goes on.
            wanted = configs[: trials - done]
            told: list[Trial] = []
            for config, record in zip(wanted, records[done:], strict=False):
                _check_replay(path, writer.header, config, record)
                told.append(record.trial)
                on_trial(told[-1])
            new = wanted[len(told) :]
            for config, measurement in zip(new, measurer.measure(cell.space, new), strict=True):
                trial = Trial(done + len(told), config, measurement)
                writer.append(Record.of(trial, propose_seconds / len(configs), train_seconds / len(configs)))
                told.append(trial)
                on_trial(trial)
            writer.sync()
            done += len(told)
            if len(told) == len(configs):
                start = time.perf_counter()
                policy.tell(told)
                train_seconds = time.perf_counter() - start
    finally:
        writer.close()


def _check_ask(cell: Cell, configs: Sequence[Config], asked: set[Config]) -> None:
    """Hold what a policy asked for against its contract."""
    broken = f"policy {cell.policy.name!r} broke its contract: asked for"
    if len(configs) > cell.batch:
        raise SearchlabError(f"{broken} {cell.batch} configs it gave {len(configs)}")
    fresh: set[Config] = set()
    for config in configs:
        if config in asked or config in fresh:
            raise SearchlabError(f"{broken} new configs it repeated {config.to_json()}")
        fresh.add(config)
        try:
            cell.space.knobs(config)
        except InvalidConfig as error:
            raise SearchlabError(f"{broken} configs of its space it gave {config.to_json()}: {error}") from None


def _check_replay(path: Path, header: Header, config: Config, record: Record) -> None:
    if Config(record.config) == config:
        return
    now = library_versions()
    changed = [f"{name} {old} -> {now.get(name)}" for name, old in header.versions.items() if now.get(name) != old]
    raise SearchlabError(
        f"{path} cannot be resumed: its trial {record.index} is {record.config}, but the policy now asks for "
        f"{config.to_json()}; "
        + (f"what changed since: {', '.join(changed)}" if changed else "the policy or the space was changed since")
        + ". Go on with what it was made with, or choose another log file"
    )


def library_versions() -> dict[str, str]:
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def cpu_model() -> str:
    """The name of this CPU as the kernel gives it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def as_plugin(kind: str, spec: str | Mapping[str, Any] | Plugin | type[Any]) -> tuple[Plugin, type[Any]]:
    """A plug-in and its class, from its name, from ``{"name": ..., "options": {...}}``, or from a class itself."""
    if isinstance(spec, type):
        return Plugin(f"{spec.__module__}:{spec.__qualname__}"), spec
    if isinstance(spec, Mapping):
        unknown = set(spec) - {"name", "options"}
        if unknown or "name" not in spec:
            raise SearchlabError(f"a {kind} is given as {{'name': ..., 'options': {{...}}}}, not {dict(spec)!r}")
        spec = Plugin(spec["name"], dict(spec.get("options", {})))
    elif isinstance(spec, str):
        spec = Plugin(spec)
    return spec, load(kind, spec.name)
