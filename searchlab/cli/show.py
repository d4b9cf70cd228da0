"""``searchlab show``: one plug-in, or one workload, explained."""

from __future__ import annotations

import inspect
import json
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from .terminal import as_text, out

if TYPE_CHECKING:
    from ..plugins import PluginKind


class Shown(StrEnum):
    """What can be shown."""

    policy = "policy"
    space = "space"
    costmodel = "costmodel"
    workload = "workload"


def show(
    kind: Annotated[Shown, typer.Argument(help="What it is.")],
    name: Annotated[
        str, typer.Argument(help="As `searchlab list` names it; `module:Class`; or a workload.", metavar="NAME")
    ],
) -> None:
    """Explain a policy, a space, a cost model or a workload: what it does, its options, where it comes from."""
    if kind is Shown.workload:
        _show_workload(name)
    else:
        _show_plugin(kind, name)


def _show_workload(name: str) -> None:
    from ..workload import parse_workload

    workload = parse_workload(name)
    _say(Text(str(workload), "bold"))
    _say(as_text(inspect.getdoc(type(workload)) or ""))
    _say(f"one run of it takes {workload.flops:,} FLOP; throughput is in {workload.unit}")


def _show_plugin(kind: Shown, name: str) -> None:
    from ..costmodel import COST_MODELS
    from ..policy import POLICIES, Origin
    from ..space import SPACES

    kinds: dict[Shown, PluginKind[Any]] = {
        Shown.policy: POLICIES, Shown.space: SPACES, Shown.costmodel: COST_MODELS
    }  # fmt: skip
    cls = kinds[kind].load(name)
    kinds[kind].check_class(name, cls)
    _say(Text.assemble((name, "bold"), f"  {cls.__module__}:{cls.__qualname__}"))
    _say(as_text(inspect.getdoc(cls) or "It has no docstring."))
    options = kinds[kind].options_of(cls)
    table = Table("option", "default", "what it may be", box=None)
    for option, parameter in options.items():
        default = "" if parameter.default is parameter.empty else default_text(parameter.default)
        table.add_row(Text(option, "bold"), default, allowed_text(parameter))
    out.print(table if options else "It has no options.")
    if kind is Shown.policy and (own := cls.traits.own_model):
        _say(f"its cost model: {COST_MODELS.named(own.cost_model)[0].name}, with the features {own.features}")
    origin = vars(cls).get("origin")
    if isinstance(origin, Origin):
        _say(f"{origin.kind}: {origin.name}, {origin.version} ({origin.source})")
        for deviation in origin.deviations:
            _say(f"- {deviation}")


def default_text(value: Any) -> str:
    """Return the default of an option as a study file would spell it."""
    try:
        return json.dumps(value)
    except TypeError:
        return repr(value)


def allowed_text(parameter: inspect.Parameter) -> str:
    """Return in words the values that an option may have; empty if it declares none."""
    from ..options import in_words

    if parameter.annotation is parameter.empty:
        return ""
    return in_words(parameter.annotation) or inspect.formatannotation(parameter.annotation).strip("'")


def _say(text: str | Text) -> None:
    out.print(text, soft_wrap=True, markup=False, highlight=False)
