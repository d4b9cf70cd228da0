"""The rules of :class:`~searchlab.space.Space`, one small function each."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InvalidConfig, UnsupportedWorkload, described, last_line
from ..measure.local import LocalMeasurer
from ..measure.settings import LocalSettings
from ..space import Config, Knob, ProductSpace, Space, Value
from ..target import Target
from ..workload import parse_workload
from .check import Breach, NotApplicable, innermost, rule
from .probes import check_constructor, global_streams, global_streams_untouched, in_two_processes
from .subjects import SpaceSubject

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

WORKLOADS = (
    "gemm:64x64x64", "gemm:37x53x29:bias:relu", "gemm:32x64x16:float64", "gemm:1x1x1",
    "conv2d:1x9x9x16x8x3x3:p1:bias:relu", "conv2d:2x7x8x12x6x3x2:s2x1:p1x0:d2x1", "conv2d:1x5x5x32x16x1x1",
)  # fmt: skip
"""Workloads that a space is tried on. It takes some of them, and raises UnsupportedWorkload for the others."""

RUNS = ("signature", "starts", "decides")
KNOWN = (*RUNS, "same-choices", "choices-differ", "plain-values", "knob-names", "members")
PROGRAMS = (*KNOWN, "schedules")
RIGHT = (*PROGRAMS, "one-program", "pickles", "keeps-the-function")


@rule("give every option a default, take no *args or **kwargs: def __init__(self, workload, target, *, packed=True)")
def signature(space: SpaceSubject) -> None:
    """The constructor takes (workload, target, and options by name, each with a default)."""
    check_constructor(space.cls, 2, seeded=False)


@rule("call super().__init__(workload, target) first")
def starts(space: SpaceSubject) -> None:
    """It starts, and knows its workload and target."""
    instance = space.space
    for name, given in (("workload", space.workload), ("target", space.target)):
        if getattr(instance, name, None) != given:
            raise Breach(f"its {name} is {getattr(instance, name, None)}, not {given}")


@rule("raise UnsupportedWorkload(text) in the constructor, before anything else is done", ["starts"])
def unfit_workloads(space: SpaceSubject) -> None:
    """For a workload without a program it raises UnsupportedWorkload, and says which workloads it takes."""
    for text in WORKLOADS:
        try:
            space.cls(parse_workload(text), space.target, **space.plugin.options)
        except UnsupportedWorkload as error:
            if not str(error):
                raise Breach(f"for {text} it raises UnsupportedWorkload without a text") from None
        except Exception as error:  # a plug-in may raise anything
            raise Breach(f"for {text} it raises {described(error)}") from error


@rule("look at the line: whatever was chosen, every knob that follows has a choice", ["starts"])
def decides(space: SpaceSubject) -> None:
    """decide(choose) gives a Config, whatever choose returns."""
    for config in space.samples:
        if not isinstance(config, Config):
            raise Breach(f"it made a {type(config).__name__}", "return Config([(knob.name, value), ...])")


@rule("decide by the choices alone: no counter, no random stream, no set without an order", RUNS)
def same_choices(space: SpaceSubject) -> None:
    """The same choices lead to the same knobs, and to the same config."""
    for rng_seed in range(20):
        first = _decided(space.space, rng_seed)
        for again in (_decided(space.space, rng_seed), _decided(space.start(), rng_seed)):
            if again != first:
                number = next((i for i, (a, b) in enumerate(zip(first[0], again[0], strict=False)) if a != b), None)
                if number is None:
                    raise Breach(f"the same choices made {first[1]} first, and {again[1]} later")
                raise Breach(
                    f"after the same choices it asked for {again[0][number]}, and before for {first[0][number]}"
                )


def _decided(space: Space, rng_seed: int) -> tuple[list[tuple[str, list[Value]]], Config]:
    """The knobs of a random decision, and the config that it made."""
    rng = np.random.default_rng(rng_seed)
    asked: list[tuple[str, list[Value]]] = []

    def choose(knob: Knob) -> Value:
        asked.append((knob.name, list(knob.choices)))
        return knob.choices[int(rng.integers(len(knob.choices)))]

    config = space.decide(choose)
    return asked, config


def _asked(space: SpaceSubject) -> Iterator[list[tuple[str, list[Value]]]]:
    for rng_seed in range(20):
        yield _decided(space.space, rng_seed)[0]


@rule("leave out the second of two equal choices; True, 1 and 1.0 are equal, so keep to one kind", RUNS)
def choices_differ(space: SpaceSubject) -> None:
    """The choices of a knob differ."""
    for asked in _asked(space):
        for name, choices in asked:
            if twice := [value for value, count in Counter(choices).items() if count > 1]:
                same = [value for value in choices if value == twice[0]]
                raise Breach(f"knob {name!r} has the equal choices {same}")


@rule("turn numpy's numbers into plain ones with int(...) or .tolist(); make a tile a tuple of whole numbers", RUNS)
def plain_values(space: SpaceSubject) -> None:
    """A choice is a bool, int, float, str or tuple of ints, and a config is the same when read back from JSON."""
    for asked in _asked(space):
        for name, choices in asked:
            for value in choices:
                parts = value if type(value) is tuple else ()
                if type(value) not in (bool, int, float, str, tuple) or any(type(part) is not int for part in parts):
                    raise Breach(f"knob {name!r} has the choice {value!r}, a {type(value).__name__}")
    for config in space.samples:
        again = Config(json.loads(json.dumps(config.to_json())))
        if again != config:
            raise Breach(f"{config} is {again} when read back")


@rule("give each knob a name of its own, a word", RUNS)
def knob_names(space: SpaceSubject) -> None:
    """Each knob has a name, and no two knobs of a config have the same name."""
    for asked in _asked(space):
        for name, count in Counter(name for name, _ in asked).items():
            if count > 1 or not isinstance(name, str) or not name:
                raise Breach(f"one config has {count} knobs that are called {name!r}")


@rule(
    "return Config with each knob's name and the very value that choose gave, in the order that they were asked for",
    [*RUNS, "same-choices", "knob-names"],
)
def members(space: SpaceSubject) -> None:
    """A decided config holds what was chosen, in order, and is a member of the space."""
    for rng_seed in range(20):
        asked, config = _decided(space.space, rng_seed)
        if list(config) != [name for name, _ in asked]:
            raise Breach(f"it asked for {[name for name, _ in asked]} and made {config}")
        try:
            space.space.knobs(config)
        except InvalidConfig as error:
            raise Breach(f"it made {config.to_json()}, which is no member: {error}") from None
    if Config({**space.samples[0], "no such knob": 1}) in space.space:
        raise Breach("a config with a knob that is not asked for counts as a member")


@rule("end an override of mutate, crossover or neighbours with self.repaired(wanted, rng), or have none", KNOWN)
def stays_inside(space: SpaceSubject) -> None:
    """Mutation, crossover and neighbours stay in the space."""
    instance, rng = space.space, np.random.default_rng(space.seed)
    pairs = list(pairwise(space.samples)) or [(space.samples[0], space.samples[0])]
    for a, b in pairs[:20]:
        ways = [("mutate", instance.mutate(a, rng)), ("crossover", instance.crossover(a, b, rng))]
        ways += [("neighbours", config) for config in islice(instance.neighbours(a, rng), 5)]
        for way, config in ways:
            if config not in instance:
                raise Breach(f"{way} turns {a.to_json()} into {config.to_json()}, which is no member")


@rule("leave enumerate and size to the base class", KNOWN)
def enumerates(space: SpaceSubject) -> None:
    """enumerate gives every config once, in any order, and as many configs as size says."""
    limit = 200 if space.space.builds_programs else 2000
    for rng in (None, np.random.default_rng(space.seed)):
        configs = list(islice(space.space.enumerate(rng), limit))
        if len(set(configs)) < len(configs):
            twice = next(config for config, count in Counter(configs).items() if count > 1)
            raise Breach(f"the first {len(configs)} configs hold {twice.to_json()} twice")
        if outside := [config for config in configs if config not in space.space]:
            raise Breach(f"it gives {outside[0].to_json()}, which is no member")
        size = space.space.size(limit - 1)
        if ((size is not None and size < limit) or len(configs) < limit) and size != len(configs):
            raise Breach(f"it gives {len(configs)} configs, and says that there are {size}")


@rule("leave index_of and config_at to ProductSpace", KNOWN)
def index(space: SpaceSubject) -> None:
    """In a ProductSpace, index_of(config_at(i)) is i, and every other config has another index."""
    product = space.space
    if not isinstance(product, ProductSpace):
        raise NotApplicable("it is no ProductSpace")
    if product.size() < product.range_length:
        raise NotApplicable("it leaves out some of its product")
    indices = np.random.default_rng(space.seed).integers(product.size(), size=50).tolist()
    for number in {0, product.size() - 1, *indices}:
        config = product.config_at(number)
        if product.index_of(config) != number:
            raise Breach(f"config_at({number}) is {config.to_json()}, whose index_of is {product.index_of(config)}")


@rule("use no order of a set, and nothing that differs between processes", KNOWN)
def fingerprint(space: SpaceSubject) -> None:
    """Every process gives the space the same fingerprint, and samples the same from a seed."""
    first, second = in_two_processes(_identity, space)
    if first != second:
        different = next((a, b) for a, b in zip(first, second, strict=True) if a != b)
        raise Breach(f"one process has {different[0]} where another has {different[1]}")


def _identity(space: SpaceSubject) -> list[Any]:
    rng = np.random.default_rng(7)
    return [space.space.fingerprint, *(space.space.sample(rng).to_json() for _ in range(5))]


@rule(
    "in __getstate__ leave out what does not pickle, TVM's objects above all, and make it anew when it is asked for",
    [*PROGRAMS, "one-program"],
)
def pickles(space: SpaceSubject) -> None:
    """cloudpickle carries it to a measuring process, and there it makes the same of a config."""
    import cloudpickle

    again = cloudpickle.loads(cloudpickle.dumps(space.space))
    for config in space.samples:
        if config not in again:
            raise Breach(f"unpickled, it no longer holds {config.to_json()}")
    for config in space.valid:
        _check_equal(space.space.schedule(config), again.schedule(config), "the unpickled space makes another program")


@rule(
    "turn what the schedule refuses into raise InvalidConfig(why); choices that never work should not be offered", KNOWN
)
def schedules(space: SpaceSubject) -> None:
    """schedule(config) gives a Schedule, or raises InvalidConfig saying why; and some configs make a program."""
    from tvm.s_tir import Schedule

    for config in space.samples[:16]:
        try:
            schedule: Any = space.space.schedule(config)
        except InvalidConfig as error:
            if not str(error):
                raise Breach(f"for {config.to_json()} it raises InvalidConfig without a text") from None
            continue
        except Exception as error:  # TVM may raise anything
            raise Breach(
                f"for {config.to_json()} it raises {type(error).__name__}: {_reason(error)}, raised at "
                f"{innermost(error, space.cls)}"
            ) from error
        if not isinstance(schedule, Schedule):
            raise Breach(f"for {config.to_json()} it gives a {type(schedule).__name__}")
    if not space.valid:
        config = space.samples[0]
        try:
            space.space.schedule(config)
        except InvalidConfig as error:
            raise Breach(
                f"none of {len(space.samples)} random configs makes a program; {config.to_json()} does not because: "
                f"{_reason(error)}"
            ) from None


def _reason(error: BaseException) -> str:
    """The cause of ``error``: TVM shows the program first."""
    return last_line(error).removeprefix("Error message: ")


@rule("begin schedule with self.knobs(config), which raises InvalidConfig and says why", PROGRAMS)
def refuses_others(space: SpaceSubject) -> None:
    """schedule raises InvalidConfig for a config that is no member."""
    for config in (Config({**space.valid[0], "no such knob": 1}), Config({"no such knob": 1})):
        try:
            space.space.schedule(config)
        except InvalidConfig:
            continue
        raise Breach(f"it made a program from {config.to_json()}")


@rule("schedule by the config alone: no random decisions inside, no counter", PROGRAMS)
def one_program(space: SpaceSubject) -> None:
    """The same config makes the same program."""
    fresh = space.start()
    for config in space.valid:
        first = space.space.schedule(config)
        for again in (space.space.schedule(config), fresh.schedule(config)):
            _check_equal(first, again, f"{config.to_json()} makes another program when asked again")


@rule("start from Schedule(self.workload.module)", PROGRAMS)
def keeps_the_function(space: SpaceSubject) -> None:
    """The program is still the function main, with the workload's parameters."""
    valid = space.valid
    expected = _parameters(space.workload.module)
    for config in valid:
        module = space.space.schedule(config).mod
        names = [variable.name_hint for variable in module.functions]
        if "main" not in names:
            raise Breach(f"{config.to_json()} makes a program with the functions {names}, and without main")
        if (parameters := _parameters(module)) != expected:
            raise Breach(f"{config.to_json()} makes a program with the parameters {parameters}, not {expected}")


def _parameters(module: Any) -> list[str]:
    function = module["main"]
    return [f"{parameter.ty.dtype}{list(parameter.ty.shape)}" for parameter in function.params]


@rule("transform the workload's own PrimFunc by primitives that keep what it computes", RIGHT)
def right_answer(space: SpaceSubject) -> None:
    """The programs of a few configs build, and on this machine's own target they run and compute what numpy does."""
    if not runs_here(space.target):
        _check_builds(space)
        return
    settings = LocalSettings(repeat=1, min_repeat_ms=0)
    with LocalMeasurer(settings, space.target, {}, workers=1) as measurer:
        for config, result in zip(space.valid, measurer.measure(space.space, space.valid), strict=True):
            if result.failure:
                raise Breach(f"{config.to_json()} ends as {result.failure}: {result.message}")


def runs_here(target: Target) -> bool:
    """Whether this CPU runs what is built for ``target``."""
    from tvm.target import codegen

    here = str(codegen.llvm_get_system_cpu())
    return target.kind == "llvm" and not target.is_foreign and target.spec.get("mcpu", here) == here


def _check_builds(space: SpaceSubject) -> None:
    import tvm

    valid = space.valid
    target = space.target.tvm if space.target.kind == "llvm" else tvm.target.Target(space.target.tvm, host="llvm")
    for config in valid:
        try:
            tvm.compile(space.space.schedule(config).mod, target=target)
        except Exception as error:  # the compiler may raise anything
            raise Breach(f"{config.to_json()} does not build: {described(error)}") from None


@rule(
    "start from Schedule(self.workload.module), and change the program by its primitives alone",
    [*RIGHT, "right-answer"],
)
def trace_replays(space: SpaceSubject) -> None:
    """The trace of a program, applied to the workload again, makes the same program."""
    from tvm.s_tir import Schedule

    for config in space.valid:
        schedule = space.space.schedule(config)
        fresh = Schedule(space.workload.module)
        schedule.trace.apply_to_schedule(fresh, remove_postproc=False)
        _check_equal(schedule, fresh, f"the trace of {config.to_json()} makes another program")


@rule("draw from a stream of your own; np.random.default_rng(0) where one is needed", PROGRAMS)
def global_random_state(space: SpaceSubject) -> None:
    """It neither draws from the global random streams of Python and numpy, nor sets their seeds."""
    with global_streams(1), global_streams_untouched():
        instance = space.start()
        instance.sample(np.random.default_rng(space.seed))
        for config in space.valid:
            instance.schedule(config)


def _check_equal(first: Schedule, second: Schedule, otherwise: str) -> None:
    from tvm_ffi import structural_equal

    if not structural_equal(first.mod, second.mod):
        raise Breach(otherwise)


RULES = (
    signature, starts, unfit_workloads, decides, same_choices, choices_differ, plain_values, knob_names, members,
    stays_inside, enumerates, index, fingerprint, schedules, refuses_others, one_program, pickles, keeps_the_function,
    right_answer, trace_replays, global_random_state,
)  # fmt: skip
