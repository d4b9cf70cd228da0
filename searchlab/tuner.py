"""The loop, ``ask -> measure -> log -> tell``; and resuming, which is running it again over the logged trials."""

from __future__ import annotations

import functools
import inspect
import itertools
import math
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from .costmodel import Surrogate, make_cost_model, scores_of
from .cuda import gpu_name
from .errors import InvalidConfig, SearchlabError
from .features import make_features
from .log import Header, LogWriter, Plugin, Record
from .machine import machine
from .measure.contract import Cache, Measurer, Remeasurer
from .measure.settings import Settings
from .model_quality import ModelQuality, model_quality
from .policy import Policy
from .records import Trial
from .registry import check_options, load
from .space import Config, Space
from .target import Target
from .trust import measure_finalists, sentinel, time_sentinel
from .warm_start import NOTHING, WarmStart
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
    warm_start: WarmStart = NOTHING
    space_size: int | None = None

    def header(self, workers: int) -> Header:
        here = self.settings.exclusive  # this machine is measured
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
            measure=self.settings.identity(),
            host=host_model(self.space.target) if here else {},
            machine=machine(self.space.target.cores) if here else {},
            warm_start=self.warm_start.digests,
            label=self.label,
            space_label=self.space_label,
            space_size=self.space_size,
            workers=workers,
            versions=dict(library_versions()),
            created=time.time(),
        )

    def start(self) -> tuple[Policy, Surrogate | None]:
        """The policy afresh, and the cost model it was given, where it takes one.

        Raises SearchlabError for an option that either does not take.
        """
        options = dict(self.policy.options)
        check_options("policy", self.policy.name, self.policy_class, 1, options)
        surrogate = None
        if self.cost_model is not None:
            model = make_cost_model(self.cost_model.plugin, self.seed)
            surrogate = options["cost_model"] = Surrogate(model, make_features(self.cost_model.features, self.space))
        return self.policy_class(self.space, seed=self.seed, **options), surrogate

    def start_policy(self) -> Policy:
        return self.start()[0]


def make_space(plugin: Plugin, workload: Workload, target: Target) -> Space:
    """Raises SearchlabError (UnsupportedWorkload where the space has no program for the workload or target)."""
    cls = load("space", plugin.name)
    if not issubclass(cls, Space):  # before it is called: the name may come from a stranger's log
        raise SearchlabError(f"space {plugin.name!r} is no searchlab.Space; name one of `searchlab list`")
    check_options("space", plugin.name, cls, 2, plugin.options)
    space = cls(workload, target, **plugin.options)
    assert isinstance(space, Space)
    return space


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
            if record.program and (record.program not in cache or cache[record.program].pruned):
                cache[record.program] = replace(record.measurement, reused=False)


def run_cell(cell: Cell, path: Path, trials: int, measurer: Measurer, on_trial: OnTrial = lambda trial: None) -> None:
    """Bring the log at ``path`` to ``trials`` trials, or to all that the space has.

    The policy starts afresh and is told what the log holds; from there on it is measured. At the end the fastest
    trials are measured again, where the measurer does that and the log does not hold it yet. Raises SearchlabError
    where the log is of another run, or where the policy asks for something else than the log says.
    """
    policy, surrogate = cell.start()
    writer = LogWriter(path, cell.header(measurer.workers), durable=not measurer.repeatable)
    try:
        measurer.begin(cell.seed)
        if len(writer.records) < trials:
            told = _search(cell, policy, surrogate, writer, trials, measurer, on_trial)
        else:
            told = [record.trial for record in writer.records]
        has_final = writer.final is not None and writer.final.final == len(told)
        if isinstance(measurer, Remeasurer) and measurer.finalists and not has_final:
            final = measure_finalists(measurer, cell.space, told)
            if final is not None:
                writer.append(final)
                writer.sync()
    finally:
        writer.close()


def _search(
    cell: Cell,
    policy: Policy,
    surrogate: Surrogate | None,
    writer: LogWriter,
    trials: int,
    measurer: Measurer,
    on_trial: OnTrial,
) -> list[Trial]:
    """Go on to ``trials`` trials, or to all that the space has; all of them."""
    records = writer.records
    start = time.perf_counter()
    cell.warm_start.feed(policy, surrogate)
    train_seconds = time.perf_counter() - start
    asked: set[Config] = set()
    done: list[Trial] = []
    best = math.inf
    for batch in itertools.count():
        predicting = surrogate.predict_seconds if surrogate else 0.0
        start = time.perf_counter()
        configs = policy.ask(cell.batch) if len(done) < trials else []
        propose_seconds = time.perf_counter() - start
        predicting = surrogate.predict_seconds - predicting if surrogate else 0.0
        _check_ask(cell, configs, asked)
        asked.update(configs)
        if not configs:
            break
        # A run that ends within a batch leaves the rest of it for the run that goes on.
        wanted = configs[: trials - len(done)]
        told: list[Trial] = []
        for config, record in zip(wanted, records[len(done) : len(done) + len(wanted)], strict=False):
            _check_replay(writer.path, writer.header, config, record)
            told.append(record.trial)
            on_trial(told[-1])
        new = wanted[len(told) :]
        seconds = None
        if (
            isinstance(measurer, Remeasurer)
            and (new and not told and measurer.sentinel and batch % measurer.sentinel == 0)
            and (first := sentinel(done))
        ):
            seconds = time_sentinel(measurer, cell.space, first)
        best = min([best, *(trial.cost for trial in told)])
        for config, measurement in zip(new, measurer.measure(cell.space, new, best), strict=True):
            told.append(Trial(len(done) + len(told), config, measurement))
            quality = _quality(surrogate, told, predicting) if len(told) == len(configs) else None
            share = 1 / len(configs)
            writer.append(Record.of(told[-1], propose_seconds * share, train_seconds * share, quality, seconds))
            seconds = None
            on_trial(told[-1])
        writer.sync()
        done += told
        best = min([best, *(trial.cost for trial in told)])
        if len(told) == len(configs):
            start = time.perf_counter()
            policy.tell(told)
            train_seconds = time.perf_counter() - start
    return done


def _quality(surrogate: Surrogate | None, batch: Sequence[Trial], predict_seconds: float) -> ModelQuality | None:
    """How well the cost model, not told of it yet, predicted a batch; None where it was not trained yet.

    Of a batch, the quickest quarter counts as its top, since a batch has often no more than eight trials.
    """
    if surrogate is None or not surrogate.fitted:
        return None
    predicted = surrogate.predict([trial.config for trial in batch])
    return model_quality(
        predicted, scores_of(batch, surrogate.best), max(1, len(batch) // 4),
        train_seconds=surrogate.train_seconds, predict_seconds=predict_seconds,
    )  # fmt: skip


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


@functools.cache
def library_versions() -> Mapping[str, str]:
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def host_model(target: Target) -> dict[str, str]:
    """What programs for ``target`` run on here: the CPU, and the GPU where it is for one."""
    gpu = gpu_name() if target.kind == "cuda" else None
    return {"cpu": cpu_model(), **({"gpu": gpu} if gpu else {})}


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
