"""``searchlab machine``: what this machine can resolve."""

from __future__ import annotations

from typing import Annotated

import typer
from typer import Option

from ..analysis.words import counted, format_number
from ..errors import warn
from ..machine.host import observe_load
from ..machine.noise import REPEATS, write_check
from . import parameters
from .terminal import say, say_json, say_table

machine = typer.Typer(no_args_is_help=True, help="Determine what differences this machine can resolve.")


@machine.callback()
def every_command() -> None:
    pass


@machine.command(name="check")
def machine_check(
    seconds: Annotated[float, Option(min=0.1, max=3600, help="For how long to time programs.")] = 60,
    as_json: parameters.AsJson = False,
) -> None:
    """Time a program again and again, and show the smallest difference that 1, 3 and 10 repeats resolve.

    Later runs on this machine record the result, and reports say which differences are below it.
    """
    from ..measure.check import check_machine

    if load := observe_load():
        warn(load)
    noise_check = check_machine(seconds)
    if as_json:
        say_json(noise_check)
        write_check(noise_check)
        return
    columns = ["threads", "spread", "drift", *(counted(count, "repeat") for count in REPEATS)]
    rows = [
        [noise.threads, *(f"{format_number(100 * value)} %" for value in (noise.spread, noise.drift))]
        + [
            f"{format_number(100 * noise.resolution[count])} %" if count in noise.resolution else "-"
            for count in REPEATS
        ]
        for noise in noise_check.noise
    ]
    say_table(columns, rows, right_aligned=columns, title="Noise, and the smallest difference resolved")
    if noise_check.second_core is not None:
        say(f"while another core is busy, one thread takes {noise_check.second_core:.2f} times as long")
    if noise_check.mhz is not None:
        low, high = noise_check.mhz
        say(f"clock: {low:.0f} MHz" if low == high else f"clock: {low:.0f} to {high:.0f} MHz")
    say(f"runs on this machine now record this, from {write_check(noise_check)}")
