"""Schedule traces of logged configs, made in a process of its own: ``python -m searchlab.log.traces``.

It takes a space, hence its plug-in and TVM, which whoever reads logs can do without.
"""

from __future__ import annotations

import sys

import msgspec

from ..errors import described

LONGEST = 20_000
"""Most characters of a trace."""


class Wanted(msgspec.Struct, frozen=True):
    """The trial with ``index``, from 0, in the log at ``path``."""

    path: str
    index: int


class Made(msgspec.Struct, frozen=True):
    """The trace of what was asked for as ``number``; or None, and ``note`` says why."""

    number: int
    trace: str | None
    note: str


def main() -> None:
    """What standard input asks for, a JSON object of :class:`Wanted` by number, as lines of :class:`Made`."""
    from .result import Result, load_log

    spaces: dict[bytes, Result] = {}
    for number, want in msgspec.json.decode(sys.stdin.buffer.read(), type=dict[int, Wanted]).items():
        try:
            result = load_log(want.path)
            header = result.log.header
            key = msgspec.json.encode((header.workload, header.space, header.fingerprint, header.target))
            space = spaces.setdefault(key, result).space
            trace = str(space.schedule(result.trials[want.index].config).trace)
            made = Made(number, trace[:LONGEST] + "\n..." * (len(trace) > LONGEST), "")
        except Exception as error:  # whatever a plug-in raises is said in the place of the trace
            made = Made(number, None, described(error)[:300])
        sys.stdout.buffer.write(msgspec.json.encode(made) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
