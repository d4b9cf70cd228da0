"""``searchlab log``: checking and repairing logs."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ..errors import SearchlabError
from .terminal import AsJson, out

logs = typer.Typer(no_args_is_help=True, help="Check and repair the logs of runs.")


@logs.command(name="check")
def log_check(
    files: Annotated[list[Path], typer.Argument(help="Logs, or directories of them.", metavar="FILE...")],
    as_json: AsJson = False,
) -> None:
    """Say what is wrong with logs, and in which lines. The exit code is 1 where anything is wrong."""
    from ..log.format import find_logs
    from ..log.writer import examine

    examined = [examine(path) for given in files for path in find_logs(given)]
    if not examined:
        raise SearchlabError(f"there is no log (*.jsonl) in {', '.join(map(str, files))}")
    if as_json:
        each = [
            {"file": str(log.path), "trials": log.trials, "problems": [asdict(problem) for problem in log.problems]}
            for log in examined
        ]
        print(json.dumps(each, indent=2))
    else:
        for log in examined:
            for problem in log.problems:
                out.print(f"{log.path}, line {problem.line}: {problem.text}", soft_wrap=True, markup=False)
            if not log.problems:
                out.print(f"{log.path}: whole, {log.trials:,} trials", soft_wrap=True, markup=False)
            elif log.prefix:
                out.print(f"make it whole: searchlab log repair {log.path}", soft_wrap=True, markup=False)
    if any(log.problems for log in examined):
        raise typer.Exit(1)


@logs.command(name="repair")
def log_repair(file: Annotated[Path, typer.Argument(help="The log to repair.", metavar="FILE")]) -> None:
    """Repair a damaged log up to the first trial that is lost, so that its run can go on. All that follows is kept."""
    from ..log.writer import repair

    done = repair(file)
    if done is None:
        out.print(f"{file} is intact; nothing was changed", soft_wrap=True, markup=False)
        return
    out.print(f"{file} has {done.trials:,} trials, and its run can go on from there", soft_wrap=True, markup=False)
    if done.rest:
        out.print(
            f"{done.rest_trials:,} later trials, after one that is lost, are in {done.rest}",
            soft_wrap=True,
            markup=False,
        )
    out.print(f"the damaged log is in {done.saved}", soft_wrap=True, markup=False)
