"""Policy checks: a function for each rule in the contract of :class:`~searchlab.policy.Policy`."""

from __future__ import annotations

import inspect
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..costmodel import COST_MODELS, BoundCostModel, make_cost_model
from ..costmodel.features import make_features
from ..errors import InvalidConfig, SearchlabError
from ..plugins import Plugin, PluginSpec
from ..policy import POLICIES, Policy, Traits
from ..records import Trial
from ..space import Config
from ..target import Target, resolve_target
from ..workload import Workload, parse_workload
from . import toys
from .check import (
    TIME_LIMIT,
    Breach,
    Check,
    NotApplicable,
    Subject,
    check_constructor,
    global_streams,
    in_two_processes,
    other_clock,
    rule,
    rules_in,
)
from .spaces import SpaceSubject
from .toys import Cost, all_equal, all_invalid, flaky, run, smooth, successful_measurement, trials_of

TINY_WORKLOADS = ("gemm:2x2x1", "gemm:2x1x1", "gemm:1x1x1", "conv2d:1x2x2x2x1x1x1", "conv2d:1x1x1x1x1x1x1")
"""Workloads for which a space is likely to be small enough to be exhausted."""

MAX_SIZE_TO_EXHAUST = 100
"""The maximum number of configs in a space that a policy must exhaust."""


@dataclass(frozen=True)
class PolicySubject(Subject):
    """A policy, the spaces in which to check it, and the cost model that it receives if it uses one.

    Attributes:
        small: The spaces that it must exhaust.
    """

    spaces: Mapping[str, SpaceSubject]
    small: Mapping[str, SpaceSubject]
    cost_model: Plugin
    features: str

    @property
    def traits(self) -> Traits:
        # A class that is not a Policy declares nothing; another check reports it.
        return self.cls.traits if issubclass(self.cls, Policy) else Traits()

    def start(self, subject: SpaceSubject, seed: int | None = None) -> Policy:
        """Instantiate the policy. Raises Refused if it rejects the space or the options."""
        seed = self.seed if seed is None else seed
        options = dict(self.plugin.options)
        if self.traits.takes_cost_model:
            model = make_cost_model(self.cost_model, seed)
            options["cost_model"] = BoundCostModel(model, make_features(self.features, subject.space))
        rejection = (
            f"policy {self.plugin.name!r} cannot start in space {subject.plugin.name!r} (if it supports only certain "
            f"spaces, specify one, as in: --space sketch --workload gemm:64x64x64)"
        )
        policy: Policy = self.make(Policy, rejection, subject.space, seed=seed, **options)
        return policy

    def run(
        self, subject: SpaceSubject, cost: Cost = flaky, *, seed: int | None = None, trials: int = 32
    ) -> list[Trial]:
        """Run a new instance in batches of eight. Every run seeds the global random streams with the same seed."""
        with global_streams(0):
            return run(self.start(subject, seed), cost, trials)

    @cached_property
    def runs(self) -> dict[str, list[Trial]]:
        """A normal run in each of ``spaces``."""
        return {name: self.run(subject) for name, subject in self.spaces.items()}


BASIC = ("signature", "starts", "runs")
"""The rules that must hold for all others to be meaningful."""

WARM_STARTS = (*BASIC, "warm-start")
SEEDED = (*BASIC, "same-seed", "global-random-state")


@rule("give every option a default, and accept no *args or **kwargs: def __init__(self, space, *, seed, pull=0.1)")
def signature(policy: PolicySubject) -> None:
    """The constructor accepts space by position, and seed and options by keyword; each option has a default."""
    check_constructor(policy.cls, 1, seeded=True)
    if "cost_model" in inspect.signature(policy.cls).parameters and not policy.traits.takes_cost_model:
        raise Breach(
            "its constructor accepts a cost_model, but the class does not declare this and therefore receives none",
            "declare it: class Mine(NeverTwice, takes_cost_model=True)",
        )


@rule("handle every space: it may have only a single config, or even no knobs")
def starts(policy: PolicySubject) -> None:
    """It can be instantiated in every space."""
    for subject in (*policy.spaces.values(), *policy.small.values()):
        policy.start(subject)


@rule("follow the contract: ask(n) returns a list of configs, and tell(trials) accepts a list of trials", ["starts"])
def runs(policy: PolicySubject) -> None:
    """It proposes and learns, batch after batch."""
    for name, trials in policy.runs.items():
        if not trials:
            raise Breach(
                f"its first ask in space {policy.spaces[name].plugin.name!r} returned nothing, which ends a run"
            )


@rule("create configs with space.sample, space.mutate, space.crossover or space.repair, not by hand", BASIC)
def members(policy: PolicySubject) -> None:
    """Every proposal is a Config whose values are choices of its space, with the same types: 64.0 is not 64."""
    for name, trials in policy.runs.items():
        space = policy.spaces[name].space
        for trial in trials:
            config: Any = trial.config
            if not isinstance(config, Config):
                raise Breach(f"it proposed {config!r}, a {type(config).__name__}")
            try:
                space.knobs(config)
            except InvalidConfig as error:
                raise Breach(f"it proposed {config.to_json()}: {error}") from None


@rule("limit the batch to n configs: list(islice(proposals, n)); return [] if n is 0", BASIC)
def batch_size(policy: PolicySubject) -> None:
    """ask(n) returns at most n configs."""
    for n in (8, 1, 0, 40, 7):
        instance = policy.start(policy.spaces["large"])
        for _ in range(2):
            count = len(instance.ask(n))
            if count > n:
                raise Breach(f"ask({n}) returned {count} configs")


@rule("keep a set of all configs proposed or told, or derive from searchlab.NeverTwice, which does this", BASIC)
def no_repeats(policy: PolicySubject) -> None:
    """It never proposes a config twice, even before it is told the first trial."""
    for trials in policy.runs.values():
        _check_repeats([trial.config for trial in trials])
    for subject in policy.spaces.values():
        instance = policy.start(subject)
        _check_repeats([config for _ in range(4) for config in instance.ask(5)])


def _check_repeats(configs: Sequence[Config]) -> None:
    first: dict[Config, int] = {}
    for number, config in enumerate(configs):
        if config in first:
            raise Breach(f"proposal {number} repeats proposal {first[config]}: {config.to_json()}")
        first[config] = number


@rule('draw from searchlab.policy.private_rng(seed, "a tag", ...); an unseeded default_rng() differs each time', BASIC)
def same_seed(policy: PolicySubject) -> None:
    """The same seed and measurements give the same proposals."""
    for name, subject in policy.spaces.items():
        _check_same(policy.runs[name], policy.run(subject), "with the same seed")


@rule('draw from your own generator: searchlab.policy.private_rng(seed, "a tag", ...)', [*BASIC, "same-seed"])
def global_random_state(policy: PolicySubject) -> None:
    """It neither draws from nor seeds the global random streams of Python and NumPy."""
    subject = policy.spaces["large"]
    for seed in (1, 2):
        with global_streams(seed, untouched=True):
            trials = run(policy.start(subject), flaky, 32)
        _check_same(policy.runs["large"], trials, "with different global random streams")


@rule("seed the random stream with the policy's seed; if the policy is not random, declare uses_seed=False", SEEDED)
def other_seed(policy: PolicySubject) -> None:
    """A different seed leads to different proposals, unless the class declares uses_seed=False."""
    first = _configs(policy.runs["large"])
    differs = any(_configs(policy.run(policy.spaces["large"], seed=policy.seed + i)) != first for i in (1, 2))
    if policy.traits.uses_seed and not differs:
        raise Breach(f"the first {len(first)} proposals are the same for three different seeds")
    if not policy.traits.uses_seed and differs:
        raise Breach("it declares uses_seed=False, but its proposals depend on the seed", "omit uses_seed")


@rule("limit the search by steps, not by seconds; do not derive seeds or decisions from the time", SEEDED)
def clock(policy: PolicySubject) -> None:
    """Its proposals do not depend on the clock."""
    with other_clock(policy.cls):
        trials = policy.run(policy.spaces["large"])
    _check_same(policy.runs["large"], trials, "with a clock that runs a thousand times as fast")


@rule("sort sets before iterating over them, or use an ordered dict; compute sums in one thread", SEEDED)
def every_process(policy: PolicySubject) -> None:
    """Its proposals are the same in every process, for any hash seed and number of threads."""
    first, second = in_two_processes(proposals, policy)
    if first != second:
        number = next(i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
        raise Breach(f"proposal {number} is {first[number]} in one process, but {second[number]} in another")


def proposals(policy: PolicySubject) -> list[dict[str, Any]]:
    """Return the proposals of a short run in each of the policy's spaces, as JSON data."""
    return [trial.config.to_json() for subject in policy.spaces.values() for trial in policy.run(subject, trials=24)]


@rule("copy lists before changing them: write self.trials += trials instead of self.trials = trials", BASIC)
def leaves_what_it_is_told(policy: PolicySubject) -> None:
    """It does not modify the trials that it is told, or the lists that contain them."""
    instance = policy.start(policy.spaces["large"])
    batches: list[tuple[list[Trial], list[Trial]]] = []
    for batch in range(4):
        trials = trials_of(instance.ask(8), flaky, 8 * batch)
        batches.append((trials, [Trial(trial.index, Config(trial.config), trial.measurement) for trial in trials]))
        instance.tell(trials)
        for trials, before in batches:
            if trials != before:
                raise Breach(
                    f"it modified the list of {len(before)} trials passed to tell, which now contains {len(trials)}"
                )


@rule("accept every trial in warm_start, which calls tell by default, and do not propose these configs again", BASIC)
def warm_start(policy: PolicySubject) -> None:
    """It learns from another run's trials and does not propose their configs again."""
    for subject in policy.spaces.values():
        earlier = trials_of(subject.space.sample_new(np.random.default_rng(9), 40, ()), flaky)
        instance = policy.start(subject)
        instance.warm_start(list(earlier))
        size = subject.space.size(64)
        trials = run(instance, flaky, 24)
        if not trials and (size is None or size > len(earlier)) and not policy.traits.stops:
            raise Breach(f"after a warm start with {len(earlier)} trials in a larger space, it proposes nothing")
        if repeats := {trial.config for trial in trials} & {trial.config for trial in earlier}:
            raise Breach(f"it proposes a config from its warm start: {next(iter(repeats)).to_json()}")


@rule("make warm starts depend only on the trials and the seed: a resumed run repeats them", [*SEEDED, "warm-start"])
def same_warm_start(policy: PolicySubject) -> None:
    """The same seed and warm start give the same proposals, and the list of trials is not modified."""
    subject = policy.spaces["large"]
    earlier = trials_of(subject.space.sample_new(np.random.default_rng(9), 40, ()), flaky)
    runs = []
    for _ in range(2):
        argument = list(earlier)
        instance = policy.start(subject)
        instance.warm_start(argument)
        if argument != earlier:
            raise Breach(
                f"it modified the list of {len(earlier)} trials passed as its warm start, which now contains "
                f"{len(argument)}"
            )
        runs.append(run(instance, flaky, 24))
    _check_same(runs[0], runs[1], "after the same warm start")


@rule(
    "skip trials whose config is not in the space, as searchlab.NeverTwice does; other logs may contain some",
    WARM_STARTS,
)
def foreign_trials(policy: PolicySubject) -> None:
    """It continues after a warm start with trials whose configs are not in its space."""
    for subject in policy.spaces.values():
        own_trials = trials_of(subject.space.sample_new(np.random.default_rng(5), 4, ()), smooth)
        foreign = [
            Config({"no such knob": 1}),
            Config(),
            *(Config({**t.config, "no such knob": (2, 4)}) for t in own_trials),
        ]
        fast = [Trial(i, config, successful_measurement(1e-6 * (i + 1))) for i, config in enumerate(foreign)]
        instance = policy.start(subject)
        instance.warm_start([*fast[:3], *own_trials, *fast[3:]])
        run(instance, smooth, 24)


@rule(
    "seed each ask from the seed and the number of trials told, and keep no state from an ask; "
    "if it must know which trials were proposed together, declare this: class Mine(NeverTwice, needs_asks=True)",
    [*SEEDED, "warm-start", "members"],
)
def state_is_what_was_told(policy: PolicySubject) -> None:
    """A policy that was only told the trials, in batches of any size, continues like the policy that proposed them."""
    if policy.traits.needs_asks:
        raise NotApplicable("it declares needs_asks=True, so it resumes by repeating its asks, which same-seed checks")
    for name, subject in policy.spaces.items():
        original = policy.start(subject)
        trials = run(original, flaky, 32)
        at_once, singly = policy.start(subject), policy.start(subject)
        at_once.tell(list(trials))
        for trial in trials:
            singly.tell([trial])
        for _ in range(2):
            batch = list(original.ask(8))
            for how, copy in (("all at once", at_once), ("one by one", singly)):
                proposals = list(copy.ask(8))
                if proposals != batch:
                    difference = _describe_difference(proposals, batch)
                    raise Breach(f"told {len(trials)} trials in space {name!r} {how}, it continues with {difference}")
            answers = trials_of(batch, flaky, len(trials))
            for instance in (original, at_once, singly):
                instance.tell(list(answers))
            trials += answers


@rule("propose random configs until one succeeds (or declare stops=True); a failure has an infinite cost", BASIC)
def nothing_succeeds(policy: PolicySubject) -> None:
    """It continues if every trial fails."""
    _check_continues(policy, all_invalid)


@rule("do not divide by the costs' spread, which may be 0", BASIC)
def all_is_equal(policy: PolicySubject) -> None:
    """It continues if every trial takes the same time."""
    _check_continues(policy, all_equal)


def _check_continues(policy: PolicySubject, cost: Cost) -> None:
    subject = policy.spaces["large"]
    trials = policy.run(subject, cost)
    size = subject.space.size(32)
    if len(trials) < (32 if size is None else min(32, size)) and not policy.traits.stops:
        raise Breach(f"it stopped after {len(trials)} trials")


@rule(
    "fill the batch with space.sample_new(rng, n, seen), which finds the remaining configs, and return [] if none "
    "remain; if the strategy ends earlier, declare this: class Mine(NeverTwice, stops=True)",
    BASIC,
)
def exhausts(policy: PolicySubject) -> None:
    """It proposes every config in a small space (unless the class declares stops=True), and then nothing."""
    if not policy.small:
        raise NotApplicable("the space has too many configs even for the smallest workloads")
    for subject in policy.small.values():
        members = list(subject.space.enumerate())
        instance = policy.start(subject)
        proposals: set[Config] = set()
        count, empty = 0, 0
        while empty < 2:
            if count > 4 * len(members):
                raise Breach(
                    f"it has proposed {count} configs and continues, although the space contains only {len(members)}"
                )
            batch = instance.ask(16)
            empty = 0 if batch else empty + 1
            instance.tell(trials_of(batch, flaky, count))
            proposals.update(batch)
            count += len(batch)
        omitted_configs = [config for config in members if config not in proposals]
        if omitted_configs and not policy.traits.stops:
            count, config = len(omitted_configs), omitted_configs[0]
            raise Breach(f"it omitted {count} of {len(members)} configs, such as {config.to_json()}")


@rule("learn from each trial only once, when it is told, or from a bounded number of trials", WARM_STARTS)
def bounded_time(policy: PolicySubject) -> None:
    """After four times as many trials, tell and ask take at most sixteen times as long."""
    subject = policy.spaces["large"]
    configs = subject.space.sample_new(np.random.default_rng(3), 256, ())
    trials = trials_of(configs, flaky)
    if len(trials) < 256:
        raise NotApplicable(f"the space has only {len(trials)} configs, but 256 are needed")
    early, late = (_step_seconds(policy.start(subject), trials[:count]) for count in (64, 256))
    if late > 16 * early + 0.2:
        raise Breach(f"tell and ask take {early:.3g} s of CPU time after 64 trials, but {late:.3g} s after 256")


def _step_seconds(policy: Policy, trials: list[Trial]) -> float:
    """Return the CPU time, in seconds, of the fastest of three steps after a warm start with ``trials``."""
    policy.warm_start(trials)
    seconds = []
    for step in range(3):
        start = time.process_time()
        batch = policy.ask(8)
        policy.tell(trials_of(batch, flaky, len(trials) + 8 * step))
        seconds.append(time.process_time() - start)
    return min(seconds)


RULES = rules_in(__name__)


def _configs(trials: Sequence[Trial]) -> list[Config]:
    return [trial.config for trial in trials]


def _check_same(before: Sequence[Trial], after: Sequence[Trial], when: str) -> None:
    if _configs(before) != _configs(after):
        raise Breach(f"{when}, it proposes {_describe_difference(_configs(after), _configs(before))}")


def _describe_difference(first: Sequence[Config], second: Sequence[Config]) -> str:
    for number, (proposal, expected) in enumerate(zip(first, second, strict=False)):
        if proposal != expected:
            return f"{proposal.to_json()} instead of {expected.to_json()} as proposal {number}"
    return f"{len(first)} configs instead of {len(second)}"


def policy_checks(
    plugin: PluginSpec,
    *,
    space: PluginSpec | None = None,
    workload: str | Workload | None = None,
    target: str | Target = "native",
    cost_model: PluginSpec | None = None,
    features: str | None = None,
    seed: int = 0,
    time_limit: float = TIME_LIMIT,
) -> list[Check]:
    """Return the checks for a policy, in order.

    Args:
        plugin: The policy.
        space: The space in which to check a policy that supports only certain spaces. By default, the policy is checked
            in toy spaces, and nothing is scheduled, built or run.
        workload: The workload for ``space``; by default, the first of seven that the space supports.
        target: The target for ``space``.
        cost_model: The cost model for a policy that uses one; by default, the policy's own or ``xgboost``.
        features: The cost model's features; by default, the policy's own or ``knob``.
        seed: The policy's seed.
        time_limit: The time limit for each check, in seconds.

    Raises:
        SearchlabError: If the plug-in, an option, the workload or the target is unknown.
    """
    resolved, cls = POLICIES.resolve(plugin)
    POLICIES.check_options(resolved.name, cls, resolved.options)
    traits = cls.traits if issubclass(cls, Policy) else Traits()
    model, features = traits.model(cost_model, features)
    if space is None:
        kinds = (toys.Large, toys.Dependent, toys.Small, toys.SingleChoice, toys.NoKnobs)
        subjects = {kind.__name__.lower(): SpaceSubject.from_spec(kind, toys.WORKLOAD, toys.TARGET) for kind in kinds}
        spaces = {name: subjects[name] for name in ("large", "dependent")}
        small = {name: subjects[name] for name in subjects if name != "large"}
    else:
        own_subject = SpaceSubject.for_workload(space, workload, resolve_target(target), seed)
        spaces, small = {"large": own_subject}, _small(space, own_subject)
    subject = PolicySubject(resolved, cls, seed, time_limit, spaces, small, COST_MODELS.resolve(model)[0], features)
    return [Check(rule, subject) for rule in RULES]


def _small(space: PluginSpec, own_subject: SpaceSubject) -> dict[str, SpaceSubject]:
    """Return the given space if it is small; if not, the space for the first tiny workload that makes it small."""
    tiny = (SpaceSubject.from_spec(space, parse_workload(text), own_subject.target) for text in TINY_WORKLOADS)
    for subject in (own_subject, *tiny):
        with suppress(SearchlabError):
            if (size := subject.space.size(MAX_SIZE_TO_EXHAUST)) is not None and size <= MAX_SIZE_TO_EXHAUST:
                return {str(subject.workload): subject}
    return {}
