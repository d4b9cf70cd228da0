"""The time charged to a policy for proposing and learning."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from searchlab import Config, NeverTwice, Study
from searchlab.conformance import toys
from searchlab.records import Trial
from searchlab.run.loop import PolicyDriver
from tests.support.logs import write_table

WAITS = 0.2


class Waits(NeverTwice):
    """It waits, as on a busy machine."""

    def propose(self, n: int, rng: np.random.Generator) -> Iterable[Config]:
        time.sleep(WAITS)
        return ()

    def tell(self, trials: Sequence[Trial]) -> None:
        time.sleep(WAITS)
        super().tell(trials)


def make_driver(tmp_path: Path, other_cpu_readings: list[float]) -> PolicyDriver:
    write_table(tmp_path / "table.jsonl", toys.Small(), toys.simulate_flaky)
    study = Study.from_dict(
        {
            "workloads": [str(toys.WORKLOAD)],
            "spaces": ["searchlab.conformance.toys:Small"],
            "policies": ["tests.run.test_cpu_account:Waits"],
            "seeds": 1,
            "trials": 16,
            "target": {"kind": "llvm"},
            "measure": {"kind": "table", "path": "table.jsonl"},
        },
        tmp_path,
    )
    (run,), _ = study.plan()
    return PolicyDriver(run, lambda: other_cpu_readings.pop(0))


def test_waiting_is_not_charged_and_work_in_other_processes_is(tmp_path: Path) -> None:
    driver = make_driver(tmp_path, [0.0, 0.0, 0.0, 5.0, 5.0, 7.0])
    configs = driver.ask(4)
    assert 5 <= driver.cpu_account.propose_seconds < 5 + WAITS
    driver.tell([Trial(index, config, toys.simulate_flaky(config)) for index, config in enumerate(configs)])
    assert 2 <= driver.cpu_account.train_seconds < 2 + WAITS
