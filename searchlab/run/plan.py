"""Plan runs: their strategies, budgets and warm starts.

All runs are planned by :func:`plan_run`, which is called by ``tune``, studies and tables.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from ..costmodel import COST_MODELS, BoundCostModel
from ..errors import SearchlabError, warn
from ..log.budget import Budget
from ..log.format import BUILTIN_WORKLOAD_KINDS, FORMAT_VERSION, Computation, Header, Log
from ..log.programs import list_version_changes
from ..machine.host import host_model, library_versions, read_machine_facts
from ..machine.noise import read_resolution
from ..measure.contract import Conditions, encode_conditions
from ..measure.settings import LocalSettings, Settings, TableSettings
from ..plugins import Plugin, PluginKind, iterate_functions
from ..policy import POLICIES, Policy
from ..records import Trial
from ..source import core_digest, source_digest
from ..space import SPACES, Space
from ..workload import WORKLOADS, Function, split_workload_name
from .strategy import SpaceChoice, Strategy
from .warm_start import WarmStart

OnTrial = Callable[[Trial, bool], object]
"""A callback that receives every trial in the log, in order, and whether the trial was in the log when the run began.

It is also called for the trials in a complete log. Its return value is ignored. If it raises an error, the run ends and
the error propagates to the caller. The trial remains in the log, so the run can be resumed after it.
"""


@dataclass(frozen=True)
class Run:
    """A fully specified search of a space by a strategy, with a seed and a budget.

    Attributes:
        batch: The number of configs to request from the policy at a time.
        effective_options: The options with which the policy runs instead of those specified; see Policy.effective.
        base_dir: The directory that relative paths in ``settings`` start from.
        contrasts: The pairs of strategies that the study registers for comparison.
        start_salt: The text hashed into the seed of the first configs; see Header.start_salt.
        code_digests: The digests of the source code that decides the run; see :func:`digest_code`.
        discard: Whether to move a log aside that this run cannot continue.
        existing_log: The log when the run was opened, or None if it did not exist yet; see :mod:`searchlab.run.open`.
    """

    space_choice: SpaceChoice
    strategy: Strategy
    seed: int
    batch: int
    budget: Budget
    settings: Settings
    log_path: Path
    base_dir: Path = Path()
    warm_start: WarmStart = field(default_factory=WarmStart)
    effective_options: Mapping[str, Any] = field(default_factory=dict)
    contrasts: tuple[tuple[str, str], ...] = ()
    start_salt: str = ""
    code_digests: Mapping[str, str] = field(default_factory=dict)
    discard: bool = False
    existing_log: Log | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        return f"<Run {self.log_path.name}: {self.trial_count} trials of {self.strategy.label}, seed {self.seed}>"

    @property
    def trial_count(self) -> int:
        """The maximum number of trials."""
        return self.budget.trials

    @property
    def space(self) -> Space:
        return self.space_choice.space

    @property
    def workload_name(self) -> str:
        return str(self.space.workload)

    def is_current(self, log: Log) -> bool:
        """Return whether ``log`` was written, or has been reproduced, by today's code and libraries."""
        return log.code_digests == self.code_digests and log.versions == library_versions()

    def changes_since(self, log: Log) -> str:
        """Return which libraries and code have changed since ``log`` was written, or "" if none has."""
        changed_roles = [
            role for role, digest in self.code_digests.items() if log.code_digests.get(role, digest) != digest
        ]
        return ", ".join([*list_version_changes(log.versions), *(f"the code of the {role}" for role in changed_roles)])

    def start(self) -> tuple[Policy, BoundCostModel | None]:
        """Create the policy and, if it uses one, its cost model; see :meth:`Strategy.start`."""
        return self.strategy.start(
            self.space, derive_seed(self.seed, self.start_salt) if self.start_salt else self.seed
        )

    def with_options(self, options: Mapping[str, Any]) -> Run:
        """Return this run with different policy options. Its effective options are then unknown."""
        policy = Plugin(self.strategy.policy.name, dict(options))
        return replace(self, strategy=replace(self.strategy, policy=policy), effective_options={})

    @property
    def host(self) -> dict[str, str]:
        """The measured CPU (and GPU), or an empty dictionary if it is not this machine's."""
        return host_model(self.space.target.kind) if self.settings.exclusive else {}

    @property
    def conditions(self) -> Conditions:
        """The conditions of this run's measurements if it is executed on this machine."""
        return encode_conditions(self.host, self.space.target.to_json(), self.settings.identity())

    @cached_property
    def header(self) -> Header:
        """The header for the run's log, without what only the measurer knows: its workers, and the optimum."""
        strategy, target, workload = self.strategy, self.space.target, self.space.workload
        computation = None
        if split_workload_name(self.workload_name)[0] not in BUILTIN_WORKLOAD_KINDS:
            with WORKLOADS.convert_errors(type(workload), "flops, unit, cluster or content"):
                computation = Computation.from_workload(workload)
        machine = read_machine_facts(target.cores) if self.settings.exclusive else {}
        if isinstance(self.settings, LocalSettings) and target.kind == "llvm":
            machine = machine | read_resolution(target.cores, self.settings.repeat)
        return Header(
            format_version=FORMAT_VERSION,
            workload=self.workload_name,
            space=self.space_choice.plugin.to_spec(),
            fingerprint=self.space.fingerprint,
            policy=strategy.policy.to_spec(),
            cost_model=strategy.cost_model.to_spec() if strategy.cost_model else None,
            features=strategy.features,
            seed=self.seed,
            batch=self.batch,
            target=target.to_json(),
            measure=self.settings.identity(),
            host=self.host,
            machine=machine,
            start_salt=self.start_salt,
            warm_start=self.warm_start.sources,
            label=strategy.label,
            space_label=self.space_choice.label,
            space_size=self.space_choice.size,
            contrasts=self.contrasts,
            effective_options=dict(self.effective_options),
            versions=dict(library_versions()),
            code_digests=dict(self.code_digests),
            default_options=_collect_default_options(self),
            created_at=time.time(),
            computation=computation,
        )


class Plan(NamedTuple):
    """What a study executes, and what it leaves out.

    Attributes:
        runs: All runs, ordered by seed (for a suite, by table and then by seed), with log paths relative to the results
            directory.
        skipped: A sentence for each combination that is skipped because the space has no program for the workload, or
            the policy cannot search the space.
    """

    runs: list[Run]
    skipped: list[str]


OnRun = Callable[[Run, int, int, int], OnTrial | None]
"""A callback for the beginning of a run. It receives the run, its number (from 1), the number of runs, and its job
(from 0).

It returns the function to call with each trial, or None. When it is called, the previous run in the same job has ended.
On an executor, short runs are reported after they have ended, with all their trials at once.
"""

OnChargedTrial = Callable[[Trial, bool, float], object]
"""An :data:`OnTrial` that also receives the seconds charged up to the end of the trial."""

OnChargedRun = Callable[[Run, int, int, int], OnChargedTrial | None]
"""An :data:`OnRun` that returns an :data:`OnChargedTrial`."""


def derive_seed(seed: int, name: str) -> int:
    """Return the seed for a strategy that draws its own configs. It depends on ``name``, but not on the machine."""
    text = f"{name}:{seed}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(text).digest()[:4], "big")


def plan_run(run: Run) -> Run:
    """Complete a run: its usable warm start, the options with which its policy runs, and what its log records of code.

    Nothing is measured, but the policy is created once to detect invalid options. The plan is also valid for other
    seeds.

    Args:
        run: The run, without the fields that are planned here. Its warm start contains all specified runs.

    Raises:
        SearchlabError: If an option is invalid.
        UnsupportedSpace: If the policy cannot search the space.

    Warns:
        SearchlabWarning: If the budget is too small for the policy to use what it learns.
    """
    space, plugin, strategy, settings = run.space, run.space_choice.plugin, run.strategy, run.settings
    if not (space.has_programs or settings.replays or isinstance(space.workload, Function)):
        raise SearchlabError(
            f"the {plugin.name} space has no programs for {space.workload}: pass its option schedule, a function of a "
            f"schedule and a config (in Python, schedule=), or use recorded times, with "
            f'measure = {{ kind = "table", path = ... }}'
        )
    if strategy.without_programs and not space.has_programs:
        warn(
            f"{strategy.name} uses the features {strategy.without_programs!r} instead of its default, "
            f"{strategy.features!r}, which requires programs: configs in {plugin.name} have none"
        )
        strategy = replace(strategy, features=strategy.without_programs)
    machine = settings.machine_name(space.target, run.base_dir) if run.warm_start.directories else ""
    warm_start = run.warm_start.exclude_other_machines(machine, space).select(run.space_choice, strategy)
    run = replace(run, strategy=strategy, warm_start=warm_start)
    policy, _ = run.start()
    learned_trials = len(warm_start.trials) + (run.trial_count - 1) // run.batch * run.batch  # before the last batch
    if learned_trials < policy.n_startup and not warm_start.other_spaces:
        warn(
            f"policy {strategy.policy.name!r} does not use what it has learned until after {policy.n_startup} trials "
            f"(n_startup), but the run has only {run.trial_count} trials, in batches of {run.batch}; increase the "
            "number of trials, or reduce n_startup"
        )
    return replace(run, effective_options=policy.effective, code_digests=digest_code(run))


def digest_code(run: Run) -> dict[str, str]:
    """Return the digests of the source code that decides a run, by role.

    The roles are ``core`` (searchlab itself), ``workload``, ``space``, ``policy``, ``cost_model`` and ``table``.
    A function that is passed as an option counts as part of its plug-in.
    """
    digests = {}
    for role, (_, cls, plugin) in _list_plugins(run).items():
        options = {**plugin.options, **run.space.made_with} if role == "space" else plugin.options
        digests[role] = source_digest(cls, *iterate_functions(options))
    if isinstance(run.settings, TableSettings):
        digests["table"] = run.settings.compute_content_digest(run.base_dir)
    workload = run.space.workload
    functions = [workload.load()] if isinstance(workload, Function) and not run.settings.replays else []
    return {"core": core_digest(), "workload": source_digest(type(workload), *functions), **digests}


def _collect_default_options(run: Run) -> dict[str, dict[str, Any]]:
    """Return the values of the options that were not specified, by role, as logs record them."""
    plugins = _list_plugins(run).items()
    return {role: kind.unspecified_options(cls, plugin.options) for role, (kind, cls, plugin) in plugins}


def _list_plugins(run: Run) -> dict[str, tuple[PluginKind[Any], type[Any], Plugin]]:
    strategy = run.strategy
    plugins: dict[str, tuple[PluginKind[Any], type[Any], Plugin]] = {
        "space": (SPACES, type(run.space), run.space_choice.plugin),
        "policy": (POLICIES, strategy.policy_class, strategy.policy),
    }
    if (model := strategy.cost_model) is not None:
        plugins["cost_model"] = COST_MODELS, COST_MODELS.load(model.name), model
    return plugins


def select_shard(runs: Sequence[Run], shard_number: int, shard_count: int) -> list[Run]:
    """Return the runs in the ``shard_number``-th (from 1) of ``shard_count`` shards, in their original order.

    The sizes of shards differ by at most one run. Runs are assigned by a hash of the paths of their logs, so that slow
    strategies do not accumulate in one shard.
    """
    if not 1 <= shard_number <= shard_count:
        raise SearchlabError(f"the shard must be i/n, where i is between 1 and n, not {shard_number}/{shard_count}")
    order = sorted(runs, key=lambda run: hashlib.sha256(run.log_path.as_posix().encode()).digest())
    logs = {run.log_path for run in order[shard_number - 1 :: shard_count]}
    return [run for run in runs if run.log_path in logs]


def parse_shard(text: str) -> tuple[int, int]:
    """Parse a shard: ``"2/8"`` becomes (2, 8). Raises SearchlabError if it is not in this form."""
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if match is None:
        raise SearchlabError(f"the shard must be i/n, for example 1/4, not {text!r}")
    return int(match[1]), int(match[2])
