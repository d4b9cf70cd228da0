"""``searchlab best`` and ``searchlab verify``: the fastest program of a log, shown and checked."""

from __future__ import annotations

import json
import math
from enum import StrEnum
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..console import plain
from ..errors import SearchlabError
from .terminal import AsJson, milliseconds, out

if TYPE_CHECKING:
    from ..log.result import Best


class Show(StrEnum):
    config = "config"
    trace = "trace"
    python = "python"
    tir = "tir"
    lowered = "lowered"
    llvm = "llvm"
    source = "source"
    asm = "asm"


ShowForm = Annotated[
    Show,
    typer.Option(
        help="The form to show it in: its `config`; its schedule as a `trace`, or as a `python` script that needs "
        "TVM alone; its TensorIR (`tir`), and what TVM lowers this to (`lowered`); its LLVM IR (`llvm`: for a GPU, "
        "that of the code that launches the kernels); its generated code (`source`: for CUDA, the C++ of the "
        "kernels); its assembly (`asm`: for CUDA, PTX)."
    ),
]
OneLog = Annotated[Path, typer.Argument(help="The log of a run.", metavar="LOG")]


def best(
    where: Annotated[
        Path, typer.Argument(help="The log of a run, or a directory of logs: the best of all.", metavar="LOG|DIR")
    ],
    show: ShowForm = Show.config,
    as_json: AsJson = False,
) -> None:
    """Show the fastest program of a log; or of a directory of logs, for each workload."""
    bests = _bests(where)
    if show is not Show.config and len(bests) > 1:
        raise SearchlabError(
            f"{where} has logs of {len(bests)} workloads, and --show {show} shows one program; name a log: "
            f"{', '.join(str(fastest.result.log.path) for fastest in bests)}"
        )
    show_bests(bests, show, as_json, several=where.is_dir())


def show_bests(bests: list[Best], show: Show, as_json: bool, *, several: bool, named: bool | None = None) -> None:
    """Print the programs of ``bests``. several: as a list in JSON. named: with their logs; if None as ``several``."""
    from ..apply import text_of

    texts = [""] * len(bests) if show is Show.config else [text_of(fastest, show.value) for fastest in bests]
    if as_json:
        records = [_record(one) | ({show.value: text} if text else {}) for one, text in zip(bests, texts, strict=True)]
        print(json.dumps(records if several else records[0], indent=2))
        return
    for fastest, text in zip(bests, texts, strict=True):
        if text:
            print(plain(text))
        else:
            _say_best(fastest, several if named is None else named)


def _bests(where: Path) -> list[Best]:
    """The best of the log ``where``; or the best of each workload in the directory ``where``."""
    import numpy as np

    from ..log.columns import read_logs
    from ..log.format import find_logs
    from ..log.result import fastest, load_log

    if not where.is_dir():
        return [load_log(where).best]
    logs = read_logs(where, find_logs(where), {})
    if not logs:
        raise SearchlabError(f"there is no log (*.jsonl) in {where}")
    least: dict[str, tuple[float, Path]] = {}
    for log in logs:
        if np.isfinite(log.costs).any():
            _, seconds, _ = fastest(log.costs, log.final)
            workload = log.header.workload
            least[workload] = min(least.get(workload, (math.inf, log.path)), (seconds, log.path), key=itemgetter(0))
    if not least:
        raise SearchlabError(f"none of the {len(logs)} logs in {where} has a successful trial")
    return [load_log(path).best for _, path in least.values()]


def _record(fastest: Best) -> dict[str, Any]:
    from ..log.result import drift, noise

    log = fastest.result.log
    return {
        "file": str(log.path),
        "workload": log.header.workload,
        "trial": fastest.trial.index,
        "config": fastest.config.to_json(),
        "seconds": fastest.seconds,
        "gflops": fastest.gflops,
        "unit": log.unit,
        "tied": None if fastest.tied is None else [trial.index for trial in fastest.tied],
        "noise": noise(log),
        "drift": drift(log),
    }


def _say_best(fastest: Best, named: bool) -> None:
    """Print ``fastest``. named: with its log."""
    from ..log.result import sentences

    log = fastest.result.log
    out.print(
        f"{log.header.workload}: {fastest.gflops:.1f} {log.unit}, {milliseconds(fastest.seconds)}, trial "
        f"{fastest.trial.index}" + (f" of {log.path}" if named else ""),
        soft_wrap=True,
    )
    for name, value in fastest.config.items():
        out.print(f"  {name} = {value}", soft_wrap=True, markup=False, highlight=False)
    for sentence in sentences(log):
        out.print(sentence, soft_wrap=True)


def verify(
    log: OneLog,
    top: Annotated[int, typer.Option(min=1, help="The number of different programs to verify, the fastest first.")] = 1,
    seed: Annotated[
        int, typer.Option(min=1, help="The seed of the first inputs to check on; measuring uses seed 0.")
    ] = 1,
    as_json: AsJson = False,
) -> None:
    """Build the fastest program of a log again, check it on fresh inputs, and time it beside the untuned one.

    It is timed in the way in which the log says that its trials were. The exit code is 1 where a program fails, or is
    not the program that was measured.
    """
    from ..apply.verify import sentences, verify_log

    verified = verify_log(log, top=top, seed=seed)
    if as_json:
        print(json.dumps(verified.to_json(), indent=2))
    else:
        for sentence in sentences(verified):
            out.print(sentence, soft_wrap=True, markup=False, highlight=False)
    if not verified.right:
        raise typer.Exit(1)
