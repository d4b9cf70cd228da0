"""Verifying logs: programs that are right, wrong, crash or differ from the measured ones, and times that differ."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import tvm
from msgspec.structs import replace
from tvm.s_tir import Schedule

from searchlab import SearchlabError, load_log, tune
from searchlab.apply import verify
from searchlab.apply.verify import describe_verification, select_fastest_trials, verify_log
from searchlab.errors import SearchlabWarning
from searchlab.machine import host
from searchlab.measure.contract import CannotMeasure
from searchlab.measure.local import LocalMeasurer
from searchlab.records import Trial
from searchlab.space import Choose, Config, Space
from searchlab.target import Target, resolve_target
from searchlab.workload import Gemm, Workload
from tests.support.apply.logs import MEASURE, invoke, scale_times, write_log


class Remembers(Space):
    """A program that always writes the result for the inputs that measuring uses."""

    def decide(self, choose: Choose) -> Config:
        return Config({})

    def schedule(self, config: Config) -> Schedule:
        result = self.workload.reference(self.workload.inputs())
        shapes = ", ".join(f'{name}: T.Buffer({shape}, "float32")' for name, shape in self.workload.shapes.items())
        stores = "".join(
            f"        C[{i}, {j}] = T.float32({float(value)!r})\n"
            for i, row in enumerate(result)
            for j, value in enumerate(row)
        )
        head = f"@I.ir_module\nclass Module:\n    @T.prim_func(s_tir=True)\n    def main({shapes}):\n"
        return Schedule(tvm.script.from_source(head + stores))


@dataclass(frozen=True)
class Slow(Gemm):
    """A GEMM whose untuned program sleeps."""

    def prim_func(self) -> tvm.tirx.PrimFunc:
        plain = super().prim_func()
        sleep = tvm.tirx.Evaluate(tvm.tirx.call_extern("int32", "sleep", 60))
        return plain.with_body(sleep)


class Beside(Space):
    """A correct program of a workload whose untuned program is slow."""

    def __init__(self, workload: Workload, target: Target) -> None:
        assert isinstance(workload, Gemm)
        self.plain = workload
        super().__init__(Slow("float32", m=workload.m, n=workload.n, k=workload.k), target)

    def decide(self, choose: Choose) -> Config:
        return Config({})

    def schedule(self, config: Config) -> Schedule:
        return Schedule(self.plain.module)


def another_cpu() -> dict[str, str]:
    own_cpu = resolve_target("native").spec["mcpu"]
    names = map(str, tvm.target.codegen.llvm_get_cpu_archlist(tvm.target.Target("llvm")))
    return {"kind": "llvm", "mcpu": next(name for name in names if name != own_cpu)}


def test_a_real_log_holds(real_log: Path) -> None:
    data = json.loads(json.dumps(verify_log(real_log, top=2, seed=7).to_json()))
    assert data["right"] and data["own"] and data["seeds"] == [7, 8, 9] and data["settings"]["repeat"] == 2
    first, second = data["programs"]
    result = load_log(real_log)
    assert first["trial"] == result.best.trial.index != second["trial"]
    for program in (first, second):
        assert (
            program["right"] and len(program["seconds"]) == len(data["untuned"]) == program["speed_up"]["rounds"] == 11
        )
        assert program["ratio"] > 0 and isinstance(program["as_logged"], bool) and program["noise"] > 0
        assert program["speed_up"]["low"] <= program["speed_up"]["high"]
    assert len(data["numpy"]) == 11 and min(data["numpy"]) > 0


@pytest.mark.parametrize("workload", ["gemm:16x16x16:int8", "conv2d:1x8x8x4x4x3x3:p1"])
def test_numpy_is_timed_only_where_it_has_a_library(workload: str, tmp_path: Path) -> None:
    log = tmp_path / "a.jsonl"
    tune(workload, space="knob-template", policy="random", trials=1, log=log, measure={"kind": "local", "repeat": 1})
    verification = verify_log(log)
    assert verification.all_correct and not verification.numpy
    assert not any("NumPy" in sentence for sentence in describe_verification(verification))


def test_numpy_is_compared_only_on_a_quiet_machine(real_log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "measure_busy_cores", lambda: 2.0)
    with pytest.warns(SearchlabWarning, match=r"other processes keep about 2\.0 of"):
        verification = verify_log(real_log)
    steady = replace(verification, numpy=(1e-3, 1.1e-3, 9e-3))
    scattered = (1e-3, 2e-3, 9e-3)
    expected = [
        (steady, "1 ms to 9 ms: no comparison, because other processes ran at the same time"),
        (replace(steady, busy=False, numpy=scattered), "1 ms to 9 ms: no comparison, because these readings scatter"),
        (replace(steady, busy=False), "1 ms at best: "),
    ]
    for result, text in expected:
        assert text in describe_verification(result)[-1]


def test_a_time_that_cannot_be_reproduced_is_reported(real_log: Path, tmp_path: Path) -> None:
    """This includes untuned programs that are too slow to be timed in turn."""
    log = scale_times(real_log, tmp_path / "absurd.jsonl", 1e-6)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verify, "UNTUNED_TIME_LIMIT", 0.0)
        verification = verify_log(log)
    (program,) = verification.programs
    assert verification.all_correct and program.ratio is not None and program.ratio > 1e4 and program.as_logged is False
    assert program.speed_up is not None and program.speed_up.rounds == 0 and len(verification.untuned) <= 2
    right, times, untuned, numpy = describe_verification(verification)
    assert "NumPy" in numpy
    assert "correct on inputs from seeds 1, 2, 3" in right
    assert "beyond the repeats' noise" in times and untuned.endswith("not timed in turn)")


def test_readings_not_taken_in_turn_are_not_compared_by_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "UNTUNED_TIME_LIMIT", 0.0)  # the untuned program counts as slow
    monkeypatch.setattr(verify, "ROUNDS", MEASURE["repeat"])  # as many as the untuned program's first readings
    log = write_log(tmp_path / "a.jsonl", [{"fault": "none"}], measure=MEASURE | {"prune_factor": 1e9})
    verification = verify_log(log)
    (program,) = verification.programs
    assert len(program.seconds) == len(verification.untuned)
    assert program.speed_up is not None and program.speed_up.rounds == 0


def test_wrong_and_crashing_programs_give_exit_code_1(tmp_path: Path) -> None:
    """The other programs are verified nevertheless."""
    faults = ("none", "segfaults", "is wrong")
    log = write_log(tmp_path / "a.jsonl", [{"fault": fault} for fault in faults])
    code, output = invoke("verify", log, "--top", 3)
    assert code == 1
    wrong, crash, right, *times = output.splitlines()
    assert "trial 2: wrong_answer: " in wrong and "elements are off" in wrong
    assert "trial 1: crash: the running process died of SIGSEGV" in crash
    assert "trial 0: correct" in right and len(times) == 3


@pytest.mark.parametrize("failing", [{"fault": "tiled"}, {}], ids=["tuned", "untuned"])
def test_a_program_that_fails_when_timed_harms_no_other(
    failing: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remeasure = LocalMeasurer.remeasure

    def fails(self: LocalMeasurer, space: Space, trials: Sequence[Trial], rounds: int) -> list[tuple[float, ...]]:
        if any(trial.config == Config(failing) for trial in trials):
            raise CannotMeasure("on purpose")
        return remeasure(self, space, trials, rounds)

    monkeypatch.setattr(LocalMeasurer, "remeasure", fails)
    log = write_log(tmp_path / "a.jsonl", [{"fault": "none"}, {"fault": "tiled"}])
    tiled, plain = verify_log(log, top=2).programs
    assert plain.failure is None and plain.seconds and (plain.speed_up is not None) == bool(failing)
    if failing:
        assert (tiled.failure, tiled.seconds) == ("run_error", ()) and "failed when it was timed" in tiled.message


def test_wrong_on_other_inputs_only(tmp_path: Path) -> None:
    log = write_log(tmp_path / "a.jsonl", [{}], space="tests.apply.test_verify:Remembers", workload="gemm:4x4x4")
    (program,) = verify_log(log, seed=5).programs
    assert program.failure == "wrong_answer" and "(inputs from seed" in program.message and not program.seconds


def test_a_changed_program_and_a_log_of_a_table_are_reported(real_log: Path, tmp_path: Path) -> None:
    best = load_log(real_log).best.trial
    log = tmp_path / "a.jsonl"
    text = real_log.read_text().replace(best.measurement.program, "0123456789abcdef")
    log.write_text(text.replace('"kind":"local"', '"kind":"table"'))
    verification = verify_log(log)
    (program,) = verification.programs
    assert (
        not verification.all_correct
        and program.failure == "another_program"
        and "0123456789abcdef was measured" in program.message
    )
    assert program.seconds  # it is timed nevertheless
    assert (
        not verification.uses_log_settings
        and "with the default settings" in describe_verification(verification)[0]
        and verification.settings.repeat == 3
    )


def test_an_untuned_program_that_takes_too_long(tmp_path: Path) -> None:
    measure = MEASURE | {"run_timeout": 1.0}
    log = write_log(tmp_path / "a.jsonl", [{}], "tests.apply.test_verify:Beside", "gemm:8x8x8", measure=measure)
    verification = verify_log(log)
    (program,) = verification.programs
    assert (
        verification.all_correct
        and verification.untuned == ()
        and program.speed_up is not None
        and program.speed_up.least
    )
    assert any("untuned over 1 s: more than" in sentence for sentence in describe_verification(verification))


def test_the_fastest_are_different_programs(real_log: Path) -> None:
    result = load_log(real_log)
    trials = select_fastest_trials(result, 100)
    assert trials[0] == result.best.trial
    assert len({trial.measurement.program for trial in trials}) == len(trials)


def test_a_trial_without_a_time_is_none_of_the_fastest(real_log: Path, tmp_path: Path) -> None:
    best = load_log(real_log).best.trial.index
    lines = [json.loads(line) for line in real_log.read_text().splitlines()]
    lost = next(line for line in lines if "config" in line and line["index"] != best)
    del lost["seconds"]
    lost["failure"] = "crash"
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    assert lost["index"] not in [trial.index for trial in select_fastest_trials(load_log(tmp_path / "a.jsonl"), 100)]


def test_numbers_of_programs_and_seeds_are_at_least_one(real_log: Path) -> None:
    for top, seed in ((0, 1), (1, 0)):
        with pytest.raises(SearchlabError, match=f"must each be at least 1; got top={top} and seed={seed}"):
            verify_log(real_log, top=top, seed=seed)


def test_logs_that_cannot_be_verified_here_are_rejected(tmp_path: Path) -> None:
    config = {"fault": "none"}
    numbers = iter(range(100))

    def refused(message: str, **header: object) -> None:
        log = write_log(tmp_path / f"{next(numbers)}.jsonl", [config], **header)  # type: ignore[arg-type]
        with pytest.raises(SearchlabError, match=message):
            verify_log(log)

    refused("was measured on 'another CPU', but this machine has", host={"cpu": "another CPU"})
    refused("contains programs for 'aarch64-linux-gnu'", target={"kind": "llvm", "mtriple": "aarch64-linux-gnu"})
    refused("contains programs for the CPU '[a-z0-9-]+', but this machine has", target=another_cpu())
    refused("is for 1024 cores", target={"kind": "native", "num-cores": 1024})
    refused("no CUDA device was found|cannot run on this machine's GPU", target={"kind": "cuda", "arch": "sm_35"})
    refused("on a fleet's 'pi' devices", measure={"kind": "rpc", "key": "pi"})
    refused(
        "measured with settings that this version of searchlab does not support", measure={"kind": "local", "warmth": 3}
    )
    log = write_log(tmp_path / "none.jsonl", [])
    with pytest.raises(SearchlabError, match="has no successful trial"):
        verify_log(log)
