"""Create schedule traces for logged configs in a separate process, ``python -m searchlab.log.traces``.

Creating a trace requires the space, its plug-in and TVM, none of which are needed to read logs.
"""

from __future__ import annotations

import os
import sys

import msgspec

from ..errors import described
from ..plugins import trusting

LONGEST = 20_000
"""The number of characters after which a trace is truncated."""

TRUST = "--trust"
"""The argument that allows the process to import spaces that no installed package registers."""


class TraceRequest(msgspec.Struct, frozen=True):
    """A trial in the log at ``path``, which is stored as bytes because paths need not be Unicode."""

    path: bytes
    index: int


class TraceReply(msgspec.Struct, frozen=True):
    """The trace for the request with the key ``number``. If the trace is None, ``note`` gives the reason."""

    number: int
    trace: str | None
    note: str


def main() -> None:
    """Read a JSON object of keys and :class:`TraceRequest` objects, and write one :class:`TraceReply` per line."""
    from .result import Result, load_log

    spaces: dict[bytes, Result] = {}
    for number, request in msgspec.json.decode(sys.stdin.buffer.read(), type=dict[int, TraceRequest]).items():
        try:
            result = load_log(os.fsdecode(request.path))
            header = result.log.header
            key = msgspec.json.encode((header.workload, header.space, header.fingerprint, header.target))
            with trusting(TRUST in sys.argv):
                space = spaces.setdefault(key, result).space
            trace = str(space.schedule(result.trials[request.index].config).trace)
            reply = TraceReply(number, trace[:LONGEST] + "\n..." * (len(trace) > LONGEST), "")
        except Exception as error:  # any error of a plug-in takes the place of the trace
            reply = TraceReply(number, None, described(error)[:300])
        sys.stdout.buffer.write(msgspec.json.encode(reply) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
