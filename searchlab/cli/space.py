"""``searchlab space``: the knobs of a space."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from .terminal import SpaceName, SpaceOptions, TargetSpec, Workload, out, plugin


def space_(
    workload: Workload,
    space: SpaceName,
    option: SpaceOptions = None,
    target: TargetSpec = "native",
    seed: Annotated[int, typer.Option(min=0, help="Decides the sample.")] = 0,
) -> None:
    """Show the knobs of a space, the number of choices that each has, and one sample."""
    import numpy as np

    from ..plugins import Plugin
    from ..space import SPACES
    from ..target import resolve_target
    from ..workload import parse_workload

    named = Plugin(**plugin(space, option))
    searched = SPACES.make(named, parse_workload(workload), resolve_target(target))
    sample = searched.sample(np.random.default_rng(seed))
    knobs = searched.knobs(sample)
    size = searched.size()
    out.print(f"{searched.workload} in {named.name}: " + (f"{size:,} configs" if size else "more than 100,000 configs"))
    table = Table("knob", "choices", "such as", f"sample (seed {seed})", box=None)
    for knob in knobs:
        some = ", ".join(str(choice) for choice in knob.choices[:3]) + (", ..." if len(knob.choices) > 3 else "")
        table.add_row(knob.name, str(len(knob.choices)), some, str(sample[knob.name]))
    out.print(table)
