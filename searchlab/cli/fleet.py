"""``searchlab fleet``: devices to measure on, behind TVM's RPC tracker."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from ..errors import SearchlabError
from .terminal import AsJson, duration, out

if TYPE_CHECKING:
    from ..fleet.plan import FleetPlan, Outlook

fleet = typer.Typer(
    no_args_is_help=True,
    help="Devices to measure on, behind TVM's RPC tracker. Neither the tracker nor a server asks for a password, and "
    "whoever reaches one can run any code there: let them listen on a private network only.",
)

TrackerAddress = Annotated[str, typer.Option("--tracker", help="The address of the tracker, as `10.0.0.1:9190`.")]
Host = Annotated[str, typer.Option(help="The address to listen at: the address of this machine in a private network.")]


@fleet.command(name="tracker")
def fleet_tracker(
    host: Host = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to listen on; 0 for any.")] = 9190,
) -> None:
    """Run the tracker, which lends devices to those who measure. One tracker is enough for all keys."""
    from ..measure.rpc.server import run_tracker

    run_tracker(host, port, lambda at: _say(f"tracker at {at}"))


@fleet.command(name="server")
def fleet_server(
    tracker: TrackerAddress,
    key: Annotated[
        str, typer.Option(help="The name to register this device under: the same name for devices that are alike.")
    ],
    host: Host = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="The port to listen on; 0 for any [default: a free one].")
    ] = None,
) -> None:
    """Lend this machine as a device. The server goes on after programs that crash, and waits for an absent tracker."""
    from ..measure.rpc.server import SERVER_PORTS, is_loopback, run_server
    from ..measure.rpc.tracker import registered

    if key.split() != [key]:
        raise SearchlabError(f"--key must be one word, as cortex-a72, not {key!r}")
    tracker_host, _, tracker_port = tracker.rpartition(":")
    if is_loopback(host) and not is_loopback(tracker_host):
        raise SearchlabError(
            f"the tracker at {tracker} would lend this device to machines that cannot reach it at {host}; set --host "
            f"to the address of this machine in that network"
        )
    registered(tracker)  # a wrong address is found out at once
    ports = SERVER_PORTS if port is None else range(port, port + 1)
    there = (tracker_host, int(tracker_port))
    run_server(host, ports, there, key, lambda at: _say(f"device {key} at {at}, for the tracker at {tracker}"))


@fleet.command(name="list")
def fleet_list(tracker: TrackerAddress, as_json: AsJson = False) -> None:
    """List the devices that a tracker has."""
    from ..measure.rpc.tracker import Tracker

    with Tracker(tracker) as connected:
        devices = connected.devices()
        queues = connected.summary()["queue_info"]
    if as_json:
        print(json.dumps(devices, indent=2))
        return
    if not devices:
        out.print(f"the tracker at {tracker} has no device")
        return
    table = Table("key", "devices", "free", "waiting", "at", box=None)
    for key, addresses in devices.items():
        queue = queues.get(key, {"free": 0, "pending": 0})
        table.add_row(key, str(len(addresses)), str(queue["free"]), str(queue["pending"]), ", ".join(addresses))
    out.print(table)


_NUMBERS = "A number, some (`1,4,16`), or a range, of which powers of two and the ends are taken (`1..1000`)."


@fleet.command(name="plan")
def fleet_plan(
    study: Annotated[Path, typer.Argument(help="The study file (TOML).", metavar="STUDY.toml")],
    logs: Annotated[
        list[Path] | None,
        typer.Option(
            help="A log, or a directory with logs, of runs of this study, which may be of fewer seeds and trials. "
            "May be repeated [default: results/STUDY].",
        ),
    ] = None,
    devices: Annotated[str, typer.Option(help=f"How many devices. {_NUMBERS}", metavar="NUMBERS")] = "1..16",
    builders: Annotated[
        str, typer.Option(help="How many cores the machine has that builds and proposes.", metavar="NUMBERS")
    ] = "1..16",
    jobs: Annotated[
        str, typer.Option(help="How many runs go on at the same time, as for `searchlab run`.", metavar="NUMBERS")
    ] = "1",
    batch: Annotated[
        str,
        typer.Option(help="The batch of all runs [default: as in the study].", metavar="NUMBERS", show_default=False),
    ] = "",
    seed: Annotated[int, typer.Option(min=0, help="Decides which recorded trials the simulated runs have.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Say how long a study takes on a fleet, and what it waits for. The times of trials are those in logs."""
    import dataclasses

    from ..fleet.plan import plan_fleet, start_seconds
    from ..run.study import Study

    sizes = {
        "devices": _numbers("--devices", devices),
        "builders": _numbers("--builders", builders),
        "jobs": _numbers("--jobs", jobs),
    }
    batches: Sequence[int | None] = _numbers("--batch", batch) if batch else [None]
    runs, left_out = Study.load(study).plan()
    own = Path("results") / study.stem
    places = logs or ([own] if own.exists() else [])
    start = start_seconds(runs[0].space)
    plan = plan_fleet(runs, places, **sizes, batches=batches, start=start, seed=seed)
    plan = dataclasses.replace(plan, notes=[*left_out, *plan.notes])
    if as_json:
        print(json.dumps(dataclasses.asdict(plan), indent=2))
        return
    for note in plan.notes:
        out.print(f"note: {note}", soft_wrap=True)
    _show_plan(plan)


def _numbers(name: str, text: str) -> list[int]:
    """``1,3,8..20`` as [1, 3, 8, 16, 20]: of a range, the ends and the powers of two."""
    numbers: set[int] = set()
    for part in text.split(","):
        found = re.fullmatch(r"(\d{1,9})(?:\.\.(\d{1,9}))?", part.strip())
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
        if not 1 <= first <= last:
            raise SearchlabError(f"{name} must be numbers from 1 on, as 4 or 1,4,16 or 1..64, not {text!r}")
        numbers |= {first, last} | {1 << power for power in range(30) if first < 1 << power < last}
    return sorted(numbers)


def _show_plan(plan: FleetPlan) -> None:
    counts = list(dict.fromkeys(one.devices for one in plan.outlooks))
    cores = list(dict.fromkeys(one.builders for one in plan.outlooks))
    out.print(f"{plan.runs} runs, {plan.trials:,} trials, by the times of the trials in {plan.logs} logs")
    least: dict[tuple[int, int], float] = {}
    for one in plan.outlooks:
        place = one.devices, one.builders
        least[place] = min(one.seconds, least.get(place, one.seconds))
    table = Table("devices", *(f"{core} builder{'s' * (core != 1)}" for core in cores), box=None)
    for count in counts:
        table.add_row(str(count), *(duration(least[count, core]) for core in cores))
    out.print(table)
    out.print()
    table = Table(
        "devices", "batch", "jobs", "builders", "a device", "time", "starting", "proposing", "building", "running",
        "devices busy", box=None,
    )  # fmt: skip
    for one in plan.by_devices:
        table.add_row(str(one.devices), *_shown(one))
    out.print(table)
    knee = plan.knee
    out.print(
        f"\nThe smallest fleet within 10 % of the fastest has {knee.devices} devices and {knee.builders} builders: "
        f"{duration(knee.seconds)}{_with(knee)}",
        soft_wrap=True,
    )


def _shown(one: Outlook) -> Sequence[str]:
    shares = [f"{100 * one.waiting[phase]:.0f} %" for phase in ("starting", "proposing", "building", "running")]
    return [
        "own" if one.batch is None else str(one.batch), str(one.jobs), str(one.builders),
        f"{one.builders / one.devices:.3g}", duration(one.seconds), *shares, f"{100 * one.devices_busy:.0f} %",
    ]  # fmt: skip


def _with(one: Outlook) -> str:
    batch = "" if one.batch is None else f", with a batch of {one.batch}"
    return batch + (f" and {one.jobs} jobs" if one.jobs > 1 else "")


def _say(text: str) -> None:
    print(f"{text}; Ctrl-C ends it", flush=True)
