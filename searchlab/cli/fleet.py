"""``searchlab fleet``: devices behind TVM's RPC tracker."""

from __future__ import annotations

from typing import Annotated

import typer
from typer import Option

from ..errors import SearchlabError
from ..measure.fleet import SERVER_PORTS, Queue, Tracker, is_loopback, list_registered_devices, run_server, run_tracker
from . import parameters
from .terminal import say, say_json, say_table

fleet = typer.Typer(
    no_args_is_help=True,
    help="Measure on remote devices behind TVM's RPC tracker. The tracker and the servers have no authentication: "
    "anyone who can reach them can run code there, so let them listen only on a private network.",
)

TrackerAddress = Annotated[str, Option("--tracker", help="The tracker's address, such as `10.0.0.1:9190`.")]
Host = Annotated[str, Option(help="The address to listen on: this machine's address on a private network.")]


@fleet.command(name="tracker")
def fleet_tracker(host: Host = "127.0.0.1", port: parameters.Port = 9190) -> None:
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
            f"this machine's address on their network"
        )
    list_registered_devices(tracker)  # fails immediately if the address is wrong
    ports = SERVER_PORTS if port is None else range(port, port + 1)
    tracker_address = (tracker_host, int(tracker_port))
    run_server(
        host, ports, tracker_address, key, lambda at: _ready(f"device {key} at {at}, for the tracker at {tracker}")
    )


def _ready(text: str) -> None:
    print(f"{text}; Ctrl-C stops it", flush=True)


@fleet.command(name="list")
def fleet_list(tracker: TrackerAddress, as_json: parameters.AsJson = False) -> None:
    """List the devices that are registered with a tracker."""
    with Tracker(tracker) as client:
        devices = client.list_devices()
        queues = client.read_summary().queue_info
    if as_json:
        say_json(devices)
    elif not devices:
        say(f"no devices are registered with the tracker at {tracker}")
    else:
        device_rows = []
        for key, addresses in devices.items():
            queue = queues.get(key, Queue())
            device_rows.append((key, len(addresses), queue.free, queue.pending, ", ".join(addresses)))
        say_table(("key", "devices", "free", "waiting", "at"), device_rows)
