"""``searchlab list``: the names that the other commands take."""

from __future__ import annotations

import ast
import json
from dataclasses import asdict
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from .terminal import AsJson, as_text, out

if TYPE_CHECKING:
    from ..plugins import PluginKind


class Kind(StrEnum):
    spaces = "spaces"
    policies = "policies"
    costmodels = "costmodels"
    executors = "executors"
    workloads = "workloads"


def list_(
    kind: Annotated[Kind | None, typer.Argument(help="List only these.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the installed spaces, policies, cost models and executors, and the workloads that have a name, a line each.

    `searchlab list policies` also says which published strategy a policy is. `searchlab show policy NAME` says more.
    """
    from ..costmodel import COST_MODELS
    from ..executors.contract import EXECUTORS
    from ..policy import POLICIES, origins
    from ..space import SPACES
    from ..workload import parse_workload, preset_names

    listed: dict[str, dict[str, str]] = {}
    kinds: dict[Kind, PluginKind[Any]] = {
        Kind.spaces: SPACES, Kind.policies: POLICIES, Kind.costmodels: COST_MODELS, Kind.executors: EXECUTORS,
    }  # fmt: skip
    for shown, registered in kinds.items():
        listed[shown.value] = {name: point.value for name, point in registered.installed().items()}
    listed["workloads"] = {name: str(parse_workload(name)) for name in preset_names()}
    if kind:
        listed = {kind.value: listed[kind.value]}
    declared = origins() if kind is Kind.policies else {}
    if as_json:
        told = {name: asdict(origin) for name, origin in declared.items()}
        print(json.dumps(listed | ({"origins": told} if kind is Kind.policies else {}), indent=2))
        return
    for title, names in listed.items():
        table = Table(title=title, title_justify="left", box=None, show_header=False)
        for name, meaning in names.items():
            said = meaning if title == Kind.workloads else _first_sentence(meaning) or meaning
            if origin := declared.get(name):
                said += f" ({origin.kind}: {origin.name}, {origin.version})"
            table.add_row(Text(name, "bold"), said)
        out.print(table)


def _first_sentence(value: str) -> str:
    """The first sentence of the docstring of the class ``module:Class``, read from its file; nothing is imported."""
    module, _, name = value.partition(":")
    package, *inner = module.split(".")
    try:
        spec = find_spec(package)  # of a top-level name: it imports nothing
        if spec is None or spec.origin is None:
            return ""
        place = Path(spec.origin).parent.joinpath(*inner) if inner else Path(spec.origin)
        file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
        body = ast.parse(file.read_text(encoding="utf-8")).body
    except (ImportError, OSError, ValueError, SyntaxError):
        return ""
    classes = [node for node in body if isinstance(node, ast.ClassDef) and node.name == name]
    text = " ".join((ast.get_docstring(classes[0]) or "").partition("\n\n")[0].split()) if classes else ""
    return as_text(text.partition(". ")[0].rstrip("."))
