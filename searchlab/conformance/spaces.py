"""Space checks: a function for each rule in the contract of :class:`~searchlab.space.Space`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InvalidConfig, UnsupportedWorkload, describe, last_line
from ..measure.local import LocalMeasurer
from ..measure.settings import LocalSettings
from ..plugins import PluginSpec
from ..space import SPACES, Config, Knob, Space, Value
from ..target import Target, resolve_target
from ..workload import PACK, Workload, packed_arguments, parse_workload
from .check import (
    TIME_LIMIT,
    Breach,
    Check,
    NotApplicable,
    Subject,
    check_constructor,
    global_streams,
    in_two_processes,
    innermost,
    rule,
    rules_in,
)

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

WORKLOADS = (
    "gemm:64x64x64",
    "gemm:37x53x29:bias:add:relu",
    "gemm:32x64x16:float64",
    "gemm:1x1x1",
    "conv2d:1x9x9x16x8x3x3:p1:bias:add:relu",
    "conv2d:2x7x8x12x6x3x2:s2x1:p1x0:d2x1",
    "conv2d:1x5x5x32x16x1x1",
)
"""Workloads for which a space is created; it must raise UnsupportedWorkload for those that it does not support."""


@dataclass(frozen=True)
class SpaceSubject(Subject):
    """A space to check, for one workload and target."""

    workload: Workload
    target: Target

    @classmethod
    def from_spec(cls, spec: PluginSpec, workload: Workload, target: Target, seed: int = 0) -> SpaceSubject:
        plugin, space_class = SPACES.resolve(spec)
        SPACES.check_options(plugin.name, space_class, plugin.options)
        return cls(plugin, space_class, seed, TIME_LIMIT, workload, target)

    @classmethod
    def for_workload(
        cls, spec: PluginSpec, workload: str | Workload | None, target: Target, seed: int = 0
    ) -> SpaceSubject:
        """Return the space for ``workload``, which defaults to the first of :data:`WORKLOADS` that it supports."""
        texts = WORKLOADS if workload is None else [workload]
        subjects = [cls.from_spec(spec, parse_workload(text), target, seed) for text in texts]
        for subject in subjects:
            try:
                subject.cls(subject.workload, target, **subject.plugin.options)
            except UnsupportedWorkload:
                continue
            except Exception:  # a check will report it
                pass
            return subject
        return subjects[0]

    def start(self) -> Space:
        """Instantiate the space. Raises Refused if it rejects the workload, target or options."""
        rejection = f"space {self.plugin.name!r} rejected {self.workload} on {self.target.kind}"
        space: Space = self.make(Space, rejection, self.workload, self.target, **self.plugin.options)
        return space

    @cached_property
    def space(self) -> Space:
        return self.start()

    @cached_property
    def samples(self) -> list[Config]:
        """Forty distinct random configs, or all configs if the space has fewer."""
        return self.space.sample_new(np.random.default_rng(self.seed), 40, ())

    @cached_property
    def valid(self) -> list[Config]:
        """The first three samples that have a program. Raises NotApplicable if the space has no programs."""
        if not self.space.has_programs:
            raise NotApplicable("its configs have no programs")
        return list(islice(filter(self._has_program, self.samples), 3))

    def _has_program(self, config: Config) -> bool:
        try:
            self.space.schedule(config)
        except InvalidConfig:
            return False
        return True


BASIC = ("signature", "starts", "decides")
"""The rules that must hold for all others to be meaningful."""

CONSISTENT = (*BASIC, "same-choices", "choices-differ", "plain-values", "knob-names", "members")
SCHEDULABLE = (*CONSISTENT, "schedules")
REPRODUCIBLE = (*SCHEDULABLE, "one-program", "pickles", "keeps-the-function")


@rule("give options defaults, and accept no *args or **kwargs: def __init__(self, workload, target, *, packed=True)")
def signature(space: SpaceSubject) -> None:
    """The constructor accepts workload and target by position, and options by keyword; each option has a default."""
    check_constructor(space.cls, 2, seeded=False)


@rule("call super().__init__(workload, target) first")
def starts(space: SpaceSubject) -> None:
    """It can be instantiated, and stores its workload and target."""
    instance = space.space
    for name, expected in (("workload", space.workload), ("target", space.target)):
        if getattr(instance, name, None) != expected:
            raise Breach(f"its {name} is {getattr(instance, name, None)} instead of {expected}")


@rule("raise UnsupportedWorkload(text) in the constructor, before anything else", ["starts"])
def unfit_workloads(space: SpaceSubject) -> None:
    """For a workload without a program, it raises UnsupportedWorkload, which lists the supported workloads."""
    for text in WORKLOADS:
        try:
            space.cls(parse_workload(text), space.target, **space.plugin.options)
        except UnsupportedWorkload as error:
            if not str(error):
                raise Breach(f"for {text}, it raises UnsupportedWorkload without a message") from None
        except Exception as error:  # a plug-in may raise anything
            raise Breach(f"for {text}, it raises {describe(error)}") from error


@rule("leave a choice to every later knob, whatever was chosen before", ["starts"])
def decides(space: SpaceSubject) -> None:
    """decide(choose) returns a Config, whatever choose returns."""
    for config in space.samples:
        if not isinstance(config, Config):
            raise Breach(f"it returned a {type(config).__name__}", "return Config([(knob.name, value), ...])")


@rule("make decide depend only on the choices, not on a counter, randomness or the order of a set", BASIC)
def same_choices(space: SpaceSubject) -> None:
    """The same choices lead to the same knobs and the same config."""
    for rng_seed in range(20):
        first = _decide_randomly(space.space, rng_seed)
        for second in (_decide_randomly(space.space, rng_seed), _decide_randomly(space.start(), rng_seed)):
            if second != first:
                number = next((i for i, (a, b) in enumerate(zip(first[0], second[0], strict=False)) if a != b), None)
                if number is None:
                    raise Breach(f"the same choices first returned {first[1]} and later {second[1]}")
                raise Breach(f"after the same choices, it asked for {second[0][number]} instead of {first[0][number]}")


def _decide_randomly(space: Space, rng_seed: int) -> tuple[list[tuple[str, list[Value]]], Config]:
    """Call ``decide`` with random choices; return the knobs' names and choices, and the config."""
    rng = np.random.default_rng(rng_seed)
    calls: list[tuple[str, list[Value]]] = []

    def choose(knob: Knob) -> Value:
        calls.append((knob.name, list(knob.choices)))
        return knob.choices[int(rng.integers(len(knob.choices)))]

    config = space.decide(choose)
    return calls, config


def _choices(space: SpaceSubject) -> Iterator[tuple[str, list[Value]]]:
    """Yield the knobs' names and choices in 20 random configs."""
    for rng_seed in range(20):
        yield from _decide_randomly(space.space, rng_seed)[0]


@rule("remove duplicate choices; True, 1 and 1.0 are equal, so use a single type", BASIC)
def choices_differ(space: SpaceSubject) -> None:
    """All choices of a knob are different."""
    for name, choices in _choices(space):
        if twice := [value for value, count in Counter(choices).items() if count > 1]:
            same = [value for value in choices if value == twice[0]]
            raise Breach(f"knob {name!r} has the equal choices {same}")


@rule("convert NumPy numbers with int(...) or .tolist(); represent tiles as tuples of whole numbers", BASIC)
def plain_values(space: SpaceSubject) -> None:
    """A choice is a bool, int, float, str or tuple of ints, and a config survives a round trip through JSON."""
    for name, choices in _choices(space):
        for value in choices:
            parts = value if type(value) is tuple else ()
            if type(value) not in (bool, int, float, str, tuple) or any(type(part) is not int for part in parts):
                raise Breach(f"knob {name!r} has the choice {value!r}, a {type(value).__name__}")
    for config in space.samples:
        copy = Config(json.loads(json.dumps(config.to_json())))
        if copy != config:
            raise Breach(f"{config} becomes {copy} when read back")


@rule("give each knob a unique name", BASIC)
def knob_names(space: SpaceSubject) -> None:
    """Each knob has a name, and no two knobs in a config have the same name."""
    for rng_seed in range(20):
        calls, _ = _decide_randomly(space.space, rng_seed)
        for name, count in Counter(name for name, _ in calls).items():
            if count > 1 or not isinstance(name, str) or not name:
                raise Breach(f"a config has {count} knobs called {name!r}")


@rule(
    "return a Config with each knob's name and the value that choose returned, in the order of the calls",
    [*BASIC, "same-choices", "choices-differ", "plain-values", "knob-names"],
)
def members(space: SpaceSubject) -> None:
    """The config contains the chosen values, in order, and is a member of the space."""
    for rng_seed in range(20):
        calls, config = _decide_randomly(space.space, rng_seed)
        if list(config) != [name for name, _ in calls]:
            raise Breach(f"it asked for {[name for name, _ in calls]} but returned {config}")
        try:
            space.space.knobs(config)
        except InvalidConfig as error:
            raise Breach(f"it returned {config.to_json()}, which is not a member: {error}") from None
    if Config({**space.samples[0], "no such knob": 1}) in space.space:
        raise Breach("a config with an unknown knob counts as a member")


@rule("end overrides of mutate, crossover and neighbours with self.repair(values, rng), or remove them", CONSISTENT)
def stays_inside(space: SpaceSubject) -> None:
    """Mutation, crossover and neighbours stay in the space."""
    instance, rng = space.space, np.random.default_rng(space.seed)
    pairs = list(pairwise(space.samples)) or [(space.samples[0], space.samples[0])]
    for a, b in pairs[:20]:
        results = [("mutate", instance.mutate(a, rng)), ("crossover", instance.crossover(a, b, rng))]
        results += [("neighbours", config) for config in islice(instance.neighbours(a, rng), 5)]
        for method, config in results:
            if config not in instance:
                raise Breach(f"{method} turns {a.to_json()} into {config.to_json()}, which is not a member")


@rule("leave enumerate and size to the base class", CONSISTENT)
def enumerates(space: SpaceSubject) -> None:
    """enumerate yields every config once, in any order, and size counts them."""
    limit = 200 if space.space.builds_programs else 2000
    for rng in (None, np.random.default_rng(space.seed)):
        configs = list(islice(space.space.enumerate(rng), limit))
        if len(set(configs)) < len(configs):
            twice = next(config for config, count in Counter(configs).items() if count > 1)
            raise Breach(f"the first {len(configs)} configs contain {twice.to_json()} twice")
        if foreign_configs := [config for config in configs if config not in space.space]:
            raise Breach(f"it yields {foreign_configs[0].to_json()}, which is not a member")
        size = space.space.size(limit - 1)
        if ((size is not None and size < limit) or len(configs) < limit) and size != len(configs):
            raise Breach(f"it yields {len(configs)} configs, but size is {size}")


@rule("do not rely on the order of a set or on anything else that differs between processes", CONSISTENT)
def fingerprint(space: SpaceSubject) -> None:
    """The fingerprint, the default config and the samples for a given seed are the same in every process."""
    first, second = in_two_processes(identity, space)
    if first != second:
        different = next((a, b) for a, b in zip(first, second, strict=True) if a != b)
        raise Breach(f"one process has {different[0]}, but another has {different[1]}")


def identity(space: SpaceSubject) -> list[Any]:
    """Return the space's fingerprint, its default config and five samples, as JSON data."""
    rng = np.random.default_rng(7)
    configs = [space.space.default_config(), *(space.space.sample(rng) for _ in range(5))]
    return [space.space.fingerprint, *(config.to_json() for config in configs)]


@rule("convert scheduling errors to raise InvalidConfig(why); do not offer choices that never work", CONSISTENT)
def schedules(space: SpaceSubject) -> None:
    """schedule(config) returns a Schedule, or raises InvalidConfig with the reason; some configs have a program."""
    from tvm.s_tir import Schedule

    reasons: list[str] = []
    for config in space.samples[:16]:
        try:
            schedule: Any = space.space.schedule(config)
        except InvalidConfig as error:
            if not str(error):
                raise Breach(f"for {config.to_json()}, it raises InvalidConfig without a message") from None
            reasons.append(_reason(error))
            continue
        except Exception as error:  # TVM may raise anything
            raise Breach(
                f"for {config.to_json()}, it raises {type(error).__name__}: {_reason(error)}, at "
                f"{innermost(error, space.cls)}"
            ) from error
        if not isinstance(schedule, Schedule):
            raise Breach(f"for {config.to_json()}, it returns a {type(schedule).__name__}")
    if not space.valid:
        raise Breach(
            f"none of {len(space.samples)} random configs has a program; {space.samples[0].to_json()} is invalid "
            f"because: {reasons[0]}"
        )


def _reason(error: BaseException) -> str:
    """Return the cause of ``error``, which TVM prints after the program."""
    return last_line(error).removeprefix("Error message: ")


@rule("begin schedule with self.knobs(config), which raises InvalidConfig with the reason", SCHEDULABLE)
def refuses_others(space: SpaceSubject) -> None:
    """schedule raises InvalidConfig for a config that is not a member."""
    for config in (Config({**space.valid[0], "no such knob": 1}), Config({"no such knob": 1})):
        try:
            space.space.schedule(config)
        except InvalidConfig:
            continue
        raise Breach(f"it built a program from {config.to_json()}")


@rule("let the config alone determine the schedule, without random decisions or counters", SCHEDULABLE)
def one_program(space: SpaceSubject) -> None:
    """The same config leads to the same program."""
    fresh = space.start()
    for config in space.valid:
        first = space.space.schedule(config)
        for second in (space.space.schedule(config), fresh.schedule(config)):
            _check_equal(first, second, f"{config.to_json()} leads to a different program the second time")


@rule(
    "in __getstate__, omit objects that cannot be pickled, such as TVM's, and recreate them on demand",
    [*SCHEDULABLE, "one-program"],
)
def pickles(space: SpaceSubject) -> None:
    """A copy made with cloudpickle contains the same configs, and these lead to the same programs."""
    import cloudpickle

    copy = cloudpickle.loads(cloudpickle.dumps(space.space))
    for config in space.samples:
        if config not in copy:
            raise Breach(f"after unpickling, it no longer contains {config.to_json()}")
    for config in space.valid:
        _check_equal(space.space.schedule(config), copy.schedule(config), "the unpickled space builds another program")


@rule("start from Schedule(self.workload.module)", SCHEDULABLE)
def keeps_the_function(space: SpaceSubject) -> None:
    """The program has a function main with the workload's parameters, except that packed ones are replaced."""
    valid = space.valid  # first, because it raises NotApplicable if the space has no programs
    parameters_by_name = dict(zip(space.workload.shapes, _parameters(space.workload.module), strict=True))
    for config in valid:
        module = space.space.schedule(config).mod
        names = [variable.name_hint for variable in module.functions]
        if "main" not in names:
            raise Breach(f"{config.to_json()} leads to a program with the functions {names}, which do not include main")
        expected = []
        for name, parameter in parameters_by_name.items():
            packs = _parameters(module, PACK + name) if PACK + name in names else [parameter, parameter]
            if packs[0] != parameter:
                raise Breach(
                    f"{config.to_json()} leads to a function {PACK + name} that packs {packs[0]} instead of {parameter}"
                )
            expected += packs[1:]
        if (parameters := _parameters(module)) != expected:
            raise Breach(
                f"{config.to_json()} leads to a program with the parameters {parameters} instead of {expected}"
            )


def _parameters(module: Any, function: str = "main") -> list[str]:
    return [f"{parameter.ty.dtype}{list(parameter.ty.shape)}" for parameter in module[function].params]


@rule("call self.decide in default_config, with a function that returns one of each knob's choices", SCHEDULABLE)
def default_config(space: SpaceSubject) -> None:
    """The default config is a member of the space, has a program, and is always the same."""
    if not space.space.has_programs:
        raise NotApplicable("its configs have no programs")
    config = space.space.default_config()
    if config not in space.space:
        raise Breach(f"it is {config}, which is not a member")
    if (again := space.start().default_config()) != config:
        raise Breach(f"it first is {config} and later {again}")
    try:
        space.space.schedule(config)
    except InvalidConfig as error:
        raise Breach(f"{config} has no program: {error}", "return a config that has a program") from None


@rule("transform the workload's own PrimFunc with primitives that preserve its results", REPRODUCIBLE)
def right_answer(space: SpaceSubject) -> None:
    """Programs for a few configs build and, if this machine is the target, compute the same results as NumPy."""
    valid = space.valid  # first, as in keeps_the_function
    if not runs_here(space.target):
        _check_builds(space)
        return
    settings = LocalSettings(repeat=1, min_repeat_ms=0)
    with LocalMeasurer(settings, space.target, {}, workers=1) as measurer:
        for config, result in zip(valid, measurer.measure(space.space, valid), strict=True):
            if result.failure:
                raise Breach(f"{config.to_json()} failed with {result.failure}: {result.message}")


def runs_here(target: Target) -> bool:
    """Return whether this CPU can run programs for ``target``."""
    from tvm.target import codegen

    own_cpu = str(codegen.llvm_get_system_cpu())
    return target.kind == "llvm" and not target.is_foreign and target.spec.get("mcpu", own_cpu) == own_cpu


def _check_builds(space: SpaceSubject) -> None:
    import tvm

    target = space.target.tvm if space.target.kind == "llvm" else tvm.target.Target(space.target.tvm, host="llvm")
    for config in space.valid:
        try:
            tvm.compile(space.space.schedule(config).mod, target=target)
        except Exception as error:  # the compiler may raise anything
            raise Breach(f"{config.to_json()} does not build: {describe(error)}") from None


@rule(
    "start from Schedule(self.workload.module), and change the program only with its primitives",
    [*REPRODUCIBLE, "right-answer"],
)
def trace_replays(space: SpaceSubject) -> None:
    """Applying a program's trace to the workload's module leads to the same program."""
    from tvm.s_tir import Schedule

    for config in space.valid:
        schedule = space.space.schedule(config)
        if packed_arguments(schedule.mod):
            raise NotApplicable("its programs take arguments packed")
        fresh = Schedule(space.workload.module)
        schedule.trace.apply_to_schedule(fresh, remove_postproc=False)
        _check_equal(schedule, fresh, f"the trace for {config.to_json()} leads to a different program")


@rule("draw from your own generator, such as np.random.default_rng(0), if one is needed", SCHEDULABLE)
def global_random_state(space: SpaceSubject) -> None:
    """It neither draws from nor seeds the global random streams of Python and NumPy."""
    with global_streams(1, untouched=True):
        instance = space.start()
        instance.sample(np.random.default_rng(space.seed))
        for config in space.valid:
            instance.schedule(config)


def _check_equal(first: Schedule, second: Schedule, otherwise: str) -> None:
    from tvm_ffi import structural_equal

    if not structural_equal(first.mod, second.mod):
        raise Breach(otherwise)


RULES = rules_in(__name__)


def space_checks(
    plugin: PluginSpec, *, workload: str | Workload | None = None, target: str | Target = "native", seed: int = 0
) -> list[Check]:
    """Return the checks for a space, in order.

    Args:
        plugin: The space.
        workload: The workload for which to check the space; by default, the first of seven that the space supports.
        target: The target.
        seed: The seed for random configs.

    Raises:
        SearchlabError: If the plug-in, an option, the workload or the target is unknown.
    """
    subject = SpaceSubject.for_workload(plugin, workload, resolve_target(target), seed)
    return [Check(rule, subject) for rule in RULES]
