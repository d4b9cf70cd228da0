"""Text that is not valid Unicode: a failure is logged, and invalid options are rejected with one sentence."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

import pytest

from searchlab.conformance import toys
from searchlab.errors import InvalidConfig, SearchlabError
from searchlab.log.read import read_log
from searchlab.measure.local import LocalMeasurer
from searchlab.records import Measurement
from searchlab.run.tune import tune
from searchlab.space import Config, Knob, ProductSpace, Value
from searchlab.target import Target
from searchlab.workload import Workload
from tests.support.cli import searchlab
from tests.support.logs import write_table, write_trials

LONE = "half a pair: \ud800"


class Says(ProductSpace):
    """Every config fails with a message that cannot be encoded."""

    more: tuple[Value, ...] = ()

    def __init__(self, workload: Workload, target: Target) -> None:
        super().__init__(workload, target, [Knob("how", ("invalid", "raises", *self.more))])

    def schedule(self, config: Config) -> NoReturn:
        raise (InvalidConfig if config["how"] == "invalid" else RuntimeError)(LONE)


def test_a_failure_with_unencodable_text_costs_one_trial(measurer: LocalMeasurer, tmp_path: Path) -> None:
    measurements = list(
        measurer.measure(Says(toys.WORKLOAD, measurer.target), [Config({"how": how}) for how in ("invalid", "raises")])
    )
    assert [measurement.failure for measurement in measurements] == ["invalid", "build_error"]
    assert all(r"half a pair: \ud800" in measurement.message for measurement in measurements)


def test_a_study_continues_after_such_a_failure(tmp_path: Path) -> None:
    table = write_table(
        tmp_path / "table.jsonl", toys.Small(), lambda config: Measurement(failure="crash", message=LONE)
    )
    log = tmp_path / "a.jsonl"
    tune(
        toys.WORKLOAD,
        space=toys.Small(),
        policy="random",
        log=log,
        trials=4,
        measure={"kind": "table", "path": str(table)},
    )
    assert {record.message for record in read_log(log).records} == {r"half a pair: \ud800"}


def test_a_knob_that_no_log_can_hold_is_refused(
    measurer: LocalMeasurer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Says, "more", (LONE,))
    space = Says(toys.WORKLOAD, measurer.target)
    with pytest.raises(SearchlabError, match="cannot write the log.*must be plain numbers or Unicode text") as caught:
        tune(
            toys.WORKLOAD,
            space=space,
            policy="grid",
            log=tmp_path / "a.jsonl",
            trials=3,
            batch=1,
            measure={"kind": "local", "workers": 1},
        )
    assert "\n" not in str(caught.value)
    assert len(read_log(tmp_path / "a.jsonl").records) == 2


def test_a_file_whose_name_is_no_unicode_is_read_and_named(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"a\xff.jsonl")
    try:
        write_trials(path, 3)
    except OSError:
        pytest.skip("the file system holds no such name")
    check = searchlab("log", "check", path)
    assert check.returncode == 0 and "is intact: 3 trials" in check.stdout and not check.stderr
    best = searchlab("best", path)
    assert best.returncode == 0 and not best.stderr
    reported = searchlab("report", path, "--out", tmp_path / "report")
    assert reported.returncode == 0, reported.stderr
    assert (tmp_path / "report" / "report.html").is_file()
