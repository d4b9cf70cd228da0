"""``searchlab hypertune``: the options of a policy, searched on recorded tables."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from .terminal import AsJson, again, interruptible, out

if TYPE_CHECKING:
    from ..analysis.stats.intervals import Interval
    from ..hypertune import HyperPlan, Hypertuned
    from ..hypertune.model import Compared, ProblemScores


def hypertune(
    study: Annotated[Path, typer.Argument(help="A study file that measures from a table.", metavar="STUDY.toml")],
    policy: Annotated[
        str,
        typer.Option(
            help="The policy whose options are searched: an entry of the study, by label or name, or another policy."
        ),
    ],
    option: Annotated[
        list[str] | None,
        typer.Option(
            help="An option to search, as `name=low..high`, `name=low..high:log` or `name=a,b,c`; may be repeated "
            "[default: every option whose default is a switch, or a number above 0: from a quarter of it to four "
            "times it].",
            metavar="NAME=RANGE",
        ),
    ] = None,
    hold_out: Annotated[
        list[str] | None,
        typer.Option(
            help="A workload of the study that no search sees; may be repeated [default: each workload in turn].",
            metavar="WORKLOAD",
        ),
    ] = None,
    trials: Annotated[int, typer.Option(min=1, help="The number of sets of options that each search tries.")] = 50,
    seeds: Annotated[int, typer.Option(min=1, help="The number of runs on each task that judge a set of options.")] = 5,
    fresh_seeds: Annotated[
        int, typer.Option(min=2, help="The number of other runs on each task, for the comparison at the end.")
    ] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Decides which options are tried, and the seeds of all runs.")] = 0,
    directory: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="The directory for the searches, in Optuna's journal format, and the result [default: "
            "results/hypertune/STUDY-POLICY].",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Search the options of a policy on recorded tables, and show on other workloads whether they are better.

    To resume, run it again; to go on, raise `--trials`. A table takes no time, so scores count trials, not seconds.
    """
    from ..console import Terminal
    from ..hypertune import plan_hypertune
    from ..run.study import Study

    console = Terminal(stderr=True) if as_json else out
    directory = directory or Path("results", "hypertune", re.sub(r"[^\w.+-]+", "_", f"{study.stem}-{policy}"))
    plan = plan_hypertune(
        Study.load(study), policy, options=option or [], hold_out=hold_out or [], trials=trials, seeds=seeds,
        fresh_seeds=fresh_seeds, seed=seed,
    )  # fmt: skip
    if not as_json:
        _say_plan(plan)
    with interruptible(again()):
        result = _run(plan, directory, console)
    text = json.dumps(result.to_json(), indent=2)
    (directory / "hypertune.json").write_text(text + "\n")
    if as_json:
        print(text)
    else:
        _say_result(result, directory)


def _run(plan: HyperPlan, directory: Path, console: Any) -> Hypertuned:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False), BarColumn(bar_width=24), MofNCompleteColumn(),
        TextColumn("{task.fields[best]}", style="bold", markup=False), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console) as progress:
        bars: dict[str, Any] = {}
        best: dict[str, float] = {}

        def on_trial(search: str, number: int, score: float | None) -> None:
            if search not in bars:
                bars[search] = progress.add_task(f"search {search}", total=plan.trials, best="")
            if score is not None:
                best[search] = max(score, best.get(search, score))
            shown = f"best score {best[search]:.3f}" if search in best else ""
            progress.update(bars[search], completed=number + 1, best=shown)

        return plan.run(directory, on_trial)


def _say_plan(plan: HyperPlan) -> None:
    from ..hypertune.ranges import spelled

    for note in plan.notes:
        _say(f"note: {note}")
    for name, distribution in plan.ranges.items():
        at = f" (default {json.dumps(plan.default[name])})" if name in plan.default else ""
        _say(f"searched: {name}={spelled(distribution)}{at}")
    if plan.others:
        _say("as they are: " + ", ".join(f"{name} = {value}" for name, value in plan.others.items()))


def _say_result(result: Hypertuned, directory: Path) -> None:
    from ..hypertune.compare import above

    title = (
        "score against random search: 0 as good, 1 the best from the start; over the trials until that is nearly there"
    )
    rows = Table(box=None, title=title)
    rows.title_justify = "left"
    rows.add_column("", overflow="fold")
    for title in ("trials", "default", "found", "gain"):
        rows.add_column(title, no_wrap=True, justify="right")
    held_out = [row for search in result.searches for row in search.problems if row.held_out]
    several = len({row.space for row in held_out}) > 1
    for row in held_out:
        task = f"{row.workload} in {row.space}" if several else row.workload
        rows.add_row(Text(task), str(row.trials), *_cells(row))
    if result.held_out:
        rows.add_row(Text("all held out", "bold"), "", *_cells(result.held_out))
    rows.add_row(Text("all searched on", "bold"), "", *_cells(result.training))
    out.print(rows)
    runs = "in brackets 95 % intervals over runs from seeds that no search saw"
    if note := (result.held_out or result.training).gain.note:
        runs += f"; where there is none: {note.rstrip('.')}"
    _say(runs + (f"; {100 * result.nearest:.1f} % of their trials are not in the table" if result.nearest else ""))
    for search in result.searches:
        refused = f", {search.refused} of them refused by the policy" if search.refused else ""
        same = ", as by default" if search.options == result.default_options else ""
        _say(f"search {search.name}: {search.trials} trials{refused}, best {_options(search.options)}{same}")
    out.print(Text(result.verdict, "bold"), soft_wrap=True, highlight=False)
    judged = result.held_out or result.training
    if above(judged.gain) and result.options != result.default_options:
        entry = json.dumps(result.policy)
        _say(f"in a study file: policies = [{{ name = {entry}, options = {_options(result.options)} }}]")
    _say(f"the trials: optuna-dashboard {directory / 'optuna.log'}")


def _cells(row: Compared | ProblemScores) -> list[str]:
    return [_estimate(row.default), _estimate(row.found), _estimate(row.gain, "+")]


def _estimate(estimate: Interval, sign: str = "") -> str:
    if estimate.lower is None:
        return f"{estimate.value:{sign}.3f}"
    return f"{estimate.value:{sign}.3f} [{estimate.lower:{sign}.3f}, {estimate.upper:{sign}.3f}]"


def _options(options: Mapping[str, Any]) -> str:
    """As TOML spells it."""
    return "{ " + ", ".join(f"{name} = {json.dumps(value)}" for name, value in options.items()) + " }"


def _say(text: str) -> None:
    out.print(text, soft_wrap=True, markup=False, highlight=False)
