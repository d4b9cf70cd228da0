"""``searchlab show``: one plug-in, or one workload, explained."""

from __future__ import annotations

import inspect
import json
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from ..errors import SearchlabError, UnsupportedWorkload
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
    from ..policy import POLICIES, Origin, model_of
    from ..space import SPACES

    kinds: dict[Shown, PluginKind[Any]] = {
        Shown.policy: POLICIES, Shown.space: SPACES, Shown.costmodel: COST_MODELS
    }  # fmt: skip
    cls = kinds[kind].load(name)
    kinds[kind].check_class(name, cls)
    _say(Text.assemble((name, "bold"), f"  {cls.__module__}:{cls.__qualname__}"))
    _say(as_text(inspect.getdoc(cls) or "It has no docstring."))
    options = kinds[kind].options_of(cls)
    ranges = _ranges(kind, name)
    table = Table("option", "default", "what it may be", box=None)
    for option, parameter in options.items():
        default = "" if parameter.default is parameter.empty else _shown(parameter.default)
        table.add_row(Text(option, "bold"), default, ranges.get(option) or _type(parameter))
    out.print(table if options else "It has no options.")
    if kind is Shown.policy and cls.own_cost_model:
        model, features = model_of(cls)
        _say(f"its cost model: {COST_MODELS.named(model)[0].name}, with the features {features}")
    origin = vars(cls).get("origin")
    if isinstance(origin, Origin):
        _say(f"{origin.kind}: {origin.name}, {origin.version} ({origin.source})")
        for deviation in origin.deviations:
            _say(f"- {deviation}")


def _ranges(kind: Shown, name: str) -> dict[str, str]:
    """What the options of a plug-in may be, as its constructor checks them; empty if it does not start here."""
    from ..costmodel import make_cost_model
    from ..options import noted
    from ..plugins import Plugin
    from ..run.plan import Strategy

    with noted() as ranges:
        try:
            if kind is Shown.costmodel:
                make_cost_model(Plugin(name), 0)
            elif kind is Shown.policy:
                from ..conformance.toys import Large

                Strategy.of(name).start(Large(), 0)
            else:
                _start_space(name)
        except SearchlabError:  # a policy may work in certain spaces only
            pass
    return ranges


def _start_space(name: str) -> None:
    from ..conformance.spaces import WORKLOADS
    from ..plugins import Plugin
    from ..space import SPACES
    from ..target import resolve_target
    from ..workload import parse_workload

    for text in WORKLOADS:
        try:
            SPACES.make(Plugin(name), parse_workload(text), resolve_target("native"))
        except UnsupportedWorkload:
            continue
        return


def _shown(value: Any) -> str:
    try:
        return json.dumps(value)
    except TypeError:
        return repr(value)


def _type(parameter: inspect.Parameter) -> str:
    if parameter.annotation is parameter.empty:
        return ""
    return inspect.formatannotation(parameter.annotation).strip("'")


def _say(text: str | Text) -> None:
    out.print(text, soft_wrap=True, markup=False, highlight=False)
