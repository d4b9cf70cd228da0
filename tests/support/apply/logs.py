"""Logs with programs to apply: a real one, and logs with synthetic times."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from searchlab.cli.app import app
from searchlab.errors import SearchlabError
from searchlab.log.format import Header, Record
from searchlab.log.writer import LogWriter
from searchlab.plugins import Plugin
from searchlab.records import Measurement, Trial
from searchlab.space import SPACES, Config
from searchlab.target import resolve_target
from searchlab.workload import parse_workload

MEASURE = {"kind": "local", "repeat": 2, "min_repeat_ms": 0, "run_timeout": 5.0, "build_timeout": 20.0}


def write_log(
    path: Path,
    configs: list[dict[str, Any]],
    space: str = "tests.support.measure.faulty:Faulty",
    workload: str = "gemm:32x32x32",
    target: dict[str, Any] | str = "native",
    **header: Any,
) -> Path:
    """Write a log in which every config succeeded, each faster than the one before it."""
    plugin, resolved = Plugin(space), resolve_target(target)
    log_space = SPACES.make(plugin, parse_workload(workload), resolved)
    fields: dict[str, Any] = {"measure": MEASURE, **header}
    writer = LogWriter(
        path,
        Header(
            workload=workload,
            space=plugin,
            fingerprint=log_space.fingerprint,
            policy=Plugin("grid"),
            seed=0,
            batch=1,
            target=resolved.to_json(),
            **fields,
        ),
    )
    for index, config in enumerate(configs):
        seconds = 1e-3 / (index + 1)
        writer.append(Record.from_trial(Trial(index, Config(config), Measurement((seconds, seconds * 1.01)))))
    writer.close()
    return path


def invoke(*words: object) -> tuple[int, str]:
    """Run a ``searchlab`` command in this process; return its exit code and output, or 2 and the error's message."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    if isinstance(result.exception, SearchlabError):
        return 2, str(result.exception)
    return result.exit_code, result.stdout


def scale_times(log: Path, path: Path, seconds: float) -> Path:
    """A copy of ``log`` in which every time is multiplied by ``seconds``."""

    def scale_line(line: dict[str, Any]) -> dict[str, Any]:
        if "config" in line:
            return line | {"seconds": [item * seconds for item in line.get("seconds", ())]}
        finalists = [item | {"seconds": [value * seconds for value in item["seconds"]]} for item in line["finalists"]]
        return line | {"finalists": finalists}

    first, *rest = log.read_text().splitlines()
    path.write_text("\n".join([first, *(json.dumps(scale_line(json.loads(line))) for line in rest)]) + "\n")
    return path
