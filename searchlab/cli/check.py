"""``searchlab check``: a plug-in held against its contract."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from rich.text import Text

from ..errors import SearchlabError
from .terminal import CostModelName, FeaturesName, Options, TargetSpec, out, plugin


class Contract(StrEnum):
    """The contracts that a plug-in can be checked against."""

    policy = "policy"
    space = "space"
    costmodel = "costmodel"


def check(
    kind: Annotated[Contract, typer.Argument(help="The kind of the plug-in.")],
    name: Annotated[
        str, typer.Argument(help="The plug-in, as `searchlab list` names it, or `module:Class`.", metavar="NAME")
    ],
    only: Annotated[
        list[str] | None, typer.Option(help="Make only this check. May be repeated.", metavar="CHECK")
    ] = None,
    option: Options = None,
    seed: Annotated[int, typer.Option(min=0, help="The seed for the check.")] = 0,
    space: Annotated[
        str | None,
        typer.Option(help="The space to check a policy in, if it works in certain spaces only [default: toy spaces]."),
    ] = None,
    workload: Annotated[
        str | None, typer.Option(help="The workload of the space [default: a small one that the space takes].")
    ] = None,
    target: TargetSpec = "native",
    cost_model: CostModelName = None,
    features: FeaturesName = None,
) -> None:
    """Check a policy, space or cost model against its contract: what was expected, what happened, the likely fix."""
    from ..conformance import cost_model_checks, policy_checks, run_checks, selected, space_checks

    spec = plugin(name, option)
    if kind is Contract.policy:
        checks = policy_checks(
            spec, space=space and plugin(space), workload=workload, target=target,
            cost_model=cost_model and plugin(cost_model), features=features, seed=seed,
        )  # fmt: skip
    elif space is not None or (workload is not None and kind is Contract.costmodel):
        raise SearchlabError(f"a {kind} is not checked in a space; leave out --space and, of a costmodel, --workload")
    elif kind is Contract.space:
        checks = space_checks(spec, workload=workload, target=target, seed=seed)
    else:
        checks = cost_model_checks(spec, seed=seed)
    outcomes = []
    for outcome in run_checks(selected(checks, only or [])):
        outcomes.append(outcome)
        lines = outcome.text.splitlines()
        if outcome.status != "FAIL":
            out.print(f"{outcome.status:8} {': '.join([outcome.name, *lines])}", soft_wrap=True, markup=False)
            continue
        out.print(Text.assemble(("FAIL", "bold red"), "     ", (outcome.name, "bold")))
        for line in lines:
            out.print(f"         {line}", soft_wrap=True, markup=False, highlight=False)
    failed = [outcome.name for outcome in outcomes if outcome.status == "FAIL"]
    passed = sum(outcome.status == "pass" for outcome in outcomes)
    out.print(f"{passed} of {len(outcomes)} checks pass" + (f"; {', '.join(failed)} failed" if failed else ""))
    if failed:
        raise typer.Exit(1)
