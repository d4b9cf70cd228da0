"""The classes and objects that a script passes to a study, and the names that replace them in the study's data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ..costmodel import COST_MODELS
from ..errors import SearchlabError
from ..options import plain as plain_value
from ..plugins import Plugin, PluginKind
from ..policy import POLICIES
from ..space import SPACES, Space
from ..target import Target
from ..workload import Workload, parse_workload


@dataclass(frozen=True)
class UserObjects:
    """The classes and objects that a script passed to a study, by the names that replace them there.

    Attributes:
        spaces: The spaces, by label or class name and then by workload.
    """

    policies: dict[str, type[Any]] = field(default_factory=dict)
    spaces: dict[str, dict[str, Space]] = field(default_factory=dict)
    workloads: dict[str, Workload] = field(default_factory=dict)


def names_for_objects(data: Mapping[str, Any]) -> tuple[dict[str, Any], UserObjects]:
    """Replace the classes and objects in ``data`` with names. :meth:`Study.from_dict` describes ``data``.

    Raises SearchlabError if the class of a space or cost model cannot be found by its name.
    """
    if not isinstance(data, Mapping):
        raise SearchlabError(f"a study must be a mapping with the keys of a study file, not {data!r:.200}")
    plain_data, objects = {name: plain_value(value) for name, value in data.items()}, UserObjects()
    for key in ("policies", "cost_models", "spaces"):
        if isinstance(plain_data.get(key), list | tuple):
            entries = [_replace_objects(key, item, objects) for item in plain_data[key]]
            plain_data[key] = [entry for entry in entries if entry is not None]
    if objects.spaces and "workloads" not in plain_data and "suite" not in plain_data:
        space_objects = [space for spaces in objects.spaces.values() for space in spaces.values()]
        plain_data["workloads"] = list({str(space.workload): space.workload for space in space_objects}.values())
    if isinstance(plain_data.get("workloads"), list | tuple):
        workloads = [parse_workload(item) if callable(item) else item for item in plain_data["workloads"]]
        objects.workloads.update({str(item): item for item in workloads if isinstance(item, Workload)})
        plain_data["workloads"] = [str(item) if isinstance(item, Workload) else item for item in workloads]
    if isinstance(plain_data.get("target"), Target):
        plain_data["target"] = plain_data["target"].to_json()
    if isinstance(plain_data.get("measure"), msgspec.Struct):
        plain_data["measure"] = msgspec.to_builtins(plain_data["measure"])
    return plain_data, objects


def _replace_objects(list_name: str, value: Any, objects: UserObjects) -> Any:
    """Return an entry in a list with names, or None for a space that an earlier entry of the list already covers."""
    entry = dict(value) if isinstance(value, Mapping) else {"name": value}
    name = entry.get("name")
    if isinstance(name, Space):
        return _replace_space(name, entry, objects)
    if not isinstance(name, type):
        return value
    if list_name == "policies":
        entry["name"] = POLICIES.name_of(name)
        objects.policies[entry["name"]] = name
        return entry
    kind: PluginKind[Any] = COST_MODELS if list_name == "cost_models" else SPACES
    entry["name"] = kind.name_of(name)
    if "<locals>" in entry["name"] or kind.load(entry["name"]) is not name:
        raise SearchlabError(
            f"the {kind.title} {entry['name']!r} cannot be found by its name; define its class at the top level of a "
            f"module"
        )
    return entry


def _replace_space(space: Space, entry: dict[str, Any], objects: UserObjects) -> dict[str, Any] | None:
    if "options" in entry:
        raise SearchlabError(f"the {space} space already has options; omit options = {entry['options']!r}")
    name = SPACES.name_of(type(space))
    label = entry.get("label") or Plugin(name).title
    spaces = objects.spaces.setdefault(label, {})
    if str(space.workload) in spaces:
        raise SearchlabError(f"two spaces for {space.workload} are called {label!r}; give one of them a unique label")
    spaces[str(space.workload)] = space
    return {**entry, "name": name} if len(spaces) == 1 else None
