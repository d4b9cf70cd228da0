"""``searchlab fleet``: devices behind TVM's RPC tracker."""

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
    help="Measure on remote devices behind TVM's RPC tracker. The tracker and the servers have no authentication: "
    "anyone who can reach them can run code there, so let them listen only on a private network.",
)

TrackerAddress = Annotated[str, Option("--tracker", help="The tracker's address, such as `10.0.0.1:9190`.")]
Host = Annotated[str, Option(help="The address to listen on: this machine's address in a private network.")]


@fleet.command(name="tracker")
def fleet_tracker(
    host: Host = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="The port to listen on; 0 for any.")] = 9190,
) -> None:
    """Run the tracker, which lends devices to studies. One tracker can serve all keys."""
    run_tracker(host, port, lambda at: _ready(f"tracker at {at}"))


@fleet.command(name="server")
def fleet_server(
    tracker: TrackerAddress,
    key: Annotated[str, Option(help="The key of this device, such as cortex-a72. Identical devices share a key.")],
    host: Host = "127.0.0.1",
    port: Annotated[
        int | None, Option(min=0, max=65535, help="The port to listen on; 0 for any [default: a free one].")
    ] = None,
) -> None:
    """Offer this machine as a device. The server survives crashing programs, and waits while the tracker is down."""
    if key.split() != [key]:
        raise SearchlabError(f"--key must be one word, such as cortex-a72; got {key!r}")
    tracker_host, _, tracker_port = tracker.rpartition(":")
    if is_loopback(host) and not is_loopback(tracker_host):
        raise SearchlabError(
            f"machines that borrow this device from the tracker at {tracker} cannot reach it at {host}; set --host to "
            f"this machine's address in their network"
        )
    registered(tracker)  # fails immediately if the address is wrong
    ports = SERVER_PORTS if port is None else range(port, port + 1)
    there = (tracker_host, int(tracker_port))
    run_server(host, ports, there, key, lambda at: _ready(f"device {key} at {at}, for the tracker at {tracker}"))


def _ready(text: str) -> None:
    print(f"{text}; Ctrl-C stops it", flush=True)


@fleet.command(name="list")
def fleet_list(tracker: TrackerAddress, as_json: AsJson = False) -> None:
    """List the devices that are registered with a tracker."""
    with Tracker(tracker) as connected:
        devices = connected.devices()
        queues = connected.summary()["queue_info"]
    if as_json:
        say_json(devices)
    elif not devices:
        say(f"no devices are registered with the tracker at {tracker}")
    else:
        rows = []
        for key, addresses in devices.items():
            queue = queues.get(key, {"free": 0, "pending": 0})
            rows.append((key, len(addresses), queue["free"], queue["pending"], ", ".join(addresses)))
        say_table(("key", "devices", "free", "waiting", "at"), rows)


_NUMBERS = "One number, several (`1,4,16`), or a range (`1..1000`): its ends and the powers of two between them."


@fleet.command(name="plan")
def fleet_plan(
    study: StudyFile,
    logs: Annotated[
        list[Path] | None,
        Option(
            help="A log of this study, or a directory of its logs; a few seeds and trials are enough. May be repeated "
            "[default: results/STUDY]."
        ),
    ] = None,
    devices: Annotated[str, Option(help=f"The number of devices. {_NUMBERS}", metavar="NUMBERS")] = "1..16",
    builders: Annotated[
        str, Option(help="The number of cores on the host, which proposes and builds.", metavar="NUMBERS")
    ] = "1..16",
    jobs: Annotated[str, Option(help="The number of concurrent runs.", metavar="NUMBERS")] = "1",
    batch: Annotated[
        str,
        Option(help="The batch size of all runs [default: as in the study].", metavar="NUMBERS", show_default=False),
    ] = "",
    seed: Annotated[int, Option(min=0, help="The seed for drawing the trials of simulated runs from the logs.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Estimate from logs how long a study would take on fleets of different sizes, and what would limit it."""
    from ..analysis.words import counted
    from ..fleet import plan_fleet, start_seconds  # imported here because devices do not need it
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
    say(f"{plan.runs} runs, {plan.trials:,} trials; times from {plan.logs} logs")
    least: dict[tuple[int, int], float] = {}
    for one in sorted(plan.outlooks, key=lambda one: -one.seconds):
        least[one.devices, one.builders] = one.seconds
    counts, cores = (sorted({place[axis] for place in least}) for axis in (0, 1))
    columns = ("devices", *(counted(core, "builder") for core in cores))
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
    """Parse ``1,3,8..20`` as [1, 3, 8, 16, 20]: a range stands for its ends and the powers of two between them."""
    numbers: set[int] = set()
    for part in text.split(","):
        found = re.fullmatch(r"(\d{1,9})(?:\.\.(\d{1,9}))?", part.strip())
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
        if not 1 <= first <= last:
            raise SearchlabError(f"{name} must be numbers of at least 1, such as 4, 1,4,16 or 1..64; got {text!r}")
        numbers |= {first, last} | {1 << power for power in range(30) if first < 1 << power < last}
    return sorted(numbers)
