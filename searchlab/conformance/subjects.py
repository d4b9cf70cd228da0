"""What is checked: a policy, space or cost model, with all that it needs to be started, here or in another process."""

from __future__ import annotations

import inspect
import json
import os
import random
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from ..costmodel import CostModel, Surrogate, make_cost_model
from ..errors import InvalidConfig, SearchlabError, UnsupportedWorkload, described
from ..features import make_features
from ..log import Plugin
from ..policy import Policy
from ..records import Trial
from ..registry import check_options
from ..space import Config, Space
from ..target import Target
from ..tuner import as_plugin, takes_cost_model
from ..workload import Workload
from . import toys
from .check import Breach, Refused

PluginSpec = str | Mapping[str, Any] | type[Any]
"""A registered name, ``"module:Class"``, ``{"name": ..., "options": {...}}``, or a class."""


class _Subject:
    def __getstate__(self) -> dict[str, Any]:
        # Another process starts from the plug-in, not from what was made of it here.
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]


@dataclass(frozen=True)
class SpaceSubject(_Subject):
    """A space, of one workload and target."""

    plugin: Plugin
    cls: type[Any]
    workload: Workload
    target: Target
    seed: int = 0
    time_limit: float = 120.0

    @classmethod
    def of(cls, spec: PluginSpec, workload: Workload, target: Target, seed: int = 0) -> SpaceSubject:
        plugin, found = named("space", spec)
        check_options("space", plugin.name, found, 2, plugin.options)
        return cls(plugin, found, workload, target, seed)

    def start(self) -> Space:
        """The space afresh. Raises Refused where it says that it does not take the workload, target or options."""
        try:
            made = self.cls(self.workload, self.target, **self.plugin.options)
        except SearchlabError as error:
            raise Refused(
                f"space {self.plugin.name!r} refuses {self.workload} on {self.target.kind}: {error}"
            ) from error
        if not isinstance(made, Space):
            raise Breach(f"{self.plugin.name} makes a {type(made).__name__}", "derive the class from searchlab.Space")
        return made

    @cached_property
    def space(self) -> Space:
        return self.start()

    @cached_property
    def samples(self) -> list[Config]:
        """Distinct random configs: 40 of them, or all."""
        return self.space.sample_new(np.random.default_rng(self.seed), 40, ())

    @cached_property
    def valid(self) -> list[Config]:
        """Of the samples, the first three that make programs."""
        found: list[Config] = []
        for config in self.samples:
            try:
                self.space.schedule(config)
            except InvalidConfig:
                continue
            found.append(config)
            if len(found) == 3:
                break
        return found


@dataclass(frozen=True)
class PolicySubject(_Subject):
    """A policy, with the spaces that it is checked in and the cost model it is given where it takes one.

    spaces: by what they are for, ``large`` and ``dependent``; and those that are small enough to be exhausted.
    """

    plugin: Plugin
    cls: type[Any]
    spaces: Mapping[str, SpaceSubject]
    small: Mapping[str, SpaceSubject]
    cost_model: Plugin
    features: str = "knob"
    seed: int = 0
    time_limit: float = 120.0

    def start(self, where: SpaceSubject, seed: int | None = None) -> Policy:
        """The policy afresh. Raises Refused where it says that it does not take the space or the options."""
        seed = self.seed if seed is None else seed
        space = where.space
        options = dict(self.plugin.options)
        if takes_cost_model(self.cls):
            model = make_cost_model(self.cost_model, seed)
            options["cost_model"] = Surrogate(model, make_features(self.features, space))
        try:
            made = self.cls(space, seed=seed, **options)
        except SearchlabError as error:
            raise Refused(
                f"policy {self.plugin.name!r} refuses to start in space {where.plugin.name!r}: {error}. If it works in "
                "certain spaces only, name one, as: --space sketch --workload gemm:64x64x64"
            ) from error
        if not isinstance(made, Policy):
            raise Breach(f"{self.plugin.name} makes a {type(made).__name__}", "derive the class from searchlab.Policy")
        return made

    def run(
        self, where: SpaceSubject, cost: toys.Cost = toys.flaky, *, seed: int | None = None, trials: int = 32
    ) -> list[Trial]:
        """The trials of a fresh policy, asked for eight at a time; numpy's and Python's global streams start alike."""
        with global_streams(0):
            return toys.run(self.start(where, seed), cost, trials)

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
        plugin, found = named("cost model", spec)
        check_options("cost model", plugin.name, found, 0, plugin.options)
        return cls(plugin, found, seed)

    def start(self) -> CostModel:
        """The model afresh. Raises Refused where it says that it does not take the options."""
        try:
            made = self.cls(seed=self.seed, **self.plugin.options)
        except SearchlabError as error:
            raise Refused(f"cost model {self.plugin.name!r} refuses to start: {error}") from error
        if not isinstance(made, CostModel):
            happened = f"{self.plugin.name} makes a {type(made).__name__}"
            raise Breach(happened, "derive the class from searchlab.CostModel")
        return made


def named(kind: str, spec: PluginSpec) -> tuple[Plugin, type[Any]]:
    """A plug-in and its class. Raises SearchlabError where there is none, or its module cannot be imported."""
    try:
        return as_plugin(kind, spec)
    except SearchlabError:
        raise
    except Exception as error:  # whatever a module trips over while it is imported
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = (
            f"{error.filename}:{error.lineno}" if isinstance(error, SyntaxError) else f"{last.filename}:{last.lineno}"
        )
        raise SearchlabError(f"{kind} {spec!r} cannot be imported: {described(error)}, raised at {where}") from error


def first_taken(spec: PluginSpec, workloads: Sequence[Workload], target: Target, seed: int = 0) -> SpaceSubject:
    """The space, of the first of ``workloads`` that it takes, or else of the first."""
    subjects = [SpaceSubject.of(spec, workload, target, seed) for workload in workloads]
    for subject in subjects:
        try:
            subject.cls(subject.workload, target, **subject.plugin.options)
        except UnsupportedWorkload:
            continue
        except Exception:  # what is wrong with it, a check will say
            pass
        return subject
    return subjects[0]


def check_constructor(cls: type[Any], fixed: int, *, seeded: bool) -> None:
    """Raise Breach unless ``cls`` takes ``fixed`` things by position, and by name options that have defaults.

    ``seed`` (which it must take if ``seeded``) and ``cost_model`` are always given and need none.
    """
    parameters = list(inspect.signature(cls).parameters.values())
    by_name = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    for parameter in parameters[:fixed]:
        if parameter.kind not in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD):
            raise Breach(f"its constructor takes {parameter.name!r} not by position but as {parameter}")
    if len(parameters) < fixed:
        raise Breach(f"its constructor is {inspect.signature(cls)}")
    for parameter in parameters[fixed:]:
        if parameter.kind not in by_name:
            raise Breach(f"its constructor takes {parameter}: an option spelt wrong would be taken without a word")
        if parameter.default is inspect.Parameter.empty and parameter.name not in ("seed", "cost_model"):
            raise Breach(f"its option {parameter.name!r} has no default")
    if seeded and "seed" not in [parameter.name for parameter in parameters]:
        raise Breach("its constructor takes no 'seed'")


# --- global state, and other processes --------------------------------------------------------------


@contextmanager
def global_streams(seed: int) -> Iterator[None]:
    """Start the global random streams of Python and numpy from ``seed``, and put them back after."""
    before = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed)
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])


@contextmanager
def global_streams_untouched() -> Iterator[None]:
    """Raise Breach where what is done meanwhile draws from a global random stream, or sets it."""
    before = random.getstate(), repr(np.random.get_state())
    yield
    for name, old, new in (
        ("random", before[0], random.getstate()),
        ("numpy.random", before[1], repr(np.random.get_state())),
    ):
        if old != new:
            raise Breach(f"it drew from the global stream of {name}, or set its seed")


def in_two_processes(function: Callable[[Any], Any], argument: Any) -> tuple[Any, Any]:
    """What ``function(argument)`` gives, as plain JSON data, in two processes whose order of hashes and threads differ.

    Raises Breach where one of them fails.
    """
    import cloudpickle

    code = (
        "import cloudpickle, json, sys\n"
        "function, argument = cloudpickle.load(sys.stdin.buffer)\n"
        "print('\\n' + json.dumps(function(argument)))\n"
    )
    data = cloudpickle.dumps((function, argument))
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            env=os.environ | {
                "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
                "PYTHONHASHSEED": number, "OMP_NUM_THREADS": number, "TVM_NUM_THREADS": number,
            },
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for number in ("1", "2")
    ]  # fmt: skip
    try:
        for process in processes:
            assert process.stdin
            process.stdin.write(data)
            process.stdin.close()
            process.stdin = None
        answers = [process.communicate() for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    for process, (_, said) in zip(processes, answers, strict=True):
        if process.returncode:
            lines = said.decode(errors="replace").strip().splitlines() or ["nothing was said"]
            raise Breach(f"in a process of its own it ended with exit code {process.returncode}: {lines[-1]}")
    first, second = (json.loads(text.decode().strip().rpartition("\n")[2]) for text, _ in answers)
    return first, second
