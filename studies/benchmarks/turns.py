"""Times several sides in turn, each in its own process with its own libraries and thread pool.

Two thread pools in one process would compete for the cores. Taking turns exposes all sides to the same disturbances on
the machine: the parent tells one process after another to time a round.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import numpy as np
from timing import environment, seconds

from searchlab.arrays import Array
from searchlab.workload import Workload


@dataclass(frozen=True)
class Side:
    """A program to time: searchlab's or a library's."""

    run: Callable[[], object]
    result: Callable[[], Array]  # what the last run computed
    facts: Mapping[str, str] = field(default_factory=dict)  # a library's version and the kernels it chose
    rounding: float = 0  # the relative error if the library rounds the result to a narrower dtype than the workload's


def serve(make: Callable[[], Side]) -> None:
    """Create a side in this process, print its facts, and time a round for each line of input.

    Each answer is a line of JSON; libraries' output goes to standard error.
    """
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    side = make()
    print(json.dumps(side.facts), file=answers)
    for _ in sys.stdin:
        print(json.dumps(seconds(side.run)), file=answers)


def check_result(side: Side, workload: Workload) -> Side:
    """Run a side, and return it. Raises AssertionError if its result is wrong."""
    side.run()
    rtol, atol = workload.tolerance()
    np.testing.assert_allclose(
        side.result(), workload.reference(workload.inputs()), rtol=rtol + side.rounding, atol=atol
    )
    return side


class SideProcess:
    """A side's process: ``script --worker task``, which calls :func:`serve`, with ``task["threads"]`` threads.

    With ``task["isa"]``, libraries use their kernels for this instruction set.

    Raises:
        subprocess.SubprocessError: If the process fails.
    """

    def __init__(self, script: str, task: Mapping[str, Any]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, script, "--worker", json.dumps(task)],
            env=environment(task["threads"], task.get("isa")),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.facts: dict[str, str] = self._answer()

    def time(self) -> tuple[float, float]:
        """Return the median and minimum seconds of a call in one round."""
        assert self._process.stdin is not None
        self._process.stdin.write("round\n")
        self._process.stdin.flush()
        median, least = self._answer()
        return median, least

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise subprocess.CalledProcessError(self._process.wait(), self._process.args)
        return json.loads(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()


def compare(own: SideProcess, peers: Mapping[str, SideProcess], rounds: int) -> dict[str, Any]:
    """Time the sides in turn for ``rounds`` rounds, each starting with a different side. Return seconds and ratios.

    ``ratio`` is the median, over the rounds, of their seconds divided by ours. The ratio of the minimum times is also
    included. It is more reliable on a busy machine, where a parallel loop waits for every delayed thread.
    """
    return ratios(list(peers), _measure([own, *peers.values()], rounds))


def _measure(sides: Sequence[SideProcess], rounds: int) -> Array:
    """Return the median and minimum seconds by round and side."""
    measured = np.empty((rounds, len(sides), 2))
    for turn in range(rounds):
        for offset in range(len(sides)):
            side = (turn + offset) % len(sides)
            measured[turn, side] = sides[side].time()
    return measured


def ratios(names: Sequence[str], measured: Array) -> dict[str, Any]:
    """Return the result of :func:`compare`.

    ``measured`` contains seconds, of shape (rounds, sides, 2): ours come first, and medians come before minimums.
    """
    median, least = measured[..., 0], measured[..., 1].min(axis=0)
    peers = {}
    for at, name in enumerate(names, 1):
        low, ratio, high = np.percentile(median[:, at] / median[:, 0], [25, 50, 75])
        peers[name] = {
            "seconds": float(np.median(median[:, at])),
            "ratio": float(ratio),
            "ratio_quartiles": [float(low), float(high)],
            "ratio_of_least": float(least[at] / least[0]),
        }
    return {"ours_seconds": float(np.median(median[:, 0])), "peers": peers}
