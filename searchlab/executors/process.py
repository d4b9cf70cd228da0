"""``python -m searchlab.executors.process``: a process of :class:`~searchlab.executors.local.LocalExecutor`."""

from __future__ import annotations

import pickle
import sys

from ..measure.channel import Channel
from ..measure.isolation import die_with


def main() -> None:
    channel = Channel(int(sys.argv[1]), 1 << 40)
    die_with(int(sys.argv[2]))
    while True:
        try:
            call: bytes = pickle.loads(channel.recv())
        except EOFError:
            return
        try:
            fn, args, kwargs = pickle.loads(call)
            answer = pickle.dumps((fn(*args, **kwargs), None))
        except Exception as error:
            try:
                pickle.loads(answer := pickle.dumps((None, error)))
            except Exception:  # an error that cannot travel
                answer = pickle.dumps((None, RuntimeError(f"{type(error).__name__}: {error}")))
        channel.send(answer)


if __name__ == "__main__":
    main()
