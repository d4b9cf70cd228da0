"""The keys in a study file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec

from ..errors import SearchlabError, did_you_mean
from ..log.budget import UNLIMITED, Budget
from ..log.plan import Claim
from ..measure.contract import SpaceCosts
from ..measure.settings import FunctionSettings, LocalSettings, Settings
from ..options import Batch, Seconds, Seed, SeedCount, Trials
from ..plugins import Plugin
from ..stats.random_search import parse_difficulty

SUITE_KEYS = ("workloads", "spaces", "target", "measure")
"""The study keys whose values are provided by a suite's tables."""

Difficulty = Annotated[str, msgspec.Meta(pattern=r"^(\d+(\.\d+)? )?difficulty$")]
"""A number of trials relative to a table's difficulty: ``difficulty``, or a multiple such as ``0.5 difficulty``."""


def parse_trials(text: str) -> int | str:
    """Parse a number of trials or a :data:`Difficulty`. Raises SearchlabError if ``text`` is neither."""
    try:
        return msgspec.convert(int(text) if text.isdecimal() else text, Trials | Difficulty)
    except msgspec.ValidationError:
        raise SearchlabError(
            f"{text!r} is not a number of trials; use a positive integer, 'difficulty', or a multiple of it, such as "
            "'0.5 difficulty'"
        ) from None


FeaturesName = Literal["knob", "autotvm-knob", "program", "per-store", "itervar", "curve"]
"""The features for a cost model; see :data:`~searchlab.costmodel.features.FEATURES`."""


class PluginEntry(Plugin, frozen=True):
    """A plug-in with options: an entry in ``spaces``. Entries in ``policies`` and ``cost_models`` have more keys.

    Attributes:
        label: The name to use in figures and tables, if it differs from the plug-in's name or class.
    """

    label: str = ""

    @property
    def title(self) -> str:
        return self.label or super().title


class CostModelEntry(PluginEntry, frozen=True):
    """A cost model with options.

    Attributes:
        features: The features on which the model is trained. They are extracted from the knobs (``knob``, or AutoTVM's
            ``autotvm-knob``) or from the scheduled program (``program``, ``per-store`` for pack-sum, or AutoTVM's
            ``itervar`` and ``curve``).
    """

    features: FeaturesName = "knob"


class PolicyEntry(PluginEntry, frozen=True):
    """A policy with options, and the study keys that it overrides.

    Attributes:
        batch: Overrides the study's ``batch``.
        trials: Overrides the study's ``trials``.
        seconds: Overrides the study's ``seconds``.
        stop_after: Overrides the study's ``stop_after``.
        cost_model: The only cost model to use with this policy, instead of the study's cost models.
        features: The features for the cost model, instead of those in the cost model's entry.
        warm_start: Overrides the study's ``warm_start``.
        spaces: The only spaces to search with this policy, by name or label, instead of all spaces of the study. A
            system with a strategy of its own is then compared with other systems.
        tuned_on: The tables on which the options were tuned, such as ``hub-v1/dev``, or empty if they are as published.
            This only documents the options, and does not affect runs.
    """

    batch: Batch | None = None
    trials: Trials | Difficulty | None = None
    seconds: Seconds | None = None
    stop_after: Trials | None = None
    cost_model: str | Plugin | None = None
    features: FeaturesName | None = None
    warm_start: list[str] | None = None
    spaces: list[str] = msgspec.field(default_factory=list)
    tuned_on: str = ""

    def __post_init__(self) -> None:
        if self.tuned_on.endswith("/test"):
            raise ValueError(f"options must not be tuned on a test split, such as {self.tuned_on}; use its dev split")


class SuiteSelection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A suite of tables.

    Attributes:
        name: The suite, or one of its splits or tables, specified in the same way as ``suite``.
        noise: Whether to resample each measurement's repeats from the recorded ones, using the run's seed.
    """

    name: str
    noise: bool = False


class StudySpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The keys in a study file.

    Every policy searches every workload in every space, or in those of its entry, with every seed. A policy that uses a
    cost model runs with each of the study's cost models, unless its class or its entry specifies a single one.

    Attributes:
        policies: Policies by name, or with options.
        workloads: Workloads such as ``"gemm:512x512x512"`` or ``"resnet50/conv3.2b"``.
        spaces: Search spaces by name, or with options. Workloads for which a space has no programs are skipped. A
            table of knobs with lists of their values, ``{ x = [1, 2, 4] }``, stands for the space ``parameters``.
        suite: A suite of tables (``v1``), one of its splits (``v1/dev``), or a single table (``v1/TABLE``), specified
            by name or by its directory's path. It replaces ``workloads``, ``spaces``, ``target`` and ``measure``, and
            its protocol provides the defaults for ``trials`` and ``seeds``.
        cost_models: Cost models by name, or with options. A policy that uses a cost model runs with each of them.
        seeds: A list of seeds, or the number of seeds, counted from 0.
        trials: The maximum number of trials in a run. The default is 64, or no limit if you specify ``seconds`` or
            ``stop_after``. For complete tables, you can specify ``"difficulty"`` or a multiple such as
            ``"0.5 difficulty"``. The difficulty is the expected number of trials that random search needs to cover
            95 % of the distance from a table's median to its optimum.
        seconds: The maximum charged time of a run (proposing, training, building and running), in seconds.
        stop_after: A run ends after this many trials without a gain of more than 1 % in throughput. It ends when the
            first of the three limits is reached; ``seconds`` and ``stop_after`` take effect at the end of a batch. If
            you run the study again with larger limits, the runs are extended.
        batch: The number of configs to request from a policy at a time.
        target: ``"native"`` (this CPU), ``"cuda"``, an LLVM CPU name such as ``"znver4"``, or a TVM target as a TOML
            table. The default is this machine, or the target of the recorded table. For a fleet, it must be specified.
        measure: Where and how programs are measured. The default ``kind`` is ``"function"`` for functions, and
            ``"local"`` for all other workloads.
        warm_start: Logs of earlier runs, or directories of logs, such as ``"results/"``; the study's own logs there are
            not used. Specify ``"suite:v1/dev"`` to use 128 random trials from each table of a suite, except those of
            the run's own workload. Each policy learns from runs in its own space. A cost model with program features is
            also trained on all other runs. Policies that transfer, such as ``copula``, and cost models with knob
            features also learn from runs for other shapes in the same space. With ``"default"``, the first trial of
            each run is the default config of its space.
        contrasts: The pairs of strategies, by name or label, that the study is designed to compare. They are registered
            in each run's log when the run begins. Reports test them with more power than all other pairs.
        claims: Published claims, which reports test on the study's runs. In a study over a suite, claims and contrasts
            may also refer to the suite's baselines, whose runs are then included in the report. ``policies`` may be
            empty if all claims are about baselines.
        starts: With ``"shared"``, policies that have not learned anything yet draw the same configs for a given seed,
            so any difference between two policies is due to their later decisions. With ``"own"``, each policy draws
            its own configs.
        executor: Where the runs are executed: ``"local"``, or for example ``{ name = "slurm", options = { ... } }``. By
            default, they are executed in this process, one after the other. The executor does not affect the results.
    """

    policies: list[str | PolicyEntry]
    workloads: list[str] = []
    spaces: list[str | PluginEntry] = []
    suite: str | SuiteSelection | None = None
    cost_models: list[str | CostModelEntry] = msgspec.field(default_factory=lambda: ["xgboost"])
    seeds: SeedCount | Annotated[list[Seed], msgspec.Meta(min_length=1, max_length=10_000)] = 1
    trials: Trials | Difficulty | None = None
    seconds: Seconds | None = None
    stop_after: Trials | None = None
    batch: Batch = 8
    target: str | dict[str, Any] | None = None
    measure: Settings | None = None
    warm_start: list[str] = []
    contrasts: list[tuple[str, str]] = []
    claims: list[Claim] = []
    starts: Literal["shared", "own"] = "shared"
    executor: str | Plugin | None = None

    def __post_init__(self) -> None:
        for pair in self.contrasts:
            if pair[0] == pair[1]:
                raise ValueError(f"a contrast needs two different strategies, not {list(pair)}")
        for name in ("policies", "cost_models", *(() if self.suite else ("workloads", "spaces"))):
            if not getattr(self, name) and not (name == "policies" and self.suite and self.claims):
                suite = ", or specify a suite" if name in SUITE_KEYS else ""
                plugin_kind = name.replace("_", "")
                raise ValueError(f"{name} must not be empty; add one from searchlab list {plugin_kind}{suite}")
        titles = [entry.title for entry in self.space_entries]
        for entry in self.policy_entries:
            for name in entry.spaces:
                if name not in titles:
                    raise ValueError(
                        f"policy {entry.title!r} is to search the space {name!r}, which is not among the study's spaces"
                        f"{did_you_mean(name, titles)}"
                    )
        if len(set(self.seed_list)) < len(self.seed_list):
            raise ValueError(f"seeds must be distinct, not {self.seeds}")

    @property
    def seed_list(self) -> list[int]:
        return list(range(self.seeds)) if isinstance(self.seeds, int) else self.seeds

    @property
    def suite_selection(self) -> SuiteSelection | None:
        return SuiteSelection(self.suite) if isinstance(self.suite, str) else self.suite

    @property
    def policy_entries(self) -> list[PolicyEntry]:
        return [PolicyEntry(entry) if isinstance(entry, str) else entry for entry in self.policies]

    @property
    def space_entries(self) -> list[PluginEntry]:
        return [PluginEntry(entry) if isinstance(entry, str) else entry for entry in self.spaces]

    @property
    def cost_model_entries(self) -> list[CostModelEntry]:
        return [CostModelEntry(entry) if isinstance(entry, str) else entry for entry in self.cost_models]

    @property
    def references(self) -> dict[str, list[str]]:
        """The names of the strategies to which contrasts and claims refer, by the study key."""
        return {
            "contrasts": [name for pair in self.contrasts for name in pair],
            "claims": [name for claim in self.claims for name in (claim.strategy, *claim.opponents)],
        }

    def budget(self, entry: PolicyEntry, all_costs: Callable[[], SpaceCosts | None] = lambda: None) -> Budget:
        """Return the budget for a policy's runs in a space.

        Args:
            entry: The policy, whose limits override those of the study.
            all_costs: A function that returns all costs in the space if they are in a complete table, and None
                otherwise. It is called only if the number of trials depends on the space's difficulty.

        Raises:
            SearchlabError: If the number of trials depends on the difficulty and the difficulty is unknown.
        """
        limit_names = ("trials", "seconds", "stop_after")
        trials, seconds, stop_after = (
            getattr(self if getattr(entry, name) is None else entry, name) for name in limit_names
        )
        if isinstance(trials, str):
            if (space_costs := all_costs()) is None:
                raise SearchlabError(
                    f"trials = {trials!r} requires a complete table of each space, from which the difficulty is "
                    f"computed; specify a number of trials instead"
                )
            trials = parse_difficulty(trials, space_costs.costs)
        return make_budget(trials, seconds, stop_after)


def make_study_schema() -> dict[str, Any]:
    """Return the JSON Schema of study files. It does not contain the options of plug-ins."""
    schema = msgspec.json.schema(StudySpec)
    for settings in (LocalSettings, FunctionSettings):  # their kind follows from the workloads
        schema["$defs"][settings.__name__]["required"].remove("kind")
    entries = schema["$defs"]["StudySpec"]["properties"]["spaces"]["items"]["anyOf"]
    entries.append({"type": "object", "additionalProperties": {"type": "array"}})
    return schema


def make_budget(trials: int | None, seconds: float | None, stop_after: int | None) -> Budget:
    """Return the budget with these limits. If all are None, the limit is 64 trials."""
    if trials is None:
        trials = 64 if seconds is None and stop_after is None else UNLIMITED
    return Budget(trials, seconds, stop_after)
