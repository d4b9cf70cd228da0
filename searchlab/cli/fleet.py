"""``searchlab fleet``: devices to measure on, behind TVM's RPC tracker."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.table import Table

from ..errors import SearchlabError
from .terminal import AsJson, out

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


def _say(text: str) -> None:
    print(f"{text}; Ctrl-C ends it", flush=True)
