"""Timing a table in passes, and whether its times depend on when they were read."""

from __future__ import annotations

import io
import re
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest
from rich.console import Console

from searchlab.conformance import toys
from searchlab.errors import SearchlabError
from searchlab.log.format import Log
from searchlab.log.read import read_log
from searchlab.measure.contract import CannotMeasure, Remeasurer
from searchlab.records import Measurement, Trial, select_first_of_each_program
from searchlab.run.plan import OnChargedTrial
from searchlab.run.progress import RunProgress
from searchlab.space import Config, Space
from searchlab.tables.build import build_tables, make_table_runs, make_table_study, plan_tables
from searchlab.tables.info import TableInfo, explain_unsteadiness
from searchlab.tables.passes import BLOCK_SIZE, FINAL_KEY, MAX_TRIES, BlockKey, PassTimer

GEMM = "gemm:32x32x32"
QUICK = {"kind": "local", "repeat": 2, "min_repeat_ms": 0}


def ignore_trials(*_: object) -> OnChargedTrial:
    return lambda *_: None


class Machine(Remeasurer):
    """A machine that is ``factor(n)`` times as slow at its n-th call; programs named in ``broken`` fail."""

    def __init__(self, factor=lambda call: 1.0, broken: Sequence[str] = ()) -> None:  # type: ignore[no-untyped-def]
        self.factor, self.broken, self.calls, self.rng = factor, set(broken), 0, np.random.default_rng(0)

    def measure(self, space: Space, configs: Sequence[Config], best: float = 0.0) -> Iterator[Measurement]:
        raise AssertionError("passes never measure anew")

    def remeasure(self, space: Space, trials: Sequence[Trial], rounds: int) -> list[tuple[float, ...]]:
        if self.broken & {trial.measurement.program for trial in trials}:
            raise CannotMeasure("it crashed")
        self.calls += 1
        slow = self.factor(self.calls)
        return [tuple(slow * t.cost * self.rng.lognormal(0, 0.01, rounds)) for t in trials]


def make_trials(count: int) -> list[Trial]:
    return [Trial(i, Config({"x": i}), Measurement((1e-6 * (1 + i),), program=f"{i:016x}")) for i in range(count)]


def passes(path: Path, trials: list[Trial], count: int = 3) -> PassTimer:
    return PassTimer(toys.Small(), trials, count, readings_per_block=3, seed=0, path=path / "passes.jsonl")


def test_every_program_is_timed_once_per_pass_in_new_order(tmp_path: Path) -> None:
    trials = make_trials(100)
    table_passes = passes(tmp_path, trials)
    machine = Machine()
    table_passes.time(machine)
    for pass_index in range(3):
        order = [t.index for block in range(4) for t in table_passes.list_block_trials(BlockKey(pass_index, block))]
        assert sorted(order) == list(range(100)) and order != sorted(order)
    assert (
        table_passes.list_block_trials(BlockKey(0, 0)) != table_passes.list_block_trials(BlockKey(1, 0))
        and len(table_passes.list_block_trials(BlockKey(0, 3))) == 100 - 3 * BLOCK_SIZE
    )
    readings = table_passes.collect_readings()
    for trial in trials:
        assert len(readings[trial.measurement.program].seconds) == 3
        assert statistics.median(readings[trial.measurement.program].seconds) == pytest.approx(trial.cost, rel=0.05)
    for trial in trials[:5]:  # the fastest, in turn
        assert (
            len(set(readings[trial.measurement.program].measured_at)) == 1
            and table_passes.summarize().round_count == 48
        )
    assert table_passes.repeated_block_count == 0 and machine.calls == 3 * 4 + 1


def test_only_blocks_with_a_slow_machine_are_timed_again(tmp_path: Path) -> None:
    table_passes = passes(tmp_path, make_trials(100))
    machine = Machine(lambda call: 1.5 if call in (3, 7) else 1.0)
    table_passes.time(machine)
    assert (
        table_passes.repeated_block_count == 2
        and machine.calls == 3 * 4 + 2 + 1
        and not table_passes.find_deviating_blocks(table_passes.blocks)
    )
    for program, readings in table_passes.collect_readings().items():
        assert max(readings.seconds) < 1.2 * 1e-6 * (1 + int(program, 16))


def test_a_block_with_slow_programs_is_timed_again(tmp_path: Path) -> None:
    class Uneven(Machine):
        """Slow for all programs but the sentinel, at one call."""

        def remeasure(self, space: Space, trials: Sequence[Trial], rounds: int) -> list[tuple[float, ...]]:
            seconds = super().remeasure(space, trials, rounds)
            if self.calls != 7:
                return seconds
            return [
                values if t is trials[0] else tuple(1.3 * s for s in values)
                for t, values in zip(trials, seconds, strict=True)
            ]

    table_passes, machine = passes(tmp_path, make_trials(100)), Uneven()
    table_passes.time(machine)
    assert table_passes.repeated_block_count == 1 and machine.calls == 3 * 4 + 1 + 1


def test_an_unsteady_machine_gives_no_table_until_it_is_steady(tmp_path: Path) -> None:
    with pytest.raises(SearchlabError, match="not steady.*run this again.*idle"):
        passes(tmp_path, make_trials(100)).time(Machine(lambda call: 1.0 if call % 2 else 1.4))
    table_passes = passes(tmp_path, make_trials(100))
    assert 0 < len(table_passes.find_deviating_blocks(table_passes.blocks)) < 13 and len(table_passes.blocks) == 12
    machine = Machine(lambda call: statistics.median(b.sentinel for b in table_passes.blocks.values()) / 51e-6)
    table_passes.time(machine)
    assert machine.calls <= 12 * MAX_TRIES and not table_passes.find_deviating_blocks(table_passes.blocks)


def test_the_fastest_are_timed_until_the_machine_is_steady(tmp_path: Path) -> None:
    with pytest.raises(SearchlabError, match="1 of 13 blocks still deviate, by a factor of up to 1.5"):
        passes(tmp_path, make_trials(100)).time(Machine(lambda call: 1.5 if call > 12 else 1.0))
    table_passes, machine = passes(tmp_path, make_trials(100)), Machine()
    table_passes.time(machine)
    assert machine.calls == 1 and not table_passes.find_deviating_blocks(table_passes.blocks)


def test_a_block_that_deviates_at_the_end_is_timed_again(tmp_path: Path) -> None:
    """The median that blocks are compared with is of all blocks, the last one too."""

    class Exact(Machine):
        def remeasure(self, space: Space, trials: Sequence[Trial], rounds: int) -> list[tuple[float, ...]]:
            self.calls += 1
            return [(self.factor(self.calls) * t.cost,) * rounds for t in trials]

    table_passes = passes(tmp_path, make_trials(100))
    machine = Exact(lambda call: 0.905 if call == 5 else 1.0 if call < 7 else 1.01)
    table_passes.time(machine)
    assert machine.calls == 12 + 1 + 1 and not table_passes.find_deviating_blocks(table_passes.blocks)


def test_a_killed_build_goes_on_and_a_torn_line_is_timed_again(tmp_path: Path) -> None:
    passes(tmp_path, make_trials(100)).time(Machine())
    journal = tmp_path / "passes.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:5]) + lines[5][:40])
    machine = Machine()
    passes(tmp_path, make_trials(100)).time(machine)
    assert machine.calls == 13 - 5 and len(journal.read_bytes().splitlines()) == 13
    with pytest.raises(SearchlabError, match="other programs; remove it"):
        passes(tmp_path, make_trials(99))
    journal.write_bytes(lines[0][:30] + b"\n" + lines[1])
    with pytest.raises(SearchlabError, match="line 1 is damaged.*remove the file"):
        passes(tmp_path, make_trials(100))


def test_a_program_that_fails_in_a_pass_is_a_failure_of_its_own(tmp_path: Path) -> None:
    trials = make_trials(40)
    table_passes = passes(tmp_path, trials)
    table_passes.time(Machine(broken=[trials[3].measurement.program]))
    readings = table_passes.collect_readings()
    assert [p for p, r in readings.items() if r.failure_message] == [trials[3].measurement.program]
    assert readings[trials[3].measurement.program].failure_message == "it crashed"
    assert trials[3] not in table_passes.find_fastest() and len(table_passes.blocks[FINAL_KEY].programs) == 5
    (tmp_path / "passes.jsonl").unlink()
    with pytest.raises(SearchlabError, match="the sentinel program now fails"):
        passes(tmp_path, trials).time(Machine(broken=[table_passes.sentinel.measurement.program]))


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Log:
    """A real table, of a machine that may be busy with other tests."""
    folder = tmp_path_factory.mktemp("table")
    study = make_table_study(
        GEMM, "guided-gemm", {"tiles": "fitting", "pack_a": "knob", "pack_b": "knob"}, measure=QUICK
    )
    path = folder / "a.parquet"
    runs_by_table = make_table_runs(plan_tables(study)[0], path, Path(), passes=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("searchlab.tables.passes.MAX_DEVIATION", 100.0)
        output = io.StringIO()
        with RunProgress(Console(file=output, force_terminal=True)) as progress:
            build_tables(runs_by_table, 2, ignore_trials, progress.show)
        assert "pass 2 of 2" in output.getvalue() or "the fastest, in turn" in output.getvalue()
        before = path.read_bytes()
        build_tables(runs_by_table, 2, ignore_trials)
    assert [path.name for path in folder.iterdir()] == ["a.parquet"] and path.read_bytes() == before
    return read_log(path)


def test_a_table_that_was_built_in_passes_tells_how(table: Log) -> None:
    assert table.header.passes is not None and table.header.passes.count == 2
    assert (
        len(table.header.passes.sentinel_readings)
        == 2 * -(-len(select_first_of_each_program(table.trials)) // BLOCK_SIZE) + 1
    )
    for record in table.records:
        assert len(record.seconds) == len(record.measured_at) == 2
    assert "programs" not in table.header.measure
    info = TableInfo(table).to_json()
    assert info["passes"]["finalists"] == 5 and info["exhaustive"]


def make_drifting_table(log: Log, factor: float, count: int = 400) -> Log:
    """A table of ``count`` programs in 3 passes, of which a part of the second was ``factor`` times as slow."""
    rng = np.random.default_rng(1)
    header = msgspec.structs.replace(
        log.header,
        passes=msgspec.structs.replace(log.header.passes, count=3, sentinel_readings=((0.0, 1e-6), (9.0, 1.05e-6))),
    )
    records = []
    orders = [rng.permutation(count) for _ in range(3)]
    for i in range(count):
        at = tuple(100.0 * p + int(orders[p][i]) // BLOCK_SIZE for p in range(3))
        seconds = [float(1e-6 * (1 + i) * rng.lognormal(0, 0.03)) for _ in at]
        if 103 <= at[1] < 106:
            seconds[1] *= factor
        records.append(msgspec.structs.replace(log.records[0], index=i, seconds=tuple(seconds), measured_at=at))
    return Log(log.path, header, tuple(records))


def test_times_that_depend_on_the_time_of_day_are_refused(table: Log) -> None:
    assert explain_unsteadiness(make_drifting_table(table, 1.0)) == ""
    assert re.search(
        r"took 1\.[1-4]\d times as long as in other passes", explain_unsteadiness(make_drifting_table(table, 1.4))
    )
    assert re.search(r"took 0\.[6-8]\d times", explain_unsteadiness(make_drifting_table(table, 0.65)))
    header = msgspec.structs.replace(
        table.header,
        passes=msgspec.structs.replace(table.header.passes, sentinel_readings=((0, 1e-6), (1, 1e-6), (2, 1.2e-6))),
    )
    assert "1.20 times as long as usual at 2 s" in explain_unsteadiness(Log(table.path, header, table.records))


def test_a_table_of_one_pass_is_tested_by_its_order(table: Log) -> None:
    header = msgspec.structs.replace(table.header, passes=None)
    rng = np.random.default_rng(3)

    def describe_unsteadiness(slow: float, label: str = "table") -> str:
        costs = rng.permutation(np.geomspace(1e-6, 1e-4, 800)) * np.where(np.arange(800) < 200, slow, 1.0)
        records = [
            msgspec.structs.replace(table.records[0], index=i, seconds=(float(c),), measured_at=())
            for i, c in enumerate(costs)
        ]
        return explain_unsteadiness(Log(table.path, msgspec.structs.replace(header, label=label), tuple(records)))

    assert (
        describe_unsteadiness(1.0) == "" and describe_unsteadiness(2.5, label="xgb") == ""
    )  # a search gets faster, and is no table
    assert "depend on the order of measurement" in describe_unsteadiness(2.5)
