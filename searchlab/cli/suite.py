"""``searchlab suite``: tables that a claim about policies can rest on."""

from __future__ import annotations

import json
from contextlib import nullcontext
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.markdown import Markdown
from rich.table import Table
from rich.text import Text

from ..errors import SearchlabError
from .terminal import AsJson, CostModelName, FeaturesName, PolicyOptions, again, err, interruptible, out, plugin


class Split(StrEnum):
    """A split of a suite."""

    dev = "dev"
    test = "test"


suites = typer.Typer(no_args_is_help=True, help="Suites of tables that a claim about policies can rest on.")

Name = Annotated[
    str,
    typer.Argument(
        help="`v1`, or the path of a directory; with `/dev` or `/test` one split of it, with `/TABLE` one table.",
        metavar="SUITE",
    ),
]
Directory = Annotated[str, typer.Argument(help="The suite: a name, or the path of its directory.", metavar="SUITE")]
Everything = Annotated[bool, typer.Option("--all", help="Replay all runs, not a sample.")]


@suites.command(name="list")
def suite_list() -> None:
    """The suites that are found by name."""
    from ..measure.suite import installed_suites, read_suite

    table = Table("suite", "title", "tables", "dev", "test", "baselines", box=None)
    for name, directory in installed_suites().items():
        suite = read_suite(directory)
        splits = [str(sum(entry.split == split for entry in suite.spec.tables)) for split in ("dev", "test")]
        shipped = len(list(directory.glob("baselines/*.json.gz")))
        table.add_row(name, suite.spec.title, str(len(suite.spec.tables)), *splits, str(shipped))
    out.print(table if table.rows else "no suite is installed; name one by the path of its directory")


@suites.command(name="info")
def suite_info(
    suite: Name,
    table: Annotated[str, typer.Argument(help="A table, to show its card.", metavar="TABLE")] = "",
    as_json: AsJson = False,
) -> None:
    """The tables of a suite: how large and how hard each is; or the card of one."""
    from ..measure.suite import find_suite
    from ..suite.cards import Card
    from ..suite.trajectories import RecordedTable

    found = find_suite(suite)
    if table:
        out.print(Markdown(Card(RecordedTable(found.table(table))).text()))
        return
    cards = [Card(RecordedTable(one)) for one in found.tables]
    if as_json:
        print(json.dumps([card.to_json() for card in cards], indent=2))
        return
    shown = Table(
        title=f"{found.spec.title}: {found.name}", title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    for column in ("table", "split"):
        shown.add_column(column, overflow="fold")
    for column in ("configs", "failed", "GFLOPS", "noise", "after 100 draws", "draws to 5 %"):
        shown.add_column(column, justify="right")
    for card in cards:
        noise = "" if card.info.noise is None else f"{100 * card.info.noise:.1f} %"
        slower = f"+{100 * card.distances[100]:.1f} %" if card.draws else ""
        draws = f"{card.draws[0]:.0f}, {card.draws[1]}" if card.draws else ""
        name, split = card.table.entry.name, card.table.entry.split
        shown.add_row(name, split, f"{card.configs:,}", f"{card.failed:,}", f"{card.best:.1f}", noise, slower, draws)
    out.print(shown)
    out.print(
        "after 100 draws: how much longer than the optimum the best of 100 random draws takes, expected. draws to 5 %: "
        "random draws to a config within 5 % of the best, expected, and enough in 95 of 100 runs.",
        soft_wrap=True,
    )


@suites.command(name="run")
def suite_run(
    suite: Name,
    policy: Annotated[str, typer.Option(help="The policy: `module:Policy`, or a registered name.")],
    against: Annotated[
        str,
        typer.Option(
            help="Baselines to register comparisons with, as `xgb,tpe,random` [default: random, the best on the dev "
            "split, and the one that the policy derives from]."
        ),
    ] = "",
    option: PolicyOptions = None,
    batch: Annotated[int, typer.Option(min=1, help="Configs that the policy is asked for at a time.")] = 8,
    cost_model: CostModelName = None,
    features: FeaturesName = None,
    label: Annotated[str, typer.Option(help="Its name in tables and pictures.")] = "",
    split: Annotated[
        Split | None,
        typer.Option(
            help="The tables to run over: `dev` to develop a policy, `test` once, for the claim [default: dev, or what "
            "SUITE names]."
        ),
    ] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Runs over each table [default: the protocol's].")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Runs at the same time.")] = 1,
    directory: Annotated[
        Path | None,
        typer.Option("--out", help="A directory for the report, the logs, and the runs as others can verify them."),
    ] = None,
    require_better: Annotated[
        bool,
        typer.Option("--require-better", help="Exit with code 3 unless it is better than each baseline of --against."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Compare a policy with the baselines of a suite, over its dev tables unless you ask for the test split.

    Only the policy is run; the runs of the baselines are part of the suite. Before the first run, the comparisons with
    the baselines of `--against` are registered: each is one test over all tables. All other comparisons are in the
    report (`--out`). Tune a policy on `dev` alone, and run it once with `--split test`; the result records how many
    strategies you have run over the test split.
    """
    from msgspec.structs import replace

    from ..analysis import summarize
    from ..machine.scratch import ScratchFolder
    from ..measure.suite import find_suite
    from ..policy import POLICIES
    from ..suite.answer import SuiteAnswer
    from ..suite.compare import compare, default_baselines, label_for, run_policy, searched, suite_study
    from ..suite.trajectories import baselines, write_trajectories
    from ..suite.uses import count_use
    from ..suite.verify import RESULT

    found = find_suite(suite)
    if split and (found.only or found.split not in (None, split.value)):
        raise SearchlabError(f"{found.name} is one part of a suite already; leave out --split {split.value}")
    if not (found.split or found.only):
        found = found.part(split.value if split else "dev")
    shipped = baselines(found)
    named = plugin(policy, option)
    chosen = against.split(",") if against else default_baselines(found, POLICIES.load(named["name"]))
    baselines(found, chosen)  # refuses a name that is no baseline, before anything runs
    entry = {
        **named, "batch": batch, "label": label_for(named["name"], label, {one.strategy for one in shipped}),
        **({"cost_model": plugin(cost_model)} if cost_model else {}), **({"features": features} if features else {}),
    }  # fmt: skip
    study = suite_study(found, entry, seeds, chosen)
    notes = err if as_json else out
    scratch = ScratchFolder() if directory is None else nullcontext(str(directory))
    with interruptible(again()), scratch as place:
        for reason in study.plan()[1]:
            notes.print(f"note: {reason}", soft_wrap=True)
        new = run_policy(study, Path(place) / "logs", jobs, progress=notes)
        if any(table.entry.split == "test" for table in found.tables):
            new = replace(new, test_uses=(uses := count_use(new)))
            if uses > 1:
                notes.print(
                    f"note: you have run {uses} strategies over the test split of {found.spec.version}; the protocol "
                    f"asks for one, chosen on the dev split, and the result says how many there were",
                    soft_wrap=True,
                )
        if unregistered := [name for name in chosen if (new.strategy, name) not in new.contrasts]:
            notes.print(
                f"note: the runs in {directory} began before they were registered to be compared with "
                f"{', '.join(unregistered)}; use another --out to register this",
                soft_wrap=True,
            )
        found = searched(found, new)
        comparison = compare(found, [new], shipped, study.spec.seed_list)
        if directory is None:
            summary = summarize(comparison)
        else:
            from ..analysis.report import write_report

            write_trajectories(directory / RESULT, new)
            summary = write_report(comparison, directory / "report", traces=0)
    answer = SuiteAnswer(found, new, summary)
    if as_json:
        print(json.dumps(answer.to_json(), indent=2))
    else:
        for one in answer.shown():
            out.print(one)
        if directory is not None:
            out.print(f"The report: {directory / 'report' / 'report.html'}", soft_wrap=True)
            out.print(f"Anyone who has the suite can verify it: searchlab suite verify {directory}", soft_wrap=True)
        else:
            out.print("--out DIR writes the report: every table, every pair, and all other baselines.", soft_wrap=True)
    if require_better and not answer.better_than_all:
        raise typer.Exit(3)


@suites.command(name="report")
def suite_report(
    suite: Name,
    results: Annotated[
        list[Path] | None,
        typer.Argument(help="Results to compare with them: directories that `suite run --out` wrote, or their files."),
    ] = None,
    against: Annotated[
        str, typer.Option("--baselines", help="Of these alone, as `xgb,tpe,random` [default: all that the suite has].")
    ] = "",
    seeds: Annotated[int | None, typer.Option(min=1, help="Runs over each table [default: the protocol's].")] = None,
    directory: Annotated[Path, typer.Option("--out", help="The directory for the report.")] = Path("results/baselines"),
) -> None:
    """Compare the baselines of a suite, and results over it, from the runs that there are: nothing is searched."""
    from ..analysis.report import write_report
    from ..analysis.tables import overall_tables
    from ..measure.suite import find_suite
    from ..suite.compare import compare
    from ..suite.trajectories import baselines, read_results

    found = find_suite(suite)
    shipped = baselines(found, against.split(",") if against else None)
    runs = compare(found, read_results(results or ()), shipped, range(seeds or found.spec.seeds))
    summary = write_report(runs, directory, traces=0)
    for shown in (*(answer.says for answer in summary.answers), *overall_tables(summary)):
        out.print(shown)
    out.print(f"the report: {directory / 'report.html'}", soft_wrap=True)


@suites.command(name="verify")
def suite_verify(
    what: Annotated[
        str, typer.Argument(help="A suite, or a directory that `suite run --out` wrote.", metavar="SUITE|DIR")
    ],
    everything: Everything = False,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help="The policy `module:Policy` of a directory, or its cost model, which you trust: its code is run. May "
            "be repeated."
        ),
    ] = None,
    suite: Annotated[str, typer.Option(help="The suite of a directory, if it is not found by its name.")] = "",
) -> None:
    """Check a suite: files, split, tables, cards, and that its baselines replay. Or check the runs of a policy."""
    from ..measure.suite import find_suite
    from ..suite.verify import RESULT, SECONDS, verify_bundle, verify_suite

    right = True

    def on_step(said: str, problems: list[str]) -> None:
        right = ("wrong", "red") if problems else ("right", "green")
        out.print(Text.assemble(right, "  ", said), soft_wrap=True)
        for problem in problems:
            out.print(f"  {problem}", soft_wrap=True)

    seconds = None if everything else SECONDS
    if (Path(what) / RESULT).is_file():
        right = verify_bundle(Path(what), on_step, seconds, policy or (), suite)
    else:
        right = verify_suite(find_suite(what).part(None), on_step, seconds)
    if not right:
        raise typer.Exit(1)


@suites.command(name="seal")
def suite_seal(suite: Directory) -> None:
    """Write the card of each table, and the manifest with the SHA-256 of every file. Done when a suite is made."""
    from ..measure.suite import find_suite
    from ..suite.manifest import seal

    manifest = seal(find_suite(suite).part(None), lambda name: out.print(name, soft_wrap=True))
    out.print(f"{len(manifest.files)} files are sealed: searchlab suite verify {suite}", soft_wrap=True)


@suites.command(name="baselines")
def suite_baselines(
    suite: Directory,
    results: Annotated[list[Path], typer.Argument(help="Logs of runs over the suite, or directories of them.")],
    directory: Annotated[
        Path | None,
        typer.Option("--out", help="Where the runs are put that are to be no baselines: `suite report` takes them."),
    ] = None,
) -> None:
    """Make the baselines of a suite from the logs of a study over it. Seal it then."""
    from ..log.format import find_logs
    from ..measure.suite import find_suite
    from ..suite.trajectories import collect, trajectories_path, write_trajectories

    found = find_suite(suite).part(None)
    logs = [path for given in results for path in find_logs(given) if "report" not in path.parts]
    if not logs:
        raise SearchlabError(f"there is no log (*.jsonl) in {', '.join(map(str, results))}")
    for one in collect(found, logs):
        path = trajectories_path(directory or found.directory / "baselines", one.strategy)
        write_trajectories(path, one)
        runs = sum(len(on_table.runs) for on_table in one.tables.values())
        out.print(f"{runs:,} runs of {one.strategy}: {path}", soft_wrap=True)
