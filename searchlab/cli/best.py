"""``searchlab best`` and ``searchlab verify``: the fastest program of a log, shown and checked."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from .terminal import AsJson, milliseconds, out


class Show(StrEnum):
    config = "config"
    trace = "trace"
    python = "python"
    tir = "tir"
    lowered = "lowered"
    llvm = "llvm"
    source = "source"
    asm = "asm"


OneLog = Annotated[Path, typer.Argument(help="A run's log.", metavar="LOG")]


def best(
    log: OneLog,
    show: Annotated[
        Show,
        typer.Option(
            help="Its `config`; its schedule as a `trace`, or as a `python` script that needs TVM alone; the TensorIR "
            "that this makes (`tir`), and what TVM lowers that to (`lowered`); its LLVM IR (`llvm`: for a GPU, of what "
            "launches the kernels), generated code (`source`: for CUDA, the kernels' C++), and assembly (`asm`: for "
            "CUDA, PTX)."
        ),
    ] = Show.config,
    as_json: AsJson = False,
) -> None:
    """The fastest program of a log."""
    from ..apply import text_of
    from ..log.noise import drift, noise, sentences
    from ..log.result import load_log

    result = load_log(log)
    found = result.best
    text = "" if show is Show.config else text_of(found, show.value)
    if as_json:
        record: dict[str, Any] = {
            "workload": result.log.header.workload,
            "trial": found.trial.index,
            "config": found.config.to_json(),
            "seconds": found.seconds,
            "gflops": found.gflops,
            "tied": None if found.tied is None else [trial.index for trial in found.tied],
            "noise": noise(result.log),
            "drift": drift(result.log),
        }
        print(json.dumps(record | ({show.value: text} if text else {}), indent=2))
    elif text:
        print(text)
    else:
        out.print(
            f"{result.log.header.workload}: {found.gflops:.1f} GFLOPS, {milliseconds(found.seconds)}, "
            f"trial {found.trial.index}"
        )
        for name, value in found.config.items():
            out.print(f"  {name} = {value}", soft_wrap=True, markup=False, highlight=False)
        for sentence in sentences(result.log):
            out.print(sentence, soft_wrap=True)


def verify(
    log: OneLog,
    top: Annotated[int, typer.Option(min=1, help="Verify this many of its fastest different programs.")] = 1,
    seed: Annotated[
        int, typer.Option(min=1, help="Of the first of the inputs they are checked on; measuring uses seed 0.")
    ] = 1,
    as_json: AsJson = False,
) -> None:
    """Build the fastest program of a log again, check it on fresh inputs, and time it beside the untuned one.

    It is timed as the log says that its trials were. Ends with exit code 1 where a program fails, or is another than
    the one that was measured.
    """
    from ..apply.verified import sentences
    from ..apply.verify import verify_log

    found = verify_log(log, top=top, seed=seed)
    if as_json:
        print(json.dumps(found.to_json(), indent=2))
    else:
        for sentence in sentences(found):
            out.print(sentence, soft_wrap=True, markup=False, highlight=False)
    if not found.right:
        raise typer.Exit(1)
