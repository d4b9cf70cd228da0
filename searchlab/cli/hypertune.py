"""``searchlab hypertune``: tune a policy's options on recorded tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from rich.text import Text
from typer import Option

from ..files import file_name, write_file
from ..hypertune.plan import plan_hypertune
from ..hypertune.ranges import list_range_values
from ..hypertune.result import HypertuneResult, ScoreComparison, is_above_noise
from ..hypertune.search import DATABASE_NAME
from ..options import Seed, SeedCount, Trials
from ..run.progress import RunProgress
from ..run.study import Study
from . import parameters
from .parameters import number_option, parse_name_and_value
from .terminal import err, interruptible, out, say, say_json, say_table


def hypertune(
    study: parameters.StudyFile,
    policy: Annotated[str, Option(help="The policy: the label or name of an entry in the study, or any other policy.")],
    option: Annotated[
        list[str] | None,
        Option(
            help="An option to search, with the two ends of a range (`population=[4,64]`) or any other list of choices "
            '(`start=["best","random"]`), in JSON. May be repeated [default: all options with a positive default, from '
            "a quarter of it to four times it, and all choices of the others].",
            metavar="NAME=LIST",
        ),
    ] = None,
    hold_out: Annotated[
        list[str] | None,
        Option(
            help="A workload to hold out of the search. May be repeated [default: each workload in turn].",
            metavar="WORKLOAD",
        ),
    ] = None,
    trials: Annotated[int, number_option(Trials, help="The number of option sets to try in each search.")] = 50,
    seeds: Annotated[
        int, number_option(SeedCount, help="The number of runs per workload and space for scoring an option set.")
    ] = 5,
    fresh_seeds: Annotated[
        int,
        Option(min=2, max=10_000, help="The number of additional runs, with other seeds, for the final comparison."),
    ] = 20,
    seed: Annotated[
        int, number_option(Seed, help="The seed, which determines the option sets to try and all runs.")
    ] = 0,
    out_dir: Annotated[
        Path | None,
        Option(
            "--out",
            help="The directory for the searches (a database of Optuna) and the result [default: "
            "results/hypertune/STUDY-POLICY].",
        ),
    ] = None,
    as_json: parameters.AsJson = False,
) -> None:
    """Tune a policy's options on recorded tables, and test on held-out workloads whether they improve on the defaults.

    To resume, repeat the command; to extend the search, increase `--trials`. Scores are based on trials rather than
    seconds, because a table supplies measurements instantly.
    """
    out_dir = out_dir or Path("results", "hypertune", file_name(f"{study.stem}-{policy}"))
    plan = plan_hypertune(
        Study.load(study),
        policy,
        options=dict(map(parse_name_and_value, option or [])),
        hold_out=hold_out or [],
        trials=trials,
        seeds=seeds,
        fresh_seeds=fresh_seeds,
        seed=seed,
    )
    if not as_json:
        for note in plan.notes:
            say(f"note: {note}")
        for name, values in plan.ranges.items():
            default = f" (default {json.dumps(plan.default_options[name])})" if name in plan.default_options else ""
            say(f"searched: {name}={json.dumps(list_range_values(values))}{default}")
        if plan.fixed_options:
            say("not searched: " + ", ".join(f"{name} = {value}" for name, value in plan.fixed_options.items()))
    best: dict[str, float] = {}
    with interruptible(), RunProgress(err if as_json else out) as progress:

        def on_trial(search: str, number: int, score: float | None) -> None:
            if score is not None:
                best[search] = max(score, best.get(search, score))
            score_text = f", best score {best[search]:.3f}" if search in best else ""
            progress.show(f"search {search}{score_text}", number + 1, plan.trial_count)

        result = plan.run(out_dir, on_trial)
    write_file(out_dir / "hypertune.json", json.dumps(result.to_json(), indent=2) + "\n", under=out_dir)
    if as_json:
        say_json(result)
    else:
        _say_result(result, out_dir)


def _say_result(result: HypertuneResult, out_dir: Path) -> None:
    def row(name: str | Text, trial_count: int | str, scores: ScoreComparison) -> tuple[object, ...]:
        return name, trial_count, scores.default.text(), scores.tuned.text(), scores.gain.text("+")

    held_out = [problem for search in result.searches for problem in search.problems if problem.held_out]
    has_several_spaces = len({problem.space for problem in held_out}) > 1
    rows = [
        row(problem.workload + (f" in {problem.space}" if has_several_spaces else ""), problem.trial_count, problem)
        for problem in held_out
    ]
    if result.held_out:
        rows.append(row(Text("all held out", "bold"), "", result.held_out))
    rows.append(row(Text("all searched on", "bold"), "", result.training))
    columns = ("", "trials", "default", "tuned", "gain")
    title = (
        "scores until random search comes close to the best: 0 is level with random search, 1 is the best from the "
        "start"
    )
    say_table(columns, rows, right_aligned=columns[1:], title=title)
    comparison = result.held_out or result.training
    missing_text = f"; one is missing: {comparison.gain.note.rstrip('.')}" if comparison.gain.note else ""
    say(f"in brackets: 95 % intervals over runs with seeds that no search used{missing_text}")
    for search in result.searches:
        rejections = f", {search.refused} of them rejected by the policy" if search.refused else ""
        default_text = ", which is the default" if search.options == result.default_options else ""
        best_text = f"best {_format_options(search.options)}{default_text}"
        say(f"search {search.name}: {search.trial_count} trials{rejections}, {best_text}")
    say(Text(result.verdict, "bold"))
    if is_above_noise(comparison.gain) and result.options != result.default_options:
        policy_text = json.dumps(result.policy)
        options = _format_options(result.options)
        say(f"to use them in a study file: policies = [{{ name = {policy_text}, options = {options} }}]")
    say(f"browse the trials: optuna-dashboard sqlite:///{out_dir / DATABASE_NAME}")


def _format_options(options: Mapping[str, Any]) -> str:
    """Return the options as TOML."""
    return "{ " + ", ".join(f"{name} = {json.dumps(value)}" for name, value in options.items()) + " }"
