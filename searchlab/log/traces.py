"""Schedule traces of logged configs, made in a separate process: ``python -m searchlab.log.traces``.

A trace needs the space, its plug-in and TVM; readers of logs need none of them.
"""

from __future__ import annotations

import os
import sys

import msgspec

from ..errors import described
from ..plugins import trusting

LONGEST = 20_000
"""A trace is cut off after this many characters."""


TRUST = "--trust"
"""The argument with which the process makes spaces that no installed package registers."""


class TraceRequest(msgspec.Struct, frozen=True):
    """The trial with ``index``, from 0, in the log at ``path``, as bytes: a path need not be Unicode."""

    path: bytes
    index: int


class TraceReply(msgspec.Struct, frozen=True):
    """The trace of the trial with the key ``number``; or None, and ``note`` says why."""

    number: int
    trace: str | None
    note: str


def main() -> None:
    """Read a JSON object, number -> :class:`TraceRequest`; write a line of :class:`TraceReply` for each."""
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
