"""Classes and objects in a study that a script gives: what stands for them in the words of a study file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ..costmodel import COST_MODELS
from ..errors import SearchlabError
from ..plugins import PluginKind
from ..policy import POLICIES
from ..space import SPACES, Space
from ..target import Target
from ..workload import Workload


@dataclass(frozen=True)
class Given:
    """What the names in a study stand for.

    policies: classes by name. spaces: by their label, or else by the name of their class, then by their workload.
    """

    policies: dict[str, type[Any]] = field(default_factory=dict)
    spaces: dict[str, dict[str, Space]] = field(default_factory=dict)


def spelled(data: Mapping[str, Any]) -> tuple[dict[str, Any], Given]:
    """``data`` with the keys of a study file, in its words; and what those words stand for.

    A policy, space or cost model may be given as its class, also as the ``name`` of an entry; a space also as a Space,
    whose workload is one of the study where ``workloads`` is left out; a workload as a Workload; the target as a
    Target; and ``measure`` as settings. Raises SearchlabError for a class of a space or a cost model that cannot be
    found by its name.
    """
    plain, given = dict(data), Given()
    for key in ("policies", "cost_models", "spaces"):
        if isinstance(plain.get(key), list | tuple):
            plain[key] = [entry for item in plain[key] if (entry := _entry(key, item, given)) is not None]
    if given.spaces and "workloads" not in plain and "suite" not in plain:
        plain["workloads"] = list(dict.fromkeys(text for spaces in given.spaces.values() for text in spaces))
    if isinstance(plain.get("workloads"), list | tuple):
        plain["workloads"] = [str(one) if isinstance(one, Workload) else one for one in plain["workloads"]]
    if isinstance(plain.get("target"), Target):
        plain["target"] = plain["target"].to_json()
    if isinstance(plain.get("measure"), msgspec.Struct):
        plain["measure"] = msgspec.to_builtins(plain["measure"])
    return plain, given


def named(value: object) -> str:
    """A function, a class or another object of a script, as the copy of a study names it."""
    what: Any = value if hasattr(value, "__qualname__") else type(value)
    return f"{what.__module__}:{what.__qualname__}"


def _entry(key: str, item: Any, given: Given) -> Any:
    """The entry ``item`` of the list ``key`` in the words of a study file; None for a space that is in an entry."""
    entry = dict(item) if isinstance(item, Mapping) else {"name": item}
    name = entry.get("name")
    if isinstance(name, Space):
        return _space(name, entry, given)
    if not isinstance(name, type):
        return item
    if key == "policies":
        entry["name"] = POLICIES.name_of(name)
        given.policies[entry["name"]] = name
    else:
        entry["name"] = _found(COST_MODELS if key == "cost_models" else SPACES, name)
    return entry


def _space(space: Space, entry: dict[str, Any], given: Given) -> dict[str, Any] | None:
    if "options" in entry:
        raise SearchlabError(f"the space {space} is made already; leave out options, {entry['options']!r}")
    name = SPACES.name_of(type(space))
    label = entry.get("label") or name
    known = given.spaces.setdefault(label, {})
    if str(space.workload) in known:
        raise SearchlabError(f"two spaces for {space.workload} are called {label!r}; give one of them a label")
    known[str(space.workload)] = space
    return {**entry, "name": name} if len(known) == 1 else None


def _found(kind: PluginKind[Any], cls: type[Any]) -> str:
    """The name of ``cls``, by which it is found again."""
    name = kind.name_of(cls)
    if "<locals>" in name or kind.load(name) is not cls:
        raise SearchlabError(
            f"the {kind.title} {name!r} cannot be found by its name; define its class at the top level of a module"
        )
    return name
