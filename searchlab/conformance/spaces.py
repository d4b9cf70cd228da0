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
from ..workload import PACK, Workload, parse_workload
from .check import (
    TIME_LIMIT,
    Breach,
    Check,
    NotApplicable,
    Subject,
    check_constructor,
    find_innermost_line,
    rule,
    rules_in,
    seed_global_streams,
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
        SPACES.check_options(plugin, space_class)
        return cls(plugin, space_class, seed, TIME_LIMIT, workload, target)

    @classmethod
    def for_workload(
        cls, spec: PluginSpec, workload: str | Workload | None, target: Target, seed: int = 0
    ) -> SpaceSubject:
        """Return the space for ``workload``, which defaults to the first of :data:`WORKLOADS` that it supports."""
        spellings = WORKLOADS if workload is None else [workload]
        subjects = [cls.from_spec(spec, parse_workload(spelling), target, seed) for spelling in spellings]
        for subject in subjects:
            try:
                subject.plugin_class(subject.workload, target, **subject.plugin.options)
            except UnsupportedWorkload:
                continue
            except Exception:  # a check will report it
                pass
            return subject
        return subjects[0]

    def instantiate_space(self) -> Space:
        """Instantiate the space. Raises Refused if it rejects the workload, target or options."""
        rejection_text = f"space {self.plugin.name!r} rejected {self.workload} on {self.target.kind}"
        space: Space = self.instantiate(Space, rejection_text, self.workload, self.target, **self.plugin.options)
        return space

    @cached_property
    def space(self) -> Space:
        return self.instantiate_space()

    def compute_results(self) -> list[Any]:
        """Return the space's fingerprint, its default config and five samples."""
        space, rng = self.instantiate_space(), np.random.default_rng(7)
        samples = [space.sample(rng).to_json() for _ in range(5)]
        return [{"fingerprint": space.fingerprint}, {"default config": space.default_config().to_json()}, *samples]

    @cached_property
    def samples(self) -> list[Config]:
        """Forty distinct random configs, or all configs if the space has fewer."""
        return self.space.sample_new(np.random.default_rng(self.seed), 40, ())

    @cached_property
    def valid_samples(self) -> list[Config]:
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


BASIC_RULES = ("signature", "starts", "decides")
"""The rules that must hold for all others to be meaningful."""

CONSISTENT_RULES = (*BASIC_RULES, "same-choices", "choices-differ", "plain-values", "knob-names", "members")
SCHEDULABLE_RULES = (*CONSISTENT_RULES, "schedules")
REPRODUCIBLE_RULES = (*SCHEDULABLE_RULES, "one-program", "pickles", "keeps-the-function")


@rule("give options defaults, and accept no *args or **kwargs: def __init__(self, workload, target, *, packed=True)")
def check_signature(subject: SpaceSubject) -> None:
    """The constructor accepts workload and target by position, and options by keyword; each option has a default."""
    check_constructor(subject.plugin_class, 2, requires_seed=False)


@rule("call super().__init__(workload, target) first", name="starts")
def check_can_be_instantiated(subject: SpaceSubject) -> None:
    """It can be instantiated, and stores its workload and target."""
    space = subject.space
    for name, expected in (("workload", subject.workload), ("target", subject.target)):
        if getattr(space, name, None) != expected:
            raise Breach(f"its {name} is {getattr(space, name, None)} instead of {expected}")


@rule("raise UnsupportedWorkload(text) in the constructor, before anything else", ["starts"])
def check_unfit_workloads(subject: SpaceSubject) -> None:
    """For a workload without a program, it raises UnsupportedWorkload, which lists the supported workloads."""
    for text in WORKLOADS:
        try:
            subject.plugin_class(parse_workload(text), subject.target, **subject.plugin.options)
        except UnsupportedWorkload as error:
            if not str(error):
                raise Breach(f"for {text}, it raises UnsupportedWorkload without a message") from None
        except Exception as error:  # a plug-in may raise anything
            raise Breach(f"for {text}, it raises {describe(error)}") from error


@rule("leave a choice to every later knob, whatever was chosen before", ["starts"])
def check_decides(subject: SpaceSubject) -> None:
    """decide(choose) returns a Config, whatever choose returns."""
    for config in subject.samples:
        if not isinstance(config, Config):
            raise Breach(f"it returned a {type(config).__name__}", "return Config([(knob.name, value), ...])")


@rule("make decide depend only on the choices, not on a counter, randomness or the order of a set", BASIC_RULES)
def check_same_choices(subject: SpaceSubject) -> None:
    """The same choices lead to the same knobs and the same config."""
    for rng_seed in range(20):
        first = _decide_randomly(subject.space, rng_seed)
        for second in (
            _decide_randomly(subject.space, rng_seed),
            _decide_randomly(subject.instantiate_space(), rng_seed),
        ):
            if second != first:
                number = next((i for i, (a, b) in enumerate(zip(first[0], second[0], strict=False)) if a != b), None)
                if number is None:
                    raise Breach(f"the same choices first returned {first[1]} and later {second[1]}")
                raise Breach(f"after the same choices, it asked for {second[0][number]} instead of {first[0][number]}")


def _decide_randomly(space: Space, rng_seed: int) -> tuple[list[tuple[str, list[Value]]], Config]:
    """Call ``decide`` with random choices; return the knobs' names and choices, and the config."""
    rng = np.random.default_rng(rng_seed)
    decisions: list[tuple[str, list[Value]]] = []

    def choose(knob: Knob) -> Value:
        decisions.append((knob.name, list(knob.choices)))
        return knob.choices[int(rng.integers(len(knob.choices)))]

    config = space.decide(choose)
    return decisions, config


def _iterate_choices(subject: SpaceSubject) -> Iterator[tuple[str, list[Value]]]:
    """Yield the knobs' names and choices in 20 random configs."""
    for rng_seed in range(20):
        yield from _decide_randomly(subject.space, rng_seed)[0]


@rule("remove duplicate choices; True, 1 and 1.0 are equal, so use a single type", BASIC_RULES)
def check_choices_differ(subject: SpaceSubject) -> None:
    """All choices of a knob are different."""
    for name, choices in _iterate_choices(subject):
        if duplicates := [value for value, count in Counter(choices).items() if count > 1]:
            equal_choices = [value for value in choices if value == duplicates[0]]
            raise Breach(f"knob {name!r} has the equal choices {equal_choices}")


@rule("convert NumPy numbers with int(...) or .tolist(); represent tiles as tuples of whole numbers", BASIC_RULES)
def check_plain_values(subject: SpaceSubject) -> None:
    """A choice is a bool, int, float, str or tuple of ints, and a config survives a round trip through JSON."""
    for name, choices in _iterate_choices(subject):
        for value in choices:
            factors = value if type(value) is tuple else ()
            if type(value) not in (bool, int, float, str, tuple) or any(type(factor) is not int for factor in factors):
                raise Breach(f"knob {name!r} has the choice {value!r}, a {type(value).__name__}")
    for config in subject.samples:
        copy = Config(json.loads(json.dumps(config.to_json())))
        if copy != config:
            raise Breach(f"{config} becomes {copy} when read back")


@rule("give each knob a unique name", BASIC_RULES)
def check_knob_names(subject: SpaceSubject) -> None:
    """Each knob has a name, and no two knobs in a config have the same name."""
    for rng_seed in range(20):
        decisions, _ = _decide_randomly(subject.space, rng_seed)
        for name, count in Counter(name for name, _ in decisions).items():
            if count > 1 or not isinstance(name, str) or not name:
                raise Breach(f"a config has {count} knobs called {name!r}")


@rule(
    "return a Config with each knob's name and the value that choose returned, in the order of the calls",
    [*BASIC_RULES, "same-choices", "choices-differ", "plain-values", "knob-names"],
)
def check_members(subject: SpaceSubject) -> None:
    """The config contains the chosen values, in order, and is a member of the space."""
    for rng_seed in range(20):
        decisions, config = _decide_randomly(subject.space, rng_seed)
        if list(config) != [name for name, _ in decisions]:
            raise Breach(f"it asked for {[name for name, _ in decisions]} but returned {config}")
        try:
            subject.space.knobs(config)
        except InvalidConfig as error:
            raise Breach(f"it returned {config.to_json()}, which is not a member: {error}") from None
    if Config({**subject.samples[0], "no such knob": 1}) in subject.space:
        raise Breach("a config with an unknown knob counts as a member")


@rule(
    "end overrides of mutate, crossover and neighbours with self.repair(values, rng), or remove them", CONSISTENT_RULES
)
def check_stays_inside(subject: SpaceSubject) -> None:
    """Mutation, crossover and neighbours stay in the space."""
    space, rng = subject.space, np.random.default_rng(subject.seed)
    pairs = list(pairwise(subject.samples)) or [(subject.samples[0], subject.samples[0])]
    for a, b in pairs[:20]:
        results = [("mutate", space.mutate(a, rng)), ("crossover", space.crossover(a, b, rng))]
        results += [("neighbours", config) for config in islice(space.neighbours(a, rng), 5)]
        for method, config in results:
            if config not in space:
                raise Breach(f"{method} turns {a.to_json()} into {config.to_json()}, which is not a member")


@rule("leave enumerate and size to the base class", CONSISTENT_RULES)
def check_enumerates(subject: SpaceSubject) -> None:
    """enumerate yields every config once, in any order, and size counts them."""
    limit = 200 if subject.space.builds_programs else 2000
    for rng in (None, np.random.default_rng(subject.seed)):
        configs = list(islice(subject.space.enumerate(rng), limit))
        if len(set(configs)) < len(configs):
            duplicate = next(config for config, count in Counter(configs).items() if count > 1)
            raise Breach(f"the first {len(configs)} configs contain {duplicate.to_json()} twice")
        if foreign_configs := [config for config in configs if config not in subject.space]:
            raise Breach(f"it yields {foreign_configs[0].to_json()}, which is not a member")
        size = subject.space.size(limit - 1)
        if ((size is not None and size < limit) or len(configs) < limit) and size != len(configs):
            raise Breach(f"it yields {len(configs)} configs, but size is {size}")


@rule("do not rely on the order of a set or on anything else that differs between processes", CONSISTENT_RULES)
def check_fingerprint(subject: SpaceSubject) -> None:
    """The fingerprint, the default config and the samples for a given seed are the same in every process."""
    subject.require_same_in_every_process()


@rule("convert scheduling errors to raise InvalidConfig(why); do not offer choices that never work", CONSISTENT_RULES)
def check_schedules(subject: SpaceSubject) -> None:
    """schedule(config) returns a Schedule, or raises InvalidConfig with the reason; some configs have a program."""
    from tvm.s_tir import Schedule

    reasons: list[str] = []
    for config in subject.samples[:16]:
        try:
            schedule: Any = subject.space.schedule(config)
        except InvalidConfig as error:
            if not str(error):
                raise Breach(f"for {config.to_json()}, it raises InvalidConfig without a message") from None
            reasons.append(_find_cause(error))
            continue
        except Exception as error:  # TVM may raise anything
            raise Breach(
                f"for {config.to_json()}, it raises {type(error).__name__}: {_find_cause(error)}, at "
                f"{find_innermost_line(error, subject.plugin_class)}"
            ) from error
        if not isinstance(schedule, Schedule):
            raise Breach(f"for {config.to_json()}, it returns a {type(schedule).__name__}")
    if not subject.valid_samples:
        raise Breach(
            f"none of {len(subject.samples)} random configs has a program; {subject.samples[0].to_json()} is invalid "
            f"because: {reasons[0]}"
        )


def _find_cause(error: BaseException) -> str:
    """Return the cause of ``error``, which TVM prints after the program."""
    return last_line(error).removeprefix("Error message: ")


@rule("begin schedule with self.knobs(config), which raises InvalidConfig with the reason", SCHEDULABLE_RULES)
def check_refuses_others(subject: SpaceSubject) -> None:
    """schedule raises InvalidConfig for a config that is not a member."""
    for config in (Config({**subject.valid_samples[0], "no such knob": 1}), Config({"no such knob": 1})):
        try:
            subject.space.schedule(config)
        except InvalidConfig:
            continue
        raise Breach(f"it built a program from {config.to_json()}")


@rule("let the config alone determine the schedule, without random decisions or counters", SCHEDULABLE_RULES)
def check_one_program(subject: SpaceSubject) -> None:
    """The same config leads to the same program."""
    new_space = subject.instantiate_space()
    for config in subject.valid_samples:
        first = subject.space.schedule(config)
        for second in (subject.space.schedule(config), new_space.schedule(config)):
            _require_equal(first, second, f"{config.to_json()} leads to a different program the second time")


@rule(
    "in __getstate__, omit objects that cannot be pickled, such as TVM's, and recreate them on demand",
    [*SCHEDULABLE_RULES, "one-program"],
)
def check_pickles(subject: SpaceSubject) -> None:
    """A copy made with cloudpickle contains the same configs, and these lead to the same programs."""
    import cloudpickle

    copy = cloudpickle.loads(cloudpickle.dumps(subject.space))
    for config in subject.samples:
        if config not in copy:
            raise Breach(f"after unpickling, it no longer contains {config.to_json()}")
    for config in subject.valid_samples:
        _require_equal(
            subject.space.schedule(config), copy.schedule(config), "the unpickled space builds another program"
        )


@rule("start from Schedule(self.workload.module)", SCHEDULABLE_RULES)
def check_keeps_the_function(subject: SpaceSubject) -> None:
    """The program has a function main with the workload's parameters, except that packed ones are replaced."""
    valid_samples = subject.valid_samples  # first, because it raises NotApplicable if the space has no programs
    parameters_by_name = dict(zip(subject.workload.shapes, _list_parameter_types(subject.workload.module), strict=True))
    for config in valid_samples:
        module = subject.space.schedule(config).mod
        function_names = [variable.name_hint for variable in module.functions]
        if "main" not in function_names:
            raise Breach(
                f"{config.to_json()} leads to a program with the functions {function_names}, which do not include main"
            )
        expected = []
        for name, parameter in parameters_by_name.items():
            packed_parameters = (
                _list_parameter_types(module, PACK + name) if PACK + name in function_names else [parameter, parameter]
            )
            if packed_parameters[0] != parameter:
                raise Breach(
                    f"{config.to_json()} leads to a function {PACK + name} that packs {packed_parameters[0]} "
                    f"instead of {parameter}"
                )
            expected += packed_parameters[1:]
        if (parameters := _list_parameter_types(module)) != expected:
            raise Breach(
                f"{config.to_json()} leads to a program with the parameters {parameters} instead of {expected}"
            )


def _list_parameter_types(module: Any, function: str = "main") -> list[str]:
    return [f"{parameter.ty.dtype}{list(parameter.ty.shape)}" for parameter in module[function].params]


@rule("call self.decide in default_config, with a function that returns one of each knob's choices", SCHEDULABLE_RULES)
def check_default_config(subject: SpaceSubject) -> None:
    """The default config is a member of the space, has a program, and is always the same."""
    if not subject.space.has_programs:
        raise NotApplicable("its configs have no programs")
    config = subject.space.default_config()
    if config not in subject.space:
        raise Breach(f"it is {config}, which is not a member")
    if (second_config := subject.instantiate_space().default_config()) != config:
        raise Breach(f"it first is {config} and later {second_config}")
    try:
        subject.space.schedule(config)
    except InvalidConfig as error:
        raise Breach(f"{config} has no program: {error}", "return a config that has a program") from None


@rule("transform the workload's own PrimFunc with primitives that preserve its results", REPRODUCIBLE_RULES)
def check_right_answer(subject: SpaceSubject) -> None:
    """Programs for a few configs build and, if this machine is the target, compute the same results as NumPy."""
    valid_samples = subject.valid_samples  # first, as in check_keeps_the_function
    if not can_run_here(subject.target):
        _require_builds(subject)
        return
    settings = LocalSettings(repeat=1, min_repeat_ms=0)
    with LocalMeasurer(settings, subject.target, {}, workers=1) as measurer:
        for config, result in zip(valid_samples, measurer.measure(subject.space, valid_samples), strict=True):
            if result.failure:
                raise Breach(f"{config.to_json()} failed with {result.failure}: {result.message}")


def can_run_here(target: Target) -> bool:
    """Return whether this CPU can run programs for ``target``."""
    from tvm.target import codegen

    own_cpu = str(codegen.llvm_get_system_cpu())
    return target.kind == "llvm" and not target.is_foreign and target.spec.get("mcpu", own_cpu) == own_cpu


def _require_builds(subject: SpaceSubject) -> None:
    import tvm

    target = subject.target.tvm if subject.target.kind == "llvm" else tvm.target.Target(subject.target.tvm, host="llvm")
    for config in subject.valid_samples:
        try:
            tvm.compile(subject.space.schedule(config).mod, target=target)
        except Exception as error:  # the compiler may raise anything
            raise Breach(f"{config.to_json()} does not build: {describe(error)}") from None


@rule(
    "start from Schedule(self.workload.module), and change the program only with its primitives; "
    "if that is impossible, return Schedule._create_non_traced(module)",
    [*REPRODUCIBLE_RULES, "right-answer"],
)
def check_trace_replays(subject: SpaceSubject) -> None:
    """Applying a program's trace, if it has one, to the workload's module leads to the same program."""
    from tvm.s_tir import Schedule

    schedules_by_config = {config: subject.space.schedule(config) for config in subject.valid_samples}
    if all(schedule.trace is None for schedule in schedules_by_config.values()):
        raise NotApplicable("its programs have no traces")
    for config, schedule in schedules_by_config.items():
        if schedule.trace is None:
            continue
        replayed_schedule = Schedule(subject.workload.module)
        schedule.trace.apply_to_schedule(replayed_schedule, remove_postproc=False)
        _require_equal(schedule, replayed_schedule, f"the trace for {config.to_json()} leads to a different program")


@rule("draw from your own generator, such as np.random.default_rng(0), if one is needed", SCHEDULABLE_RULES)
def check_global_random_state(subject: SpaceSubject) -> None:
    """It neither draws from nor seeds the global random streams of Python and NumPy."""
    with seed_global_streams(1, must_be_untouched=True):
        space = subject.instantiate_space()
        space.sample(np.random.default_rng(subject.seed))
        for config in subject.valid_samples:
            space.schedule(config)


def _require_equal(first: Schedule, second: Schedule, breach_text: str) -> None:
    from tvm_ffi import structural_equal

    if not structural_equal(first.mod, second.mod):
        raise Breach(breach_text)


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
