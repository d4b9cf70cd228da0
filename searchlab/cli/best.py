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


OneLog = Annotated[Path, typer.Argument(help="The log of a run.", metavar="LOG")]


def best(
    log: OneLog,
    show: Annotated[
        Show,
        typer.Option(
            help="The form to show it in: its `config`; its schedule as a `trace`, or as a `python` script that needs "
            "TVM alone; its TensorIR (`tir`), and what TVM lowers this to (`lowered`); its LLVM IR (`llvm`: for a GPU, "
            "that of the code that launches the kernels); its generated code (`source`: for CUDA, the C++ of the "
            "kernels); its assembly (`asm`: for CUDA, PTX)."
        ),
    ] = Show.config,
    as_json: AsJson = False,
) -> None:
    """Show the fastest program of a log."""
    from ..apply import text_of
    from ..log.noise import drift, noise, sentences
    from ..log.result import load_log

    result = load_log(log)
    fastest = result.best
    text = "" if show is Show.config else text_of(fastest, show.value)
    if as_json:
        record: dict[str, Any] = {
            "workload": result.log.header.workload,
            "trial": fastest.trial.index,
            "config": fastest.config.to_json(),
            "seconds": fastest.seconds,
            "gflops": fastest.gflops,
            "unit": result.log.unit,
            "tied": None if fastest.tied is None else [trial.index for trial in fastest.tied],
            "noise": noise(result.log),
            "drift": drift(result.log),
        }
        print(json.dumps(record | ({show.value: text} if text else {}), indent=2))
    elif text:
        print(text)
    else:
        out.print(
            f"{result.log.header.workload}: {fastest.gflops:.1f} {result.log.unit}, {milliseconds(fastest.seconds)}, "
            f"trial {fastest.trial.index}"
        )
        for name, value in fastest.config.items():
            out.print(f"  {name} = {value}", soft_wrap=True, markup=False, highlight=False)
        for sentence in sentences(result.log):
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
    from ..apply.verified import sentences
    from ..apply.verify import verify_log

    verified = verify_log(log, top=top, seed=seed)
    if as_json:
        print(json.dumps(verified.to_json(), indent=2))
    else:
        for sentence in sentences(verified):
            out.print(sentence, soft_wrap=True, markup=False, highlight=False)
    if not verified.right:
        raise typer.Exit(1)
