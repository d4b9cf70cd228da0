"""Verifying the fastest programs of a log here and now: are they right, as fast, and how much faster than untuned?

They are built again, checked on new inputs, and timed with the settings of the log, in worker processes: a program that
crashes fails alone.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import replace
from pathlib import Path

import msgspec

from ..errors import SearchlabError
from ..log.format import Header, Log
from ..log.result import Result, load_log, noise
from ..machine.cuda import check_can_measure, gpu_name
from ..machine.host import available_cores, cpu_model
from ..measure.local import LocalMeasurer
from ..measure.settings import LocalSettings
from ..records import Trial
from ..target import Target, resolve_target
from .retime import measure_untuned, rebuild, speed_up, spread_of, time_in_turn
from .verified import Verification, Verified

DRAWS = 3
"""Number of inputs that each program is checked on, besides those of measuring."""

PRUNE_FACTOR = 3.0
"""The ``stop_factor`` for logs that have none. Without one the slow untuned program would be repeated in full."""


def verify_log(log: str | Path | Result, *, top: int = 1, seed: int = 1) -> Verification:
    """Verify the ``top`` fastest different programs of a log, on inputs from ``seed`` and the seeds after it.

    Raises SearchlabError if there is no such program, or if the trials were not measured on a machine like this one.
    """
    if top < 1 or seed < 1:  # measuring draws from 0
        raise SearchlabError(f"top and seed must be at least 1, not {top} and {seed}")
    result = log if isinstance(log, Result) else load_log(log)
    trials = fastest(result, top)
    space, header = result.space, result.log.header
    settings, own = _settings(result.log)
    _check_machine(result.log, space.target)
    # A slow program is not repeated, so that the untuned one takes no longer than it must.
    settings = msgspec.structs.replace(
        settings, check=True, prune_factor=settings.prune_factor or PRUNE_FACTOR, sentinel=0, finalists=top + 1
    )
    seeds = tuple(range(seed, seed + DRAWS))
    with LocalMeasurer(settings, space.target, {}, settings.workers or available_cores()) as measurer:
        rebuilt = rebuild(measurer, space, trials, seeds)
        alive = [one.trial for one in rebuilt if one.runs]
        untuned = measure_untuned(measurer, space, min((trial.cost for trial in alive), default=0.0))
        readings = time_in_turn(measurer, space, alive, untuned)
    programs = []
    floor = noise(result.log) or 0.0
    timed = iter(zip(readings.apart, readings.beside, strict=True))
    for trial, now in zip(trials, rebuilt, strict=True):
        logged = _logged(result.log, trial)
        program = Verified(trial.index, trial.config.to_json(), logged, now.failure, now.message)
        seconds, beside = next(timed) if now.runs else ((), ())
        if seconds:
            spread = spread_of(seconds) + max(floor, spread_of(logged))
            over = speed_up(beside, readings.untuned, settings.run_timeout, untuned)
            program = replace(program, seconds=seconds, noise=spread, speed_up=over)
        elif now.runs and now.failure is None:
            program = replace(program, failure="run_error", message="it ran, and failed when it was timed again")
        programs.append(program)
    return Verification(
        result.log.path, str(space.workload), header.space.name, seeds, tuple(programs), readings.untuned,
        _note(space.target, untuned), settings, own,
    )  # fmt: skip


def fastest(result: Result, count: int) -> list[Trial]:
    """The best trial of a log, and then the fastest of other programs, ``count`` in all. Raises SearchlabError."""
    chosen: dict[object, Trial] = {}
    good = [trial for trial in result.trials if math.isfinite(trial.cost)]
    good.sort(key=lambda trial: statistics.median(_logged(result.log, trial)))
    for trial in (result.best.trial, *good):
        chosen.setdefault(trial.measurement.program or trial.config, trial)
    return list(chosen.values())[:count]


def _logged(log: Log, trial: Trial) -> tuple[float, ...]:
    """The readings behind the logged time of a trial: those of the finalists if it is one, else its repeats."""
    finalists = log.final.finalists if log.final is not None else ()
    return next((one.seconds for one in finalists if one.index == trial.index), trial.measurement.seconds)


# --- whether it can be verified here ----------------------------------------------------------------------------------


def _settings(log: Log) -> tuple[LocalSettings, bool]:
    """How the trials were measured, and whether that is known; the defaults if they were answered from a table."""
    kind = log.header.measure.get("kind")
    if kind == "rpc":
        raise SearchlabError(
            f"{log.path} was measured on the devices {log.header.measure.get('key')!r} of a fleet, and a log does not "
            f"hold where its tracker is; export the program with --to library, and run it there"
        )
    if kind != "local":
        return LocalSettings(), False
    try:
        return msgspec.convert(log.header.measure, LocalSettings), True
    except msgspec.ValidationError as error:
        raise SearchlabError(f"{log.path} was measured in a way that this searchlab does not know: {error}") from None


def _check_machine(log: Log, target: Target) -> None:
    """Raise SearchlabError if programs for ``target`` do not run here, or not on the hardware that was measured."""
    name, host = log.path, log.header.host
    if target.kind == "cuda":
        check_can_measure(str(target.tvm.attrs["arch"]))
        _check_same(log.header, name, "gpu", str(gpu_name()))
        return
    if target.kind != "llvm" or target.is_foreign:
        there = target.spec.get("mtriple", target.kind)
        raise SearchlabError(
            f"{name} contains programs for {there!r}, which do not run on this machine; verify it on one where they do"
        )
    _check_same(log.header, name, "cpu", cpu_model())
    ours = resolve_target("native")
    theirs = target.spec.get("mcpu", ours.spec["mcpu"])
    if "cpu" not in host and theirs != ours.spec["mcpu"]:
        raise SearchlabError(
            f"{name} contains programs for the CPU {theirs!r}, and this one is {ours.spec['mcpu']!r}; "
            f"verify it on a {theirs}"
        )
    if target.cores > available_cores():
        raise SearchlabError(
            f"{name} is for {target.cores} cores, and {available_cores()} may be used here; verify it on a "
            f"machine with as many cores"
        )


def _check_same(header: Header, name: Path, what: str, here: str) -> None:
    there = header.host.get(what, here)
    if there != here:
        raise SearchlabError(
            f"{name} was measured on {there!r}, and this is {here!r}: their times cannot be compared; "
            f"verify it where it was measured"
        )


def _note(target: Target, untuned: Trial | None) -> str:
    if target.kind != "llvm":
        return "there is no untuned program to compare with: on a GPU it cannot run, because it binds no threads"
    if untuned is None:
        return ""
    measured = untuned.measurement
    if measured.failure in (None, "run_timeout"):
        return ""
    return f"the untuned program was not timed: {measured.failure}: {measured.message}"
