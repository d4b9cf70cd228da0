"""What a run searches, and how: the space and the strategy, created from what users specify."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..console import escape_to_one_line
from ..costmodel import COST_MODELS, BoundCostModel, make_cost_model
from ..costmodel.features import make_features
from ..errors import SearchlabError, UnsupportedWorkload
from ..measure.settings import Settings, TableSettings
from ..measure.suite import SuiteTable, check_table
from ..plugins import Plugin, PluginSpec, names_from
from ..policy import POLICIES, Policy
from ..space import PARAMETERS, SPACES, Space
from ..target import Target
from ..workload import Kernel, Workload, parse_workload

DEFAULT_POLICY = "gp-prior"
"""The policy of a single run. Of the baselines on the tables of CPU programs, it has the largest area."""

DEFAULT_SPACES = ("guided-conv2d", "guided-gemm", "sketch")
"""The default spaces of a run and of a model's tasks; those with the fastest known programs come first."""


@dataclass(frozen=True)
class SpaceChoice:
    """A space to search.

    Attributes:
        label: Its name in figures and tables, if it differs from the plug-in's name.
        size: The number of configs, if they were counted.
    """

    space: Space
    plugin: Plugin
    label: str = ""
    size: int | None = None

    @classmethod
    def from_spec(
        cls,
        spec: PluginSpec | Space,
        workload: Workload,
        target: Target | None,
        label: str = "",
        *,
        settings: Settings | None = None,
        base_dir: Path = Path(),
    ) -> SpaceChoice:
        """Create the space specified by ``spec``.

        Args:
            spec: A plug-in specification, or a Space object.
            workload: The workload whose programs the space contains.
            target: The target. It may be None if ``spec`` is a Space object, whose own target is then used.
            label: The name to use in figures and tables, if it differs from the plug-in's name.
            settings: How to measure. If the space has no programs and is specified without options, it uses the options
                recorded in the table that supplies the measurements.
            base_dir: The directory that relative paths start from.

        Raises:
            SearchlabError: If ``spec`` is a Space object with a different workload or target.
            UnsupportedWorkload: If the specified space has no programs for the workload.
        """
        if isinstance(spec, Space):
            if str(spec.workload) != str(workload):
                raise SearchlabError(f"the space is for {spec.workload}; create one for {workload}")
            if target is not None and target != spec.target:
                raise SearchlabError(f"the space is for the target {spec.target}, not for {target}; omit the target")
            return cls(spec, Plugin(SPACES.name_of(type(spec)), dict(spec.made_with)), label)
        assert target is not None
        plugin, space_class = SPACES.resolve(spec)
        without_programs = not getattr(space_class, "has_programs", True)
        recorded_space = None
        if isinstance(settings, TableSettings) and not plugin.options and without_programs:
            recorded_space = settings.find_space(plugin.name, str(workload), base_dir)
        with names_from(base_dir) if recorded_space else nullcontext():
            return cls(SPACES.make(recorded_space or plugin, workload, target), recorded_space or plugin, label)

    @classmethod
    def from_specs(
        cls,
        specs: Sequence[PluginSpec | Space],
        workload: Workload,
        target: Target | None,
        *,
        settings: Settings | None = None,
    ) -> SpaceChoice:
        """Create the first of the specified spaces that has programs for the workload; see :meth:`from_spec`."""
        reasons = []
        for spec in specs:
            try:
                return cls.from_spec(spec, workload, target, settings=settings)
            except UnsupportedWorkload as error:
                reasons.append(str(error))
        raise UnsupportedWorkload("; ".join(reasons))

    @classmethod
    def from_table(cls, table: SuiteTable) -> SpaceChoice:
        """Create the space of a suite's table. Raises SearchlabError if the table was not measured in this space."""
        with names_from(table.directory):
            choice = cls.from_spec(table.plugin, parse_workload(table.entry.workload), table.target())
        check_table(table, choice.space)
        return replace(choice, size=table.header.space_size)

    @property
    def name(self) -> str:
        return escape_to_one_line(self.label or self.plugin.title)


@dataclass(frozen=True)
class Strategy:
    """A policy, together with a cost model and its features if the policy uses one.

    Attributes:
        label: Its name in figures and tables, if it differs from the policy's name.
        without_programs: The features to use if configs have no programs and the user chose no features.
    """

    policy: Plugin
    policy_class: type[Policy]
    cost_model: Plugin | None = None
    features: str = ""
    label: str = ""
    without_programs: str = ""

    @classmethod
    def from_specs(
        cls, policy: PluginSpec, cost_model: PluginSpec | None = None, features: str | None = None, label: str = ""
    ) -> Strategy:
        """Return the specified strategy. For the defaults, see :meth:`~searchlab.policy.Traits.model`.

        Raises SearchlabError if the policy or cost model cannot be found, or a cost model is specified for a policy
        that uses none.
        """
        plugin, policy_class = POLICIES.resolve(policy)
        POLICIES.check_class(plugin.name, policy_class)
        if not policy_class.traits.takes_cost_model:
            for name, value in (("cost_model", cost_model), ("features", features)):
                if value:
                    raise SearchlabError(f"policy {plugin.name!r} does not use a cost model; omit {name} = {value!r}")
            return cls(plugin, policy_class, label=label)
        own_model = policy_class.traits.own_model
        without_programs = own_model.without_programs if own_model and not features else ""
        model, features = policy_class.traits.model(cost_model, features)
        return cls(plugin, policy_class, COST_MODELS.resolve(model)[0], features, label, without_programs)

    @property
    def name(self) -> str:
        return escape_to_one_line(self.label or self.policy.title)

    @property
    def transfers(self) -> bool:
        """Whether the policy also learns from runs of other workloads."""
        return self.policy_class.traits.transfers

    def start(self, space: Space, seed: int) -> tuple[Policy, BoundCostModel | None]:
        """Create the policy, and its cost model if it uses one. Raises SearchlabError if an option is unknown."""
        options = dict(self.policy.options)
        POLICIES.check_options(self.policy, self.policy_class)
        cost_model = None
        if self.cost_model is not None:
            model = make_cost_model(self.cost_model, seed)
            cost_model = options["cost_model"] = BoundCostModel(model, make_features(self.features, space))
        with POLICIES.convert_errors(self.policy_class, "its constructor"):
            return self.policy_class(space, seed=seed, **options), cost_model


def list_default_spaces(workload: Workload) -> Sequence[str]:
    """Return the spaces of which the first that supports ``workload`` is searched unless the user chooses one."""
    return [PARAMETERS] if isinstance(workload, Kernel) else DEFAULT_SPACES


def make_space_spec(
    space: PluginSpec | Space | None,
    restrictions: Sequence[str | Callable[..., Any]] = (),
    schedule: Callable[..., Any] | None = None,
) -> PluginSpec | Space | None:
    """Return ``space`` or, if it is a mapping from knobs to values, the space :data:`PARAMETERS` with these options.

    Raises SearchlabError if there are options but no such mapping, or the mapping is empty or contains a range.
    """
    options = {name: v for name, v in (("restrictions", restrictions), ("schedule", schedule)) if v}
    if isinstance(space, Mapping) and not isinstance(space.get("name"), str | type | Space):
        if not space:
            raise SearchlabError('the space has no knobs; pass at least one with its values, such as {"x": [1, 2, 4]}')
        if "restrictions" in space:
            raise SearchlabError(
                "restrictions would be a knob of the space; specify them beside it (in Python, restrictions=; in a "
                "study, as an option of the space, which is then { name = 'parameters', options = { ... } })"
            )
        for name, values in space.items():
            if isinstance(values, tuple) and len(values) == 2 and all(isinstance(value, float) for value in values):
                raise SearchlabError(
                    f"{name!r} is {values!r}, which may be meant as a range; list all values, such as "
                    f"numpy.linspace{(*values, 5)}, or only these two, {list(values)!r}"
                )
        return {"name": PARAMETERS, "options": {"parameters": dict(space), **options}}
    if options:
        raise SearchlabError(
            f"{' and '.join(options)} can only be passed if the space is a mapping from knobs to values, such as "
            '{"x": [1, 2, 4]}'
        )
    return space
