"""``searchlab suite``: compare policies on suites of tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer
from msgspec import UNSET, to_builtins
from msgspec.json import encode, format
from msgspec.structs import replace
from rich.box import SIMPLE_HEAD
from rich.markdown import Markdown
from rich.text import Text
from typer import Argument, Option

from ..analysis import Comparison
from ..analysis.terminal import make_overall_tables
from ..errors import SearchlabError
from ..files import real_path, write_file
from ..log.read import RESULT_FILE_NAME, find_logs
from ..machine.scratch import ScratchFolder
from ..measure.suite import SPLITS, Split, Suite, find_installed_suites, find_suite, read_suite
from ..options import Jobs, SeedCount
from ..policy import POLICIES
from ..run.spec import parse_trials
from ..suite.compare import (
    SuiteAnswer,
    choose_baselines,
    choose_label,
    group_suite_runs,
    make_suite_study,
    restrict_to_runs,
    run_policy,
)
from ..suite.trajectories import (
    Trajectories,
    collect_trajectories,
    make_trajectories_path,
    read_baselines,
    read_results,
    record_test_use,
    write_trajectories,
)
from . import parameters
from .parameters import number_option, parse_plugin
from .terminal import err, interruptible, out, say, say_json, say_table

suites = typer.Typer(
    no_args_is_help=True,
    help="Compare policies on suites of tables, with baselines and contrasts that are registered in advance.",
)

SuiteName = Annotated[
    str,
    Argument(
        help="A suite (`v1`, or the path of its directory), a split of one (`v1/dev`), or a table in one (`v1/TABLE`).",
        metavar="SUITE",
    ),
]
SuiteDirectory = Annotated[str, Argument(help="The suite: a name, or the path of its directory.", metavar="SUITE")]
SeedsOption = Annotated[
    int | None, number_option(SeedCount, help="The number of runs over each table [default: the suite's].")
]


@suites.command(name="list")
def suite_list() -> None:
    """List the installed suites."""
    rows = []
    for name, directory in find_installed_suites().items():
        suite = read_suite(directory)
        spec = suite.spec
        table_counts = [sum(table.split == split for table in spec.tables) for split in SPLITS]
        baseline_count = len(suite.baseline_paths)
        rows.append((name, spec.title, len(spec.tables), *table_counts, baseline_count))
    if rows:
        say_table(("suite", "title", "tables", "dev", "test", "baselines"), rows)
    else:
        say("no suites are installed; to use one that is not installed, pass the path of its directory")


@suites.command(name="info")
def suite_info(
    suite_name: SuiteName,
    table: Annotated[str, Argument(help="The table whose card to show.", metavar="TABLE")] = "",
    as_json: parameters.AsJson = False,
) -> None:
    """Show the size and difficulty of each table in a suite, or the card of one table."""
    from ..suite.cards import TableCard  # imported here because importing it takes longer than running most commands

    suite = find_suite(suite_name)
    if table:
        out.print(Markdown(TableCard(suite.table(table)).to_markdown()))
        return
    cards = [TableCard(suite_table) for suite_table in suite.tables]
    if as_json:
        say_json([card.to_json() for card in cards])
        return
    has_several_units = len({card.info.log.unit for card in cards}) > 1
    best_heading = "best" if has_several_units else cards[0].info.log.unit
    columns = ("table", "split", "configs", "failed", best_heading, "noise", "after 100 draws", "draws to 5 %")
    rows = (
        (
            card.table.entry.name,
            card.table.entry.split,
            f"{card.info.config_count:,}",
            f"{card.info.failure_count:,}",
            f"{card.info.best:,.1f}" + (f" {card.info.log.unit}" if has_several_units else ""),
            "" if card.info.noise is None else f"{100 * card.info.noise:.1f} %",
            f"+{100 * card.expected_distances[100]:.1f} %" if card.draws_to_near_best else "",
            f"{card.draws_to_near_best[0]:.0f}, {card.draws_to_near_best[1]}" if card.draws_to_near_best else "",
        )
        for card in cards
    )
    say_table(columns, rows, right_aligned=columns[2:], title=f"{suite.spec.title}: {suite.name}", box=SIMPLE_HEAD)
    say(
        "after 100 draws: how much slower than the optimum the best of 100 random draws is expected to be. draws to "
        "5 %: random draws needed to find a config within 5 % of the optimum, on average and in 95 of 100 runs."
    )


@suites.command(name="run")
def suite_run(
    suite_name: SuiteName,
    policy: Annotated[str, Option(help="The policy: a registered name, or `module:Policy`.")],
    against: Annotated[
        str,
        Option(
            help="The baselines to compare with, such as `xgb,tpe,random`. The comparisons are registered before the "
            "runs [default: random, the best on the dev split, and the one that the policy derives from]."
        ),
    ] = "",
    option: parameters.PolicyOptions = None,
    batch: parameters.BatchSize = 8,
    cost_model: parameters.CostModelSpec = None,
    features: parameters.FeaturesName = None,
    label: Annotated[str, Option(help="The name of the policy in tables and charts.")] = "",
    split: Annotated[
        Split | None,
        Option(
            help="The split: `dev` to develop a policy, `test` (once) for the result [default: dev, or that in SUITE]."
        ),
    ] = None,
    seeds: SeedsOption = None,
    jobs: Annotated[int, number_option(Jobs, help="The number of concurrent runs.")] = 1,
    out_dir: Annotated[
        Path | None,
        Option("--out", help="The directory for the report, the logs, and a result file that others can verify."),
    ] = None,
    require_better: Annotated[
        bool,
        Option("--require-better", help="Exit with code 3 unless the policy is better than every --against baseline."),
    ] = False,
    as_json: parameters.AsJson = False,
) -> None:
    """Compare a policy with a suite's baselines, by default on the tables of its dev split.

    Only the policy is run, because the suite contains the baseline runs. The comparisons with the `--against` baselines
    are registered before the first run, and each is tested once across all tables. All other comparisons are in the
    report (`--out`). Develop a policy only on `dev`, then run it once with `--split test`. The result records how many
    variants of the policy you have run on the test split.
    """
    from ..suite.replay import check_baselines

    suite = _find_suite_to_run(suite_name, split)
    baseline_runs = read_baselines(suite)
    policy_plugin = parse_plugin(policy, option)
    opponents = against.split(",") if against else choose_baselines(suite, POLICIES.load(policy_plugin.name))
    # Unknown names are rejected before anything runs.
    check_baselines(suite, read_baselines(suite, opponents), lambda text: say(text, err))
    policy_entry = {
        **to_builtins(policy_plugin),
        "batch": batch,
        "label": choose_label(policy_plugin.name, label, {baseline.strategy for baseline in baseline_runs}),
        **({"cost_model": to_builtins(cost_model)} if cost_model else {}),
        **({"features": features} if features else {}),
    }
    study = make_suite_study(suite, policy_entry, seeds, opponents)
    notes_console = err if as_json else out
    scratch = ScratchFolder() if out_dir is None else nullcontext(str(out_dir))
    with interruptible(), scratch as work_dir:
        for reason in study.plan().skipped:
            say(f"note: {reason}", notes_console)
        trajectories = run_policy(study, Path(work_dir) / "logs", jobs, progress=err)
        if any(table.entry.split == "test" for table in suite.tables):
            trajectories = replace(trajectories, test_uses=record_test_use(trajectories))
        for text in _describe_departures(trajectories, opponents, out_dir):
            say(f"note: {text}", notes_console)
        suite = restrict_to_runs(suite, trajectories)
        comparison = Comparison(group_suite_runs(suite, [trajectories], baseline_runs, study.spec.seed_list))
        if out_dir is not None:
            write_trajectories(out_dir / RESULT_FILE_NAME, trajectories)
            say("writing the report", err)
            comparison.save(out_dir / "report")
    answer = SuiteAnswer(suite, trajectories, comparison.summary)
    if as_json:
        say_json(answer.to_json())
    else:
        out.print(*answer.render())
        if out_dir is None:
            say("For a full report with all tables, pairs and baselines, use --out DIR.")
        else:
            say(f"The report: {out_dir / 'report' / 'report.html'}")
            say(f"Anyone with the suite can verify the result: searchlab suite verify {out_dir}")
    if require_better and not answer.is_better_than_all:
        raise typer.Exit(3)


def _find_suite_to_run(suite_name: str, split: Split | None) -> Suite:
    """Return the part of a suite on which to run a policy: the one specified, or else the dev split."""
    suite = find_suite(suite_name)
    if split and (suite.table_name or suite.split not in (None, split)):
        raise SearchlabError(f"{suite.name} is already a single split or table of a suite; omit --split {split}")
    return suite if suite.split or suite.table_name else suite.select_split(split or "dev")


def _describe_departures(trajectories: Trajectories, opponents: Sequence[str], out_dir: Path | None) -> Iterator[str]:
    """Yield how the runs of a new strategy depart from the suite's protocol."""
    if trajectories.test_uses is not UNSET and trajectories.test_uses > 1:
        yield (
            f"you have run {trajectories.test_uses} variants of {trajectories.policy.name} on the test split of "
            f"{trajectories.suite}; the protocol allows only one, which is chosen on the dev split, and the result "
            f"records this number"
        )
    if unregistered_names := [
        name for name in opponents if (trajectories.strategy, name) not in trajectories.contrasts
    ]:
        yield (
            f"the runs in {out_dir} began before the comparison with {', '.join(unregistered_names)} was "
            f"registered; use a different --out to register it"
        )


@suites.command(name="report")
def suite_report(
    suite_name: SuiteName,
    results: Annotated[
        list[Path] | None,
        Argument(help="Results to compare with the baselines: directories from `suite run --out`, or result files."),
    ] = None,
    against: Annotated[
        str, Option("--baselines", help="Only these baselines, such as `xgb,tpe,random` [default: all].")
    ] = "",
    seeds: SeedsOption = None,
    trials: Annotated[
        str,
        Option(
            help="Compare the runs after this number of trials, or after a number that depends on each table's "
            'difficulty: `difficulty`, `"0.5 difficulty"` [default: complete runs].'
        ),
    ] = "",
    out_dir: Annotated[Path, Option("--out", help="The directory for the report.")] = Path("results/baselines"),
) -> None:
    """Report on a suite's baselines and on results over the suite."""
    from ..suite.replay import check_baselines

    suite = find_suite(suite_name)
    baseline_runs = read_baselines(suite, against.split(",") if against else None)
    check_baselines(
        suite, baseline_runs if against else [baseline for baseline in baseline_runs if baseline.code_digests]
    )
    trial_limit = parse_trials(trials) if trials else None
    runs = group_suite_runs(
        suite, read_results(results or ()), baseline_runs, range(seeds or suite.spec.seeds), trial_limit
    )
    comparison = Comparison(runs)
    comparison.save(out_dir)
    summary = comparison.summary
    out.print(*(answer.sentence for answer in summary.answers), *make_overall_tables(summary), sep="\n")
    say(f"the report: {out_dir / 'report.html'}")


@suites.command(name="submit")
def suite_submit(
    package_dir: Annotated[
        Path,
        Argument(
            help="The policy's package, such as `searchlab new policy` writes, with the results of `suite run --out` "
            "in it.",
            metavar="DIR",
        ),
    ],
    bundle: Annotated[Path | None, Option("--out", help="The bundle [default: DIR.zip].")] = None,
    suite: parameters.SuitePath = "",
) -> None:
    """Make a bundle that others can verify: a policy's results on a suite, its source, and whom to cite.

    Authors, licence and description come from `pyproject.toml`, and so does `[tool.searchlab]`: what the options were
    tuned on, and the citation. Nothing is executed.
    """
    from ..suite.bundle import BUNDLE_SUFFIX, submit

    path = bundle or Path(f"{real_path(package_dir)}{BUNDLE_SUFFIX}")
    submitted_bundle = submit(package_dir, path, suite)
    splits_text = " and ".join(submitted_bundle.results)
    say(f"{path} contains results on {splits_text} and {len(submitted_bundle.source_files)} files of source")
    say(f"Verify it as others will: searchlab suite verify {path} --trust")


@suites.command(name="verify")
def suite_verify(
    target_path: Annotated[
        str,
        Argument(
            help="A suite, a directory from `suite run --out`, or a bundle from `suite submit` (`*.zip`).",
            metavar="SUITE|DIR|BUNDLE",
        ),
    ],
    everything: Annotated[bool, Option("--all", help="Replay all runs, not just a sample.")] = False,
    policy: Annotated[
        list[str] | None,
        Option(help="A policy or cost model (`module:Class`) whose code you trust. May be repeated."),
    ] = None,
    suite: parameters.SuitePath = "",
    record: Annotated[
        Path | None,
        Option("--out", help="Write what was verified of a bundle to this JSON file, which `report --publish` shows."),
    ] = None,
) -> None:
    """Verify a suite (files, split, tables, cards, and replayed baseline runs), a policy's result, or a bundle.

    A bundle comes from a stranger. First, its data are checked, which executes nothing. Then its runs are replayed,
    which requires `--trust`: the policy's code runs without a network, and can read neither the tables nor your files.
    """
    from ..suite.bundle import BUNDLE_SUFFIX
    from ..suite.confined import verify_submission
    from ..suite.verify import REPLAY_SECONDS, verify_result, verify_suite

    def on_step(text: str, problems: list[str]) -> None:
        out.print(Text.assemble(("wrong", "red") if problems else ("right", "green"), "  ", text), soft_wrap=True)
        for problem in problems:
            say(f"  {problem}")

    seconds = None if everything else REPLAY_SECONDS
    if target_path.endswith(BUNDLE_SUFFIX):
        verification = verify_submission(Path(target_path), on_step, seconds, suite)
        for reason in verification.unchecked:
            say(f"not checked: {reason}")
        if record:
            write_file(record, format(encode(verification), indent=2) + b"\n")
        is_correct = not verification.problems
    elif (Path(target_path) / RESULT_FILE_NAME).is_file():
        is_correct = verify_result(Path(target_path), on_step, seconds, policy or (), suite)
    else:
        is_correct = verify_suite(find_suite(target_path).select_split(None), on_step, seconds)
    if not is_correct:
        raise typer.Exit(1)


@suites.command(name="build")
def suite_build(
    suite: SuiteDirectory,
    source_dir: Annotated[Path, typer.Option("--from", help="The directory of the other tuner's files.")],
) -> None:
    """Build a suite's tables from another tuner's files, as specified in `suite.toml`. Seal the suite afterwards."""
    from ..suite.build import build_suite

    full_suite = find_suite(suite).select_split(None)
    build_suite(full_suite, source_dir, lambda table, result: say(f"{table.name}: {result}"))
    say(f"{len(full_suite.tables)} tables are complete; to seal the suite: searchlab suite seal {suite}")


@suites.command(name="seal")
def suite_seal(suite: SuiteDirectory) -> None:
    """Complete a suite: write its tables' cards, a card and metadata for other tools, and the digests of all files."""
    from ..suite.seal import seal

    manifest = seal(find_suite(suite).select_split(None), say)
    say(f"{len(manifest.files)} files are sealed; to verify them: searchlab suite verify {suite}")


@suites.command(name="baselines")
def suite_baselines(
    suite: SuiteDirectory,
    results: Annotated[list[Path], Argument(help="Logs of runs over the suite, or directories of logs.")],
    out_dir: Annotated[
        Path | None,
        Option(
            "--out", help="Write the runs here, as results for `suite report`, instead of adding them to the suite."
        ),
    ] = None,
) -> None:
    """Create a suite's baselines from the logs of a study over it. Seal the suite afterwards."""
    full_suite = find_suite(suite).select_split(None)
    logs = [path for result_dir in results for path in find_logs(result_dir) if "report" not in path.parts]
    if not logs:
        raise SearchlabError(
            f"no usable logs in {', '.join(map(str, results))}: every log found there belongs to a report; "
            f"pass the directory of a study over the suite"
        )
    for trajectories in collect_trajectories(full_suite, logs):
        path = make_trajectories_path(out_dir or full_suite.directory / "baselines", trajectories.strategy)
        write_trajectories(path, trajectories)
        runs = sum(len(table_runs.runs) for table_runs in trajectories.tables.values())
        say(f"{runs:,} runs of {trajectories.strategy}: {path}")
