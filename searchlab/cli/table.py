"""``searchlab table``: recorded measurements that stand in for the machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ..errors import SearchlabError
from .terminal import AsJson, MeasureSpec, SpaceOptions, TargetOrOwn, again, interruptible, json_object, out, plugin

tables = typer.Typer(no_args_is_help=True, help="Recorded measurements that stand in for the machine.")


@tables.command(name="build")
def table_build(
    source: Annotated[
        str, typer.Argument(help="A study file; or a workload, with `--space`.", metavar="STUDY.toml|WORKLOAD")
    ],
    space: Annotated[str, typer.Option(help="The space to measure, for a workload.")] = "",
    option: SpaceOptions = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Measure this number of random configs, instead of all.")
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Decides the order of the configs, and which of them are measured.")
    ] = 0,
    target: TargetOrOwn = None,
    to: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="A directory; or, for a workload, a file: `*.jsonl`, or `*.jsonl.gz` to compress it when it is "
            "complete [default: results/tables/STUDY].",
        ),
    ] = None,
    measure: MeasureSpec = None,
    passes: Annotated[
        int | None,
        typer.Option(
            help="Time all programs this number of times, each time in another order; 0 keeps the times of the run "
            "that checks them [default: 3, and 0 on a fleet].",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Measure every config of a space, for each workload and space of a study. To resume, run it again."""
    from ..run.plan import OnTrial, Run
    from ..run.progress import RunProgress
    from ..tables.build import build_tables, placed, plan_tables, table_study

    settings = json_object(measure, "--measure")
    named = plugin(space, option)
    study = table_study(source, named["name"], named["options"], target, settings)
    planned, left_out = plan_tables(study, limit, seed)
    default = Path("results", "tables", Path(source).stem if source.endswith(".toml") else "")
    placed_tables = placed(planned, to, default, passes)
    for reason in left_out:
        out.print(f"note: {reason}", soft_wrap=True)
    with interruptible(again()), RunProgress(out) as progress:

        def on_run(run: Run, *_: int) -> OnTrial:
            return progress.start(run.workload, run.searched.plugin.name, run.trials)

        build_tables(study, placed_tables, on_run, progress.on_block)
    for table in placed_tables:
        out.print(f"{table.run.trials:,} configs: searchlab table info {table.path}", soft_wrap=True)


@tables.command(name="info")
def table_info(
    files: Annotated[list[Path], typer.Argument(help="Logs, `*.jsonl` or `*.jsonl.gz`.", metavar="FILE...")],
    as_json: AsJson = False,
) -> None:
    """Describe tables: how much of the space, how fast its programs are, which failed, how noisy the machine was.

    A table whose times depend on when they were measured is refused: the exit code is then 1.
    """
    from ..log.format import find_logs, read_log
    from ..tables.info import TableInfo, info_table

    infos = [TableInfo(read_log(path)) for given in files for path in find_logs(given)]
    if not infos:
        raise SearchlabError(f"there is no log (*.jsonl) in {', '.join(map(str, files))}")
    if as_json:
        print(json.dumps([info.to_json() for info in infos], indent=2))
    else:
        for info in infos:
            out.print(info_table(info))
    if any(info.unsteady for info in infos):
        raise typer.Exit(1)
