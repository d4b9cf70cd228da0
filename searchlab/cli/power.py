"""``searchlab power``: how many seeds and workloads it takes to see a difference."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from ..errors import SearchlabError
from .terminal import AsJson, out


def power(
    study: Annotated[
        list[Path],
        typer.Argument(
            help="A study file, whose runs are in results/STUDY; logs, or directories with logs; a directory that "
            "`suite run --out` wrote: its strategy against the baselines of the suite; or a suite, such as `v1/dev`: a "
            "policy that has no run yet against the baseline that --strategy names.",
            metavar="STUDY...",
        ),
    ],
    difference: Annotated[
        float, typer.Option(min=0, help="The difference of the area under the curve to see: 0.02 is 2 % of all.")
    ] = 0.02,
    chance: Annotated[float, typer.Option("--power", help="The chance to see it, between 0 and 1.")] = 0.8,
    tests: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="The tests that Holm's correction covers [default: all pairs, on each workload and over all].",
        ),
    ] = None,
    registered: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="The number of contrasts registered before the runs, if the pair is one of them; they share 80 % of "
            "the error rate [default for a suite: 1].",
        ),
    ] = None,
    strategy: Annotated[
        str, typer.Option(help="Only the pairs of this strategy with the others, as for a claim about one policy.")
    ] = "",
    suite: Annotated[str, typer.Option(help="The suite of such a directory, where it is not found by its name.")] = "",
    as_json: AsJson = False,
) -> None:
    """Say how many seeds and workloads it takes to see a difference, judged by the runs that there are."""
    import dataclasses

    from ..analysis.power import power_plan
    from ..analysis.read import read_runs
    from ..analysis.summary import summarize
    from ..measure.suite import find_suite
    from ..suite.compare import against_baselines, compare
    from ..suite.trajectories import baselines
    from ..suite.verify import RESULT

    if difference <= 0:
        raise SearchlabError(f"--difference must be above 0, not {difference:g}; 0.02 is 2 % of the area")
    if not 0 < chance < 1:
        raise SearchlabError(f"--power must be between 0 and 1, not {chance:g}; 0.8 is usual")
    if tests and registered:
        raise SearchlabError("--tests and --registered exclude each other; give one of them")
    where = [Path("results") / path.stem if path.suffix == ".toml" else path for path in study]
    is_suite = False
    if any((path / RESULT).is_file() for path in where):
        if len(where) > 1:
            raise SearchlabError(f"name one result of a suite, not {len(where)} places: it is compared with baselines")
        runs, own = against_baselines(where[0] / RESULT, suite)
        strategy = strategy or own
    elif is_suite := len(study) == 1 and not study[0].exists() and _names_suite(study[0]):
        found = find_suite(study[0])
        if not strategy:
            known = ", ".join(one.strategy for one in baselines(found))
            raise SearchlabError(f"name the baseline to compare a new policy with: --strategy, one of {known}")
        runs = compare(found, [], baselines(found), range(found.spec.seeds))
        registered = registered or (None if tests else 1)
    else:
        runs = read_runs(*where)
    plan = power_plan(summarize(runs), difference, chance, tests, strategy, registered=registered, new=is_suite)
    if not plan.needs:
        raise SearchlabError(
            "no two strategies have 2 seeds in common on a workload that differ: run more seeds or trials"
        )
    if as_json:
        print(json.dumps(dataclasses.asdict(plan), indent=2))
        return
    table = Table(
        title=f"To see a difference of {difference:g} of the area under the curve with a chance of {100 * chance:g} %, "
        f"as one of {plan.tests} {'registered contrast' if plan.registered else 'test'}{'s' * (plan.tests != 1)}",
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    table.add_column("pair", overflow="fold")
    columns = (
        "varies by seed",
        "by workload",
        "seeds, on one workload",
        f"seeds, on these {plan.workloads}",
        f"workloads like these, {plan.seeds} seeds each",
    )
    for column in columns:
        table.add_column(column, justify="right")
    for need in plan.needs:
        between = need.variation.workloads
        table.add_row(
            escape(f"{need.first}, {need.second}"),
            f"{need.variation.seeds:.3f}",
            "-" if between is None else f"{between:.3f}",
            *("-" if number is None else f"{number:,}" for number in (need.seeds_alone, need.seeds_together)),
            "-" if need.workloads is None else f"{need.workloads:,}",
        )
    out.print(table)
    if plan.workloads == 1:
        out.print("One workload does not say how workloads vary: run others to plan for workloads like these.")


def _names_suite(path: Path) -> bool:
    """Whether ``path`` begins with the name of a suite, such as ``v1/dev``."""
    from ..measure.suite import installed_suites

    return path.parts[0] in installed_suites()
