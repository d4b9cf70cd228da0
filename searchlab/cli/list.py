"""``searchlab list``: the names that the other commands take."""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from .terminal import AsJson, out


class Kind(StrEnum):
    spaces = "spaces"
    policies = "policies"
    costmodels = "costmodels"
    workloads = "workloads"


def list_(
    kind: Annotated[Kind | None, typer.Argument(help="List only these.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the installed spaces, policies and cost models, and the workloads that have a name.

    `searchlab list policies` also says which published strategy a policy is, and in which points it differs.
    """
    from ..costmodel import COST_MODELS
    from ..policy import POLICIES, origins
    from ..space import SPACES
    from ..workload import parse_workload
    from ..workload.resnet50 import preset_names

    listed: dict[str, dict[str, str]] = {}
    for shown, registered in ((Kind.spaces, SPACES), (Kind.policies, POLICIES), (Kind.costmodels, COST_MODELS)):
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
            table.add_row(Text(name, "bold"), meaning)
            if origin := declared.get(name):
                table.add_row("", f"{origin.kind}: {origin.name}, {origin.version} ({origin.source})")
                for deviation in origin.deviations:
                    table.add_row("", f"- {deviation}")
        out.print(table)
