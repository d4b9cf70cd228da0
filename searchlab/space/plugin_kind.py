"""The look-up of spaces by name."""

from __future__ import annotations

from typing import Any, TypeVar

from ..errors import UnsupportedWorkload, first_line
from ..plugins import Plugin, PluginKind
from ..target import Target
from ..workload import Kernel, Workload

SpaceT = TypeVar("SpaceT")
"""The contract of spaces; its module imports this one."""

PARAMETERS = "parameters"
"""The name of the space of a mapping from knobs to values, and of other tuners' tables. A plug-in implements it."""


class SpaceKind(PluginKind[SpaceT]):
    """The plug-in kind of spaces. If a space does not support a workload, the error names the spaces that do."""

    def make(self, plugin: Plugin, *args: Any, **kwargs: Any) -> SpaceT:
        try:
            return super().make(plugin, *args, **kwargs)
        except UnsupportedWorkload as error:
            workload, target = args
            if isinstance(workload, Kernel):  # no space has programs for it
                raise
            space_names = " or ".join(self.spaces_for(workload, target))
            remedy = f"use {space_names}" if space_names else "no installed space has any"
            raise UnsupportedWorkload(f"{error}; {remedy}") from None

    def spaces_for(self, workload: Workload, target: Target) -> list[str]:
        """Return the names of the installed spaces that have programs for ``workload`` on ``target``."""
        return [name for name, reason in self.refusals(workload, target).items() if not reason]

    def refusals(self, workload: Workload, target: Target) -> dict[str, str]:
        """Return why each installed space has no programs for ``workload`` on ``target``; empty for those that have.

        The space :data:`PARAMETERS`, which has no programs of its own, is omitted.
        """
        reasons = {}
        for name in self.entry_points_by_name():
            if name != PARAMETERS:
                try:
                    space_class: Any = self.load(name)
                    has_programs = space_class(workload, target).has_programs
                    reasons[name] = "" if has_programs else f"space {name!r} has no programs, only recorded times"
                except Exception as error:  # a plug-in may raise anything
                    reasons[name] = first_line(error)
        return reasons
