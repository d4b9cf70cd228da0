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
    accelerate_clock,
    check_constructor,
    rule,
    rules_in,
    seed_global_streams,
)
from .spaces import SpaceSubject
from .toys import (
    SimulateFunction,
    run_policy,
    simulate_equal,
    simulate_flaky,
    simulate_invalid,
    simulate_smooth,
    simulate_trials,
    successful_measurement,
)

TINY_WORKLOADS = ("gemm:2x2x1", "gemm:2x1x1", "gemm:1x1x1", "conv2d:1x2x2x2x1x1x1", "conv2d:1x1x1x1x1x1x1")
"""Workloads for which a space is likely to be small enough to be exhausted."""

MAX_SIZE_TO_EXHAUST = 100
"""The maximum number of configs in a space that a policy must exhaust."""


@dataclass(frozen=True)
class PolicySubject(Subject):
    """A policy, the spaces in which to check it, and the cost model that it receives if it uses one.

    Attributes:
        small_space_subjects: The spaces that it must exhaust.
    """

    result_name = "proposal"

    space_subjects: Mapping[str, SpaceSubject]
    small_space_subjects: Mapping[str, SpaceSubject]
    cost_model: Plugin
    features: str

    @property
    def traits(self) -> Traits:
        # A class that is not a Policy declares nothing; another check reports it.
        return self.plugin_class.traits if issubclass(self.plugin_class, Policy) else Traits()

    def instantiate_in(self, space_subject: SpaceSubject, seed: int | None = None) -> Policy:
        """Instantiate the policy. Raises Refused if it rejects the space or the options."""
        seed = self.seed if seed is None else seed
        options = dict(self.plugin.options)
        if self.traits.takes_cost_model:
            cost_model = make_cost_model(self.cost_model, seed)
            options["cost_model"] = BoundCostModel(cost_model, make_features(self.features, space_subject.space))
        rejection_text = (
            f"policy {self.plugin.name!r} cannot start in space {space_subject.plugin.name!r} (if it supports only "
            f"certain spaces, specify one, as in: --space sketch --workload gemm:64x64x64)"
        )
        policy: Policy = self.instantiate(Policy, rejection_text, space_subject.space, seed=seed, **options)
        return policy

    def run_in(
        self, space_subject: SpaceSubject, simulate: SimulateFunction = simulate_flaky, seed: int | None = None
    ) -> list[Trial]:
        """Run a new instance for 32 trials in batches of eight."""
        return run_policy(self.instantiate_in(space_subject, seed), simulate, 32)

    @cached_property
    def trials_by_space(self) -> dict[str, list[Trial]]:
        """The trials of a normal run in each of ``space_subjects``."""
        with seed_global_streams(0):
            return {name: self.run_in(space_subject) for name, space_subject in self.space_subjects.items()}

    @cached_property
    def results(self) -> list[Any]:
        return [config for trials in self.trials_by_space.values() for config in _list_configs(trials)]

    def compute_results(self) -> list[Any]:
        """Return the proposals of a normal run in each of ``space_subjects``."""
        return [config for subject in self.space_subjects.values() for config in _list_configs(self.run_in(subject))]


BASIC_RULES = ("signature", "starts", "runs")
"""The rules that must hold for all others to be meaningful."""

WARM_START_RULES = (*BASIC_RULES, "warm-start")
SEEDED_RULES = (*BASIC_RULES, "same-seed", "global-random-state")


@rule("give every option a default, and accept no *args or **kwargs: def __init__(self, space, *, seed, pull=0.1)")
def check_signature(subject: PolicySubject) -> None:
    """The constructor accepts space by position, and seed and options by keyword; each option has a default."""
    check_constructor(subject.plugin_class, 1, requires_seed=True)
    if "cost_model" in inspect.signature(subject.plugin_class).parameters and not subject.traits.takes_cost_model:
        raise Breach(
            "its constructor accepts a cost_model, but the class does not declare this and therefore receives none",
            "declare it: class Mine(NeverTwice, takes_cost_model=True)",
        )


@rule("handle every space: it may have only a single config, or even no knobs")
def check_starts(subject: PolicySubject) -> None:
    """It can be instantiated in every space."""
    for space_subject in (*subject.space_subjects.values(), *subject.small_space_subjects.values()):
        subject.instantiate_in(space_subject)


@rule("follow the contract: ask(n) returns a list of configs, and tell(trials) accepts a list of trials", ["starts"])
def check_runs(subject: PolicySubject) -> None:
    """It proposes and learns, batch after batch."""
    for name, trials in subject.trials_by_space.items():
        if not trials:
            raise Breach(
                f"its first ask in space {subject.space_subjects[name].plugin.name!r} returned nothing, which ends a "
                "run"
            )


@rule("create configs with space.sample, space.mutate, space.crossover or space.repair, not by hand", BASIC_RULES)
def check_members(subject: PolicySubject) -> None:
    """Every proposal is a Config whose values are choices of its space, with the same types: 64.0 is not 64."""
    for name, trials in subject.trials_by_space.items():
        space = subject.space_subjects[name].space
        for trial in trials:
            config: Any = trial.config
            if not isinstance(config, Config):
                raise Breach(f"it proposed {config!r}, a {type(config).__name__}")
            try:
                space.knobs(config)
            except InvalidConfig as error:
                raise Breach(f"it proposed {config.to_json()}: {error}") from None


@rule("limit the batch to n configs: list(islice(proposals, n)); return [] if n is 0", BASIC_RULES)
def check_batch_size(subject: PolicySubject) -> None:
    """ask(n) returns at most n configs."""
    for n in (8, 1, 0, 40, 7):
        policy = subject.instantiate_in(subject.space_subjects["large"])
        for _ in range(2):
            config_count = len(policy.ask(n))
            if config_count > n:
                raise Breach(f"ask({n}) returned {config_count} configs")


@rule("keep a set of all configs proposed or told, or derive from searchlab.NeverTwice, which does this", BASIC_RULES)
def check_no_repeats(subject: PolicySubject) -> None:
    """It never proposes a config twice, even before it is told the first trial."""
    for trials in subject.trials_by_space.values():
        _require_no_repeats([trial.config for trial in trials])
    for space_subject in subject.space_subjects.values():
        policy = subject.instantiate_in(space_subject)
        _require_no_repeats([config for _ in range(4) for config in policy.ask(5)])


def _require_no_repeats(configs: Sequence[Config]) -> None:
    first: dict[Config, int] = {}
    for number, config in enumerate(configs):
        if config in first:
            raise Breach(f"proposal {number} repeats proposal {first[config]}: {config.to_json()}")
        first[config] = number


@rule(
    'draw from searchlab.policy.private_rng(seed, "a tag", ...); an unseeded default_rng() differs each time',
    BASIC_RULES,
)
def check_same_seed(subject: PolicySubject) -> None:
    """The same seed and measurements give the same proposals."""
    subject.require_same(subject.results, subject.compute_with_seeded_streams(), "with the same seed")


@rule('draw from your own generator: searchlab.policy.private_rng(seed, "a tag", ...)', [*BASIC_RULES, "same-seed"])
def check_global_random_state(subject: PolicySubject) -> None:
    """It neither draws from nor seeds the global random streams of Python and NumPy."""
    subject.require_private_randomness()


@rule(
    "seed the random stream with the policy's seed; if the policy is not random, declare uses_seed=False", SEEDED_RULES
)
def check_other_seed(subject: PolicySubject) -> None:
    """A different seed leads to different proposals, unless the class declares uses_seed=False."""
    usual_configs = _list_configs(subject.trials_by_space["large"])
    depends_on_seed = any(
        _list_configs(subject.run_in(subject.space_subjects["large"], seed=subject.seed + i)) != usual_configs
        for i in (1, 2)
    )
    if subject.traits.uses_seed and not depends_on_seed:
        raise Breach(f"the first {len(usual_configs)} proposals are the same for three different seeds")
    if not subject.traits.uses_seed and depends_on_seed:
        raise Breach("it declares uses_seed=False, but its proposals depend on the seed", "omit uses_seed")


@rule("limit the search by steps, not by seconds; do not derive seeds or decisions from the time", SEEDED_RULES)
def check_clock(subject: PolicySubject) -> None:
    """Its proposals do not depend on the clock."""
    with accelerate_clock(subject.plugin_class):
        results = subject.compute_with_seeded_streams()
    subject.require_same(subject.results, results, "with a clock that runs a thousand times as fast")


@rule("sort sets before iterating over them, or use an ordered dict; compute sums in one thread", SEEDED_RULES)
def check_every_process(subject: PolicySubject) -> None:
    """Its proposals are the same in every process, for any hash seed and number of threads."""
    subject.require_same_in_every_process()


@rule("copy lists before changing them: write self.trials += trials instead of self.trials = trials", BASIC_RULES)
def check_leaves_what_it_is_told(subject: PolicySubject) -> None:
    """It does not modify the trials that it is told, or the lists that contain them."""
    policy = subject.instantiate_in(subject.space_subjects["large"])
    told_batches: list[tuple[list[Trial], list[Trial]]] = []
    for batch in range(4):
        trials = simulate_trials(policy.ask(8), simulate_flaky, 8 * batch)
        told_batches.append((trials, [Trial(trial.index, Config(trial.config), trial.measurement) for trial in trials]))
        policy.tell(trials)
        for trials, original_trials in told_batches:
            if trials != original_trials:
                raise Breach(
                    f"it modified the list of {len(original_trials)} trials passed to tell, which now contains "
                    f"{len(trials)}"
                )


@rule(
    "accept every trial in warm_start, which calls tell by default, and do not propose these configs again", BASIC_RULES
)
def check_warm_start(subject: PolicySubject) -> None:
    """It learns from another run's trials and does not propose their configs again."""
    for space_subject in subject.space_subjects.values():
        earlier_trials = simulate_trials(
            space_subject.space.sample_new(np.random.default_rng(9), 40, ()), simulate_flaky
        )
        policy = subject.instantiate_in(space_subject)
        policy.warm_start(list(earlier_trials))
        size = space_subject.space.size(64)
        trials = run_policy(policy, simulate_flaky, 24)
        if not trials and (size is None or size > len(earlier_trials)) and not subject.traits.stops:
            raise Breach(f"after a warm start with {len(earlier_trials)} trials in a larger space, it proposes nothing")
        if repeated_configs := {trial.config for trial in trials} & {trial.config for trial in earlier_trials}:
            raise Breach(f"it proposes a config from its warm start: {next(iter(repeated_configs)).to_json()}")


@rule(
    "make warm starts depend only on the trials and the seed: a resumed run repeats them", [*SEEDED_RULES, "warm-start"]
)
def check_same_warm_start(subject: PolicySubject) -> None:
    """The same seed and warm start give the same proposals, and the list of trials is not modified."""
    space_subject = subject.space_subjects["large"]
    earlier_trials = simulate_trials(space_subject.space.sample_new(np.random.default_rng(9), 40, ()), simulate_flaky)
    proposals_by_repetition = []
    for _ in range(2):
        told_trials = list(earlier_trials)
        policy = subject.instantiate_in(space_subject)
        policy.warm_start(told_trials)
        if told_trials != earlier_trials:
            raise Breach(
                f"it modified the list of {len(earlier_trials)} trials passed as its warm start, which now contains "
                f"{len(told_trials)}"
            )
        proposals_by_repetition.append(_list_configs(run_policy(policy, simulate_flaky, 24)))
    first_proposals, second_proposals = proposals_by_repetition
    subject.require_same(first_proposals, second_proposals, "after the same warm start")


@rule(
    "skip trials whose config is not in the space, as searchlab.NeverTwice does; other logs may contain some",
    WARM_START_RULES,
)
def check_foreign_trials(subject: PolicySubject) -> None:
    """It continues after a warm start with trials whose configs are not in its space."""
    for space_subject in subject.space_subjects.values():
        own_trials = simulate_trials(space_subject.space.sample_new(np.random.default_rng(5), 4, ()), simulate_smooth)
        foreign_configs = [
            Config({"no such knob": 1}),
            Config(),
            *(Config({**trial.config, "no such knob": (2, 4)}) for trial in own_trials),
        ]
        fast_foreign_trials = [
            Trial(i, config, successful_measurement(1e-6 * (i + 1))) for i, config in enumerate(foreign_configs)
        ]
        policy = subject.instantiate_in(space_subject)
        policy.warm_start([*fast_foreign_trials[:3], *own_trials, *fast_foreign_trials[3:]])
        run_policy(policy, simulate_smooth, 24)


@rule(
    "seed each ask from the seed and the number of trials told, and keep no state from an ask; "
    "if it must know which trials were proposed together, declare this: class Mine(NeverTwice, needs_asks=True)",
    [*SEEDED_RULES, "warm-start", "members"],
)
def check_state_is_what_was_told(subject: PolicySubject) -> None:
    """A policy that was only told the trials, in batches of any size, continues like the policy that proposed them."""
    if subject.traits.needs_asks:
        raise NotApplicable("it declares needs_asks=True, so it resumes by repeating its asks, which same-seed checks")
    for name, space_subject in subject.space_subjects.items():
        original = subject.instantiate_in(space_subject)
        trials = run_policy(original, simulate_flaky, 32)
        told_at_once, told_one_by_one = subject.instantiate_in(space_subject), subject.instantiate_in(space_subject)
        told_at_once.tell(list(trials))
        for trial in trials:
            told_one_by_one.tell([trial])
        for _ in range(2):
            expected_configs = list(original.ask(8))
            for told_how, told_policy in (("all at once", told_at_once), ("one by one", told_one_by_one)):
                subject.require_same(
                    [config.to_json() for config in expected_configs],
                    [config.to_json() for config in told_policy.ask(8)],
                    f"after it was told {len(trials)} trials in space {name!r} {told_how}",
                )
            new_trials = simulate_trials(expected_configs, simulate_flaky, len(trials))
            for policy in (original, told_at_once, told_one_by_one):
                policy.tell(list(new_trials))
            trials += new_trials


@rule("propose random configs until one succeeds (or declare stops=True); a failure has an infinite cost", BASIC_RULES)
def check_nothing_succeeds(subject: PolicySubject) -> None:
    """It continues if every trial fails."""
    _require_continuation(subject, simulate_invalid)


@rule("do not divide by the costs' spread, which may be 0", BASIC_RULES)
def check_all_is_equal(subject: PolicySubject) -> None:
    """It continues if every trial takes the same time."""
    _require_continuation(subject, simulate_equal)


def _require_continuation(subject: PolicySubject, simulate: SimulateFunction) -> None:
    space_subject = subject.space_subjects["large"]
    trials = subject.run_in(space_subject, simulate)
    size = space_subject.space.size(32)
    if len(trials) < (32 if size is None else min(32, size)) and not subject.traits.stops:
        raise Breach(f"it stopped after {len(trials)} trials")


@rule(
    "fill the batch with space.sample_new(rng, n, seen), which finds the remaining configs, and return [] if none "
    "remain; if the strategy ends earlier, declare this: class Mine(NeverTwice, stops=True)",
    BASIC_RULES,
)
def check_exhausts(subject: PolicySubject) -> None:
    """It proposes every config in a small space (unless the class declares stops=True), and then nothing."""
    if not subject.small_space_subjects:
        raise NotApplicable("the space has too many configs even for the smallest workloads")
    for space_subject in subject.small_space_subjects.values():
        members = list(space_subject.space.enumerate())
        policy = subject.instantiate_in(space_subject)
        proposals: set[Config] = set()
        proposal_count, empty_batch_count = 0, 0
        while empty_batch_count < 2:
            if proposal_count > 4 * len(members):
                raise Breach(
                    f"it has proposed {proposal_count} configs and continues, although the space contains only "
                    f"{len(members)}"
                )
            batch = policy.ask(16)
            empty_batch_count = 0 if batch else empty_batch_count + 1
            policy.tell(simulate_trials(batch, simulate_flaky, proposal_count))
            proposals.update(batch)
            proposal_count += len(batch)
        omitted_configs = [config for config in members if config not in proposals]
        if omitted_configs and not subject.traits.stops:
            raise Breach(
                f"it omitted {len(omitted_configs)} of {len(members)} configs, such as {omitted_configs[0].to_json()}"
            )


@rule("learn from each trial only once, when it is told, or from a bounded number of trials", WARM_START_RULES)
def check_bounded_time(subject: PolicySubject) -> None:
    """After four times as many trials, tell and ask take at most sixteen times as long."""
    space_subject = subject.space_subjects["large"]
    sampled_configs = space_subject.space.sample_new(np.random.default_rng(3), 256, ())
    trials = simulate_trials(sampled_configs, simulate_flaky)
    if len(trials) < 256:
        raise NotApplicable(f"the space has only {len(trials)} configs, but 256 are needed")
    early_seconds, late_seconds = (
        _time_step(subject.instantiate_in(space_subject), trials[:count]) for count in (64, 256)
    )
    if late_seconds > 16 * early_seconds + 0.2:
        raise Breach(
            f"tell and ask take {early_seconds:.3g} s of CPU time after 64 trials, but {late_seconds:.3g} s after 256"
        )


def _time_step(policy: Policy, trials: list[Trial]) -> float:
    """Return the CPU time, in seconds, of the fastest of three steps after a warm start with ``trials``."""
    policy.warm_start(trials)
    step_times = []
    for step in range(3):
        start = time.process_time()
        batch = policy.ask(8)
        policy.tell(simulate_trials(batch, simulate_flaky, len(trials) + 8 * step))
        step_times.append(time.process_time() - start)
    return min(step_times)


RULES = rules_in(__name__)


def _list_configs(trials: Sequence[Trial]) -> list[dict[str, Any]]:
    """Return the configs of ``trials`` as JSON data."""
    return [trial.config.to_json() for trial in trials]


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
    POLICIES.check_options(resolved, cls)
    traits = cls.traits if issubclass(cls, Policy) else Traits()
    resolved_cost_model, features = traits.model(cost_model, features)
    if space is None:
        toy_classes = (toys.Large, toys.Dependent, toys.Small, toys.SingleChoice, toys.NoKnobs)
        toys_by_name = {
            toy_class.__name__.lower(): SpaceSubject.from_spec(toy_class, toys.WORKLOAD, toys.TARGET)
            for toy_class in toy_classes
        }
        space_subjects = {name: toys_by_name[name] for name in ("large", "dependent")}
        small_space_subjects = {name: toys_by_name[name] for name in toys_by_name if name != "large"}
    else:
        requested_space_subject = SpaceSubject.for_workload(space, workload, resolve_target(target), seed)
        space_subjects = {"large": requested_space_subject}
        small_space_subjects = _find_small_space_subjects(space, requested_space_subject)
    subject = PolicySubject(
        resolved,
        cls,
        seed,
        time_limit,
        space_subjects,
        small_space_subjects,
        COST_MODELS.resolve(resolved_cost_model)[0],
        features,
    )
    return [Check(rule, subject) for rule in RULES]


def _find_small_space_subjects(space: PluginSpec, requested_space_subject: SpaceSubject) -> dict[str, SpaceSubject]:
    """Return the requested space if it is small; if not, the space of the first tiny workload for which it is small."""
    tiny_subjects = (
        SpaceSubject.from_spec(space, parse_workload(spelling), requested_space_subject.target)
        for spelling in TINY_WORKLOADS
    )
    for space_subject in (requested_space_subject, *tiny_subjects):
        with suppress(SearchlabError):
            if (size := space_subject.space.size(MAX_SIZE_TO_EXHAUST)) is not None and size <= MAX_SIZE_TO_EXHAUST:
                return {str(space_subject.workload): space_subject}
    return {}
