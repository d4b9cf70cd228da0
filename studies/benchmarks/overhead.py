"""Times the strategies themselves: the seconds needed to propose a batch of 64 and to learn from it, after n trials.

    python studies/benchmarks/overhead.py [--policies P ...] [--trials 1000 10000] [--json FILE]

The spaces are the knobs of AutoTVM's CUDA conv2d (10,454,400 configs; nothing is compiled) and the sketches of a GEMM.
The trials are random configs with synthetic costs, so only the strategy takes time. MetaSchedule's own evolutionary
search is the policy ``metaschedule``. It supports only sketches, and its XGBoost model is trained on program features,
so its time includes scheduling programs.

A batch of 64 real programs takes about 6 s to build and run on two cores (0.1 s each). The last column is the share of
a run that the strategy spends on proposing and learning at the larger number of trials. ``growth`` is the ratio of the
time at the larger number of trials to that at the smaller one; for n log n, it is 13.3 from 1,000 to 10,000.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from searchlab.errors import SearchlabError
from searchlab.plugins import Plugin
from searchlab.policy import POLICIES
from searchlab.records import Measurement, Trial
from searchlab.run.strategy import Strategy
from searchlab.space import SPACES, Config, Space
from searchlab.target import resolve_target
from searchlab.workload import parse_workload

BATCH = 64
RUN_SECONDS = 0.1  # to build and run one program on two cores: see studies/reference/spaces


def spaces() -> dict[str, Space]:
    conv2d = parse_workload("conv2d:1x7x7x512x512x3x3:s1:p1")
    cuda = resolve_target({"kind": "cuda", "arch": "sm_90"})
    return {
        "knobs": SPACES.make(Plugin("knob-template", {"template": "conv2d_no_batching"}), conv2d, cuda),
        "sketch": SPACES.make(Plugin("sketch"), parse_workload("gemm:512x512x512"), resolve_target("native")),
    }


def cost(config: Config) -> Measurement:
    """Return a synthetic time that is smooth in the tiles' factors, so that a model can learn it."""
    total = 0.0
    for name, value in config.items():
        at = sum(map(ord, name)) % 7 / 2
        parts = value if isinstance(value, tuple) else (value,)
        total += sum((math.log2(part + 1) - at) ** 2 for part in parts if isinstance(part, int) and part >= 0)
    return Measurement((1e-4 * (1 + total),))


def measure(space: Space, name: str, seed: int, numbers: Sequence[int]) -> list[dict[str, Any]]:
    """Time an ask and a tell after each number of trials. Raises SearchlabError for an unsupported space."""
    strategy = Strategy.from_specs(name)
    configs = space.sample_new(np.random.default_rng(seed), max(numbers), {})
    trials = [Trial(i, config, cost(config)) for i, config in enumerate(configs)]
    rows = []
    for number in numbers:
        policy, _ = strategy.start(space, seed)
        policy.tell(trials[:number])
        start = time.perf_counter()
        batch = policy.ask(BATCH)
        after_ask = time.perf_counter()
        policy.tell([Trial(number + i, config, cost(config)) for i, config in enumerate(batch)])
        after_tell = time.perf_counter()
        policy.ask(BATCH)
        after_ask_again = time.perf_counter()
        # Only the first ask may include an import or work left over from a warm start.
        rows.append(
            {
                "trials": number,
                "ask": min(after_ask - start, after_ask_again - after_tell),
                "tell": after_tell - after_ask,
                "batch": len(batch),
            }
        )
    return rows


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policies", nargs="+", default=list(POLICIES.entry_points_by_name()), metavar="P")
    parser.add_argument("--trials", nargs="+", type=int, default=[1000, 10000], metavar="N")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, metavar="FILE", help="file to which the rows are also written")
    options = parser.parse_args(argv)
    numbers = sorted(options.trials)
    head = "".join(f"  ask {n:>6}  tell {n:>6}" for n in numbers)
    print(f"{'space':8} {'policy':20}{head}  growth  share of a run")
    measured = []
    for kind, space in spaces().items():
        for name in options.policies:
            try:
                rows = measure(space, name, options.seed, numbers)
            except SearchlabError as error:
                print(f"{kind:8} {name:20}  {error}", flush=True)
                continue
            measured += [{"space": kind, "policy": name, **row} for row in rows]
            first, last = rows[0]["ask"] + rows[0]["tell"], rows[-1]["ask"] + rows[-1]["tell"]
            seconds = "".join(f"  {row['ask']:10.4f}  {row['tell']:11.4f}" for row in rows)
            share = last / (last + BATCH * RUN_SECONDS)
            print(f"{kind:8} {name:20}{seconds}  {last / first:6.1f}  {share:6.1%}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(measured, indent=1) + "\n")


if __name__ == "__main__":
    main()
