"""``searchlab fleet``: devices to measure on, behind TVM's RPC tracker."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from ..errors import SearchlabError
from ..measure.fleet import SERVER_PORTS, Tracker, is_loopback, registered, run_server, run_tracker
from .terminal import AsJson, StudyFile, duration, out, say, say_json, say_table

fleet = typer.Typer(
    no_args_is_help=True,
    help="Devices to measure on, behind TVM's RPC tracker. Neither the tracker nor a server asks for a password, and "
    "anyone who can reach one can run any code there: let them listen only on a private network.",
)

TrackerAddress = Annotated[str, Option("--tracker", help="The address of the tracker, as `10.0.0.1:9190`.")]
Host = Annotated[str, Option(help="The address to listen on: this machine's address in a private network.")]


@fleet.command(name="tracker")
def fleet_tracker(
    host: Host = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="The port to listen on; 0 for any.")] = 9190,
) -> None:
    """Run the tracker, which lends devices to those who measure. One tracker is enough for all keys."""
    run_tracker(host, port, lambda at: _ready(f"tracker at {at}"))


@fleet.command(name="server")
def fleet_server(
    tracker: TrackerAddress,
    key: Annotated[str, Option(help="The name of this device at the tracker; identical devices share a name.")],
    host: Host = "127.0.0.1",
    port: Annotated[
        int | None, Option(min=0, max=65535, help="The port to listen on; 0 for any [default: a free one].")
    ] = None,
) -> None:
    """Lend this machine as a device. The server survives programs that crash, and waits for an absent tracker."""
    if key.split() != [key]:
        raise SearchlabError(f"--key must be one word, as cortex-a72, not {key!r}")
    tracker_host, _, tracker_port = tracker.rpartition(":")
    if is_loopback(host) and not is_loopback(tracker_host):
        raise SearchlabError(
            f"the tracker at {tracker} would lend this device to machines that cannot reach it at {host}; set --host "
            f"to the address of this machine in that network"
        )
    registered(tracker)  # a wrong address fails at once
    ports = SERVER_PORTS if port is None else range(port, port + 1)
    there = (tracker_host, int(tracker_port))
    run_server(host, ports, there, key, lambda at: _ready(f"device {key} at {at}, for the tracker at {tracker}"))


def _ready(text: str) -> None:
    print(f"{text}; Ctrl-C stops it", flush=True)


@fleet.command(name="list")
def fleet_list(tracker: TrackerAddress, as_json: AsJson = False) -> None:
    """List the devices of a tracker."""
    with Tracker(tracker) as connected:
        devices = connected.devices()
        queues = connected.summary()["queue_info"]
    if as_json:
        say_json(devices)
    elif not devices:
        say(f"the tracker at {tracker} has no device")
    else:
        rows = []
        for key, addresses in devices.items():
            queue = queues.get(key, {"free": 0, "pending": 0})
            rows.append((key, len(addresses), queue["free"], queue["pending"], ", ".join(addresses)))
        say_table(("key", "devices", "free", "waiting", "at"), rows)


_NUMBERS = "A number, several (`1,4,16`), or a range, which stands for its ends and the powers of two (`1..1000`)."


@fleet.command(name="plan")
def fleet_plan(
    study: StudyFile,
    logs: Annotated[
        list[Path] | None,
        Option(
            help="A log, or a directory of logs, of this study, with fewer seeds and trials if you like. May be "
            "repeated [default: results/STUDY]."
        ),
    ] = None,
    devices: Annotated[str, Option(help=f"The number of devices. {_NUMBERS}", metavar="NUMBERS")] = "1..16",
    builders: Annotated[
        str, Option(help="The number of cores of the machine that builds and proposes.", metavar="NUMBERS")
    ] = "1..16",
    jobs: Annotated[str, Option(help="Concurrent runs, as for `searchlab run`.", metavar="NUMBERS")] = "1",
    batch: Annotated[
        str, Option(help="The batch of all runs [default: as in the study].", metavar="NUMBERS", show_default=False)
    ] = "",
    seed: Annotated[int, Option(min=0, help="Determines which recorded trials the simulated runs have.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Estimate how long a study takes on a fleet, and what it waits for, from the times of trials in logs."""
    from ..fleet.plan import plan_fleet, start_seconds  # here, since a device needs none of it
    from ..run.study import Study

    sizes = {
        "devices": _numbers("--devices", devices),
        "builders": _numbers("--builders", builders),
        "jobs": _numbers("--jobs", jobs),
    }
    batches: list[int | None] = [*_numbers("--batch", batch)] if batch else [None]
    runs, left_out = Study.load(study).plan()
    own = Path("results") / study.stem
    places = logs or ([own] if own.exists() else [])
    plan = plan_fleet(runs, places, **sizes, batches=batches, start=start_seconds(runs[0].space), seed=seed)
    plan = dataclasses.replace(plan, notes=[*left_out, *plan.notes])
    if as_json:
        say_json(plan)
        return
    for note in plan.notes:
        say(f"note: {note}")
    say(f"{plan.runs} runs, {plan.trials:,} trials; the times of trials are those of {plan.logs} logs")
    least: dict[tuple[int, int], float] = {}
    for one in sorted(plan.outlooks, key=lambda one: -one.seconds):
        least[one.devices, one.builders] = one.seconds
    counts, cores = (sorted({place[axis] for place in least}) for axis in (0, 1))
    columns = ("devices", *(f"{core} builder{'s' * (core != 1)}" for core in cores))
    say_table(columns, ((count, *(duration(least[count, core]) for core in cores)) for count in counts))
    out.print()
    say_table(
        ("devices", "batch", "jobs", "builders", "a device", "time", *plan.knee.waiting, "devices busy"),
        (
            (
                one.devices, one.batch or "own", one.jobs, one.builders, f"{one.builders / one.devices:.3g}",
                duration(one.seconds), *(f"{100 * share:.0f} %" for share in one.waiting.values()),
                f"{100 * one.devices_busy:.0f} %",
            )
            for one in plan.by_devices
        ),
    )  # fmt: skip
    knee = plan.knee
    batch = "" if knee.batch is None else f", with a batch of {knee.batch}"
    say(
        f"\nThe smallest fleet within 10 % of the fastest has {knee.devices} devices and {knee.builders} builders: "
        f"{duration(knee.seconds)}{batch}" + (f" and {knee.jobs} jobs" if knee.jobs > 1 else "")
    )


def _numbers(name: str, text: str) -> list[int]:
    """Read ``1,3,8..20`` as [1, 3, 8, 16, 20]: a range stands for its ends and the powers of two between them."""
    numbers: set[int] = set()
    for part in text.split(","):
        found = re.fullmatch(r"(\d{1,9})(?:\.\.(\d{1,9}))?", part.strip())
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
        if not 1 <= first <= last:
            raise SearchlabError(f"{name} must be numbers of at least 1, as 4 or 1,4,16 or 1..64, not {text!r}")
        numbers |= {first, last} | {1 << power for power in range(30) if first < 1 << power < last}
    return sorted(numbers)
