"""Tuning a model: rounds as the scheduler decides, resuming after a kill, and the tuned model."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import tvm
from rich.console import Console
from tvm import relax
from tvm.support import cc
from tvm_ffi import structural_equal

import searchlab
from searchlab.errors import SearchlabError
from searchlab.log.read import read_log
from searchlab.model.compiled import ModelComparison
from searchlab.model.decisions import DECISIONS_FILE, Decision
from searchlab.model.inputs import bind_weights, describe_weights, fix_dimensions, inputs_of, random_inputs
from searchlab.model.library import CompiledModel
from searchlab.model.tasks import lower
from searchlab.model.tune import LIBRARY_FILE, LOGS_DIR, UNTUNED_DIR, TunedModel, default_settings
from searchlab.plugins import execute_file
from searchlab.run import progress
from searchlab.target import Target
from tests.model import models
from tests.support.cli import searchlab as searchlab_cli
from tests.support.spaces.targets import UNOPTIMIZED

QUICK = {"kind": "local", "repeat": 1, "min_repeat_ms": 1, "finalists": 0}


class Killed(Exception):
    pass


def tune_model(out: Path, trials: int = 24, **options: Any) -> TunedModel:
    return searchlab.tune_model(
        **{
            "mod": models.mlp(),
            "out": out,
            "trials": trials,
            "batch": 4,
            "policy": "random",
            "space": "knob-template",
            "measure": QUICK,
            "target": UNOPTIMIZED,
            "compile": False,
            "progress": False,
            **options,
        },
    )


def configs(out: Path) -> dict[str, list[Any]]:
    return {
        path.name: [record.config for record in read_log(path).records] for path in (out / LOGS_DIR).glob("*.jsonl")
    }


def decisions(out: Path) -> list[Decision]:
    return [msgspec.json.decode(line, type=Decision) for line in (out / DECISIONS_FILE).read_bytes().splitlines()[1:]]


def test_a_model_is_tuned_compared_and_exported(tmp_path: Path) -> None:
    model = tune_model(tmp_path / "mlp", 8, compile=True, force=True)
    assert sum(len(result.trials) for result in model.results.values()) == 8
    frame = model.to_frame().set_index("task")
    assert list(frame.index) == list(model.results) and frame["trials"].sum() == 8 and not frame["ended"].any()
    assert frame["share"].sum() == pytest.approx(1)
    assert frame["gflops"].to_numpy() == pytest.approx((frame["flops"] / frame["seconds"] / 1e9).to_numpy())
    assert model.comparison is not None and model.comparison.difference < 1e-5
    assert all(seconds > 0 for seconds in (*model.comparison.untuned_seconds, *model.comparison.tuned_seconds))
    if model.library is None:
        pytest.skip("no C compiler")
    assert model.library == tmp_path / "mlp" / LIBRARY_FILE
    inputs = inputs_of(models.mlp())
    arrays = x, w1, b1, w2, b2 = list(random_inputs(inputs, np.random.default_rng(1)))
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(model.library)), tvm.cpu())
    probabilities = machine["forward"](*map(tvm.runtime.tensor, arrays)).numpy()
    scores = np.maximum(x @ w1.T + b1, 0) @ w2.T + b2
    expected = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(probabilities, expected, rtol=1e-4)
    compiled, path = CompiledModel(model.library), tmp_path / "x.npz"
    assert list(compiled.signature.inputs) == inputs
    by_name = {item.name: array for item, array in zip(inputs, arrays, strict=True)}
    (output,) = compiled.run(compiled.order_inputs(dict(reversed(by_name.items())), path))
    np.testing.assert_array_equal(output, probabilities)
    for wrong, message in [
        ({"y": x}, r"contains 'y', but the model's inputs are x, hidden.weight"),
        ({"x": x.T}, r"x in .*x.npz has the shape \[16, 2\], but the model takes \[2, 16\]"),
        ({"x": x.astype("float64")}, "x in .*x.npz is float64, but the model takes float32"),
    ]:
        with pytest.raises(SearchlabError, match=message):
            compiled.order_inputs({**by_name, **wrong}, path)
    with pytest.raises(SearchlabError, match=r"lacks the model's input hidden.weight: float32\[8, 16\]"):
        compiled.order_inputs({"x": x}, path)


def test_a_function_with_as_many_elements_in_as_out_compiles(tmp_path: Path) -> None:
    """Relax's RewriteDataflowReshape looks into such functions, here softmax, and expects a block."""
    model = tune_model(tmp_path, 8, mod=models.normalised(), space="sketch", compile=True)
    assert any(name.startswith("tir:softmax@") for name in model.results)
    assert model.comparison is not None and model.comparison.difference < 1e-5


def test_constant_weights_are_packed(tmp_path: Path) -> None:
    module = models.wide_mlp()
    _, *weights = inputs_of(module)
    arrays = random_inputs(weights, np.random.default_rng(1))
    np.savez(tmp_path / "weights.npz", **{weight.name: array for weight, array in zip(weights, arrays, strict=True)})
    constant = bind_weights(module, tmp_path / "weights.npz")
    space = [{"name": "guided-gemm", "options": {"weights": "packed"}}, "sketch"]
    model = tune_model(tmp_path / "mlp", 12, mod=constant, space=space, compile=True)
    names = {variable.name_hint for variable in model.module.functions}
    assert sum(name.endswith("_packed") for name in names) == 2 and not any("pack_B" in name for name in names)
    assert model.comparison is not None and model.comparison.difference < 1e-5
    assert not describe_weights(model.module)


def test_computations_on_weights_in_every_run_are_described() -> None:
    text = describe_weights(lower(models.convolutions()[0]))
    assert re.match(
        r"7 weights \(6.1 kB\) are arguments of the model, and every run computes \d+ bytes from them, with 3 calls of "
        r"reshape; --bind FILE.npz",
        text,
    )


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("hidden.wieght", np.zeros((8, 16), "float32"), "contains 'hidden.wieght', .*did you mean 'hidden.weight'"),
        ("hidden.weight", np.zeros((16, 8), "float32"), r"has the shape \[16, 8\], but the model takes \[8, 16\]"),
        ("hidden.weight", np.zeros((8, 16)), "is float64, but the model takes float32"),
        ("hidden.weight", np.array([{}]), "is no archive of arrays"),
    ],
)
def test_weights_that_do_not_fit_are_refused(tmp_path: Path, name: str, array: Any, message: str) -> None:
    np.savez(tmp_path / "weights.npz", **{name: array})
    with pytest.raises(SearchlabError, match=message):
        bind_weights(models.mlp(), tmp_path / "weights.npz")


def test_caches_are_cold_unless_a_user_says_otherwise(tmp_path: Path) -> None:
    model = tune_model(tmp_path, 2, batch=1, measure=None)
    assert {result.log.header.measure["cache"] for result in model.results.values()} == {"cold"}
    foreign = Target({"kind": "llvm", "mtriple": "riscv64-unknown-linux-gnu", "num-cores": 1})
    assert default_settings(foreign).cache == "warm"


def test_a_killed_model_resumes_with_the_same_trials(tmp_path: Path) -> None:
    uninterrupted, killed = tmp_path / "a", tmp_path / "b"
    tune_model(uninterrupted, scheduler="round-robin")
    for round_of_death in (0, 3):

        def die(decision: Decision, at: int = round_of_death) -> None:
            if decision.round == at:
                raise Killed

        with pytest.raises(Killed):
            tune_model(killed, scheduler="round-robin", on_round=die)
        with (killed / DECISIONS_FILE).open("ab") as file:
            file.write(b'{"round":')  # a line that was being written
    model = tune_model(killed, scheduler="round-robin")
    assert configs(killed) == configs(uninterrupted)
    assert [(decision.round, decision.task, decision.trials) for decision in decisions(killed)] == [
        (decision.round, decision.task, decision.trials) for decision in decisions(uninterrupted)
    ]
    assert [decision.total for decision in model.decisions] == [4, 8, 12, 16, 20, 24]


def test_a_resumed_scheduler_decides_as_before(tmp_path: Path) -> None:
    first = tune_model(tmp_path, 16, scheduler="ucb")
    measured = sum(map(len, configs(tmp_path).values()))
    again = tune_model(tmp_path, 24, scheduler="ucb")  # extended
    assert list(again.decisions)[: len(first.decisions)] == list(first.decisions)
    assert measured == 16 and sum(map(len, configs(tmp_path).values())) == 24


def test_a_cut_round_is_completed_later(tmp_path: Path) -> None:
    assert [decision.trials for decision in tune_model(tmp_path, 10, scheduler="round-robin").decisions] == [4, 4, 2]
    for trials, rounds in ((14, [4, 4, 4, 2]), (16, [4, 4, 4, 4]), (14, [4, 4, 4, 2]), (20, [4, 4, 4, 4, 4])):
        assert [
            decision.trials for decision in tune_model(tmp_path, trials, scheduler="round-robin").decisions
        ] == rounds
    assert [decision.total for decision in decisions(tmp_path)] == [4, 8, 12, 16, 20]


def test_the_first_round_is_the_default_config_on_request(tmp_path: Path) -> None:
    for trials in (8, 10):  # the second call resumes, and completes a round
        model = tune_model(tmp_path, trials, scheduler="round-robin", warm_start="default")
    assert [decision.trials for decision in model.decisions] == [1, 1, 4, 4]
    for result in model.results.values():
        assert result.trials[0].config == result.space.default_config()


def test_runs_start_from_the_logs_of_another_model(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    earlier = {name: result.trials for name, result in tune_model(first, 8).results.items()}
    for trials in (8, 16):
        model = tune_model(second, trials, warm_start=first)
        tune_model(first, 16)  # the directory grows, but resumed runs start from the same trials
    for name, result in model.results.items():
        assert len(result.log.header.warm_start) == 1
        assert not {trial.config for trial in result.trials} & {trial.config for trial in earlier[name]}


def test_a_process_that_was_killed_is_resumed(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "searchlab",
        "model",
        "tune",
        f"{Path(models.__file__)}:mlp",
        "--trials",
        "24",
        "--batch",
        "4",
        "--policy",
        "random",
        "--space",
        "knob-template",
        "--scheduler",
        "round-robin",
        "--target",
        json.dumps(UNOPTIMIZED),
        "--measure",
        json.dumps(QUICK),
        "--out",
        str(tmp_path / "killed"),
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    file = tmp_path / "killed" / DECISIONS_FILE
    while not file.exists() or file.read_bytes().count(b"\n") < 3:
        assert process.poll() is None, "it ended before it was killed"
        time.sleep(0.02)
    process.kill()
    process.wait()
    existing = configs(tmp_path / "killed")
    tune_model(tmp_path / "killed", scheduler="round-robin")
    resumed = configs(tmp_path / "killed")
    assert sum(map(len, existing.values())) < sum(map(len, resumed.values())) == 24
    assert all(resumed[name][: len(before)] == before for name, before in existing.items())


def test_each_task_is_searched_in_the_first_space_that_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LINE_INTERVAL_SECONDS", 0.0)
    console = Console(file=io.StringIO(), width=200)
    model = tune_model(tmp_path, 12, space=["guided-conv2d", "knob-template", "sketch"], progress=console)
    lines = console.file.getvalue().splitlines()
    assert lines[2].startswith("the untuned programs: 3 of 3 done") and "model" not in lines[-2]
    assert re.fullmatch(r".*: 12 of 12 done, model .* ms, .* GFLOPS, 0 left.*", lines[-1])
    spaces = {name.partition(":")[0]: result.log.header.space.name for name, result in model.results.items()}
    assert spaces == {"gemm": "knob-template", "tir": "sketch"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scheduler": "gradient"}, "begun with a different scheduler"),
        ({"seed": 1}, "its seed is 0, not 1; choose a different directory, or repeat"),
        ({"trials": 4}, "too few for 2 tasks"),
        ({"scheduler": "round-robbin"}, "did you mean 'round-robin'"),
        ({"space": "guided-conv2d"}, "no task of the model can be tuned"),
    ],
)
def test_other_settings_are_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    tune_model(tmp_path, 8, scheduler="round-robin")
    with pytest.raises(SearchlabError, match=message):
        tune_model(tmp_path, **{"trials": 8, "scheduler": "round-robin", **options})


def test_a_task_is_left_when_its_space_is_exhausted(tmp_path: Path) -> None:
    model = tune_model(tmp_path, 100_000, batch=512, space=f"{__name__}:Few", scheduler="gradient")
    assert {name: len(result.trials) for name, result in model.results.items()} == dict.fromkeys(model.results, 3)
    assert [decision.trials for decision in model.decisions] == [3, 3, 0, 0]
    assert any(reason.startswith("no programs for tir") for reason in model.left_out.values())  # softmax


class Few(searchlab.ProductSpace):
    """Three programs of any GEMM."""

    def __init__(self, workload: searchlab.Workload, target: searchlab.Target) -> None:
        if workload.op != "gemm":
            raise searchlab.UnsupportedWorkload(f"no programs for {workload.op}")
        super().__init__(workload, target, [searchlab.Knob("unroll", (1, 2, 4))])

    def schedule(self, config: Any) -> Any:
        from tvm.s_tir import Schedule

        schedule = Schedule(self.workload.module)
        loop = schedule.get_loops(schedule.get_sblock(self.workload.op))[0]
        schedule.annotate(loop, "pragma_auto_unroll_max_step", config["unroll"])
        return schedule


def test_a_symbolic_dimension_is_refused_before_any_trial(tmp_path: Path) -> None:
    with pytest.raises(SearchlabError, match="input x has the symbolic dimension n; choose a size, .* --shape n=1"):
        searchlab.tune_model(
            models.partly_symbolic(),
            out=tmp_path / "m",
            trials=4,
            batch=2,
            policy="random",
            space="sketch",
            measure=QUICK,
        )
    assert not (tmp_path / "m").exists()
    fixed = fix_dimensions(models.partly_symbolic(), {"n": 3})
    assert inputs_of(fixed)[0].shape == (3, 16)
    with pytest.raises(SearchlabError, match="no dimension 'm'; its symbolic dimensions are n"):
        fix_dimensions(models.partly_symbolic(), {"m": 3})


@pytest.fixture(scope="module")
def wasteful(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, TunedModel]:
    """Return a directory and the model that was tuned there, for which only slow programs were found."""
    out = tmp_path_factory.mktemp("model") / "mlp"
    return out, tune_model(out, 4, batch=2, space=f"{__name__}:Wasteful", scheduler="round-robin")


def test_a_task_without_faster_programs_stays_untuned(wasteful: tuple[Path, TunedModel]) -> None:
    out, model = wasteful
    assert all(
        trial.cost > 2 * model.untuned[name] for name, result in model.results.items() for trial in result.trials
    )
    assert structural_equal(model.module, lower(models.mlp()))
    frame = model.to_frame()
    assert list(frame["seconds"]) == list(frame["untuned_seconds"]) == list(model.untuned.values())
    again = tune_model(out, 4, batch=2, space=f"{__name__}:Wasteful", scheduler="round-robin")
    assert again.untuned == model.untuned  # it is not measured again


def test_schedulers_are_compared_on_the_logs_of_a_model(
    wasteful: tuple[Path, TunedModel], capsys: pytest.CaptureFixture[str]
) -> None:
    out, model = wasteful
    study = execute_file(Path(__file__).parents[2] / "studies" / "schedulers.py")
    study.compare_on_logs([out], [2], 32)
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    assert {row[1] for row in rows} == {"round-robin", "gradient", "ansor", "ucb"}
    untuned = sum(task.occurs * model.untuned[task.name] for task in model.tasks)  # nothing faster was found
    assert {row[2] for row in rows} == {f"{untuned * 1e3:.4g}"}


def test_a_slower_model_is_exported_only_if_forced(wasteful: tuple[Path, TunedModel], tmp_path: Path) -> None:
    out, library = tmp_path / "mlp", tmp_path / "mlp" / LIBRARY_FILE
    shutil.copytree(wasteful[0], out)
    options = ["--trials", 4, "--batch", 2, "--policy", "random", "--space", f"{__name__}:Wasteful", "--out", out]
    options += ["--target", json.dumps(UNOPTIMIZED), "--measure", json.dumps(QUICK)]
    command = ["model", "tune", f"{models.__file__}:mlp", *options]
    for log in (out / UNTUNED_DIR).iterdir():  # as if the untuned programs had been measured wrongly
        log.write_text(re.sub(r'"seconds":\[.*?\]', '"seconds":[1.0]', log.read_text()))
    completed = searchlab_cli(*command, "--scheduler", "round-robin")
    assert completed.returncode == 1 and not library.exists()
    assert "times as long as the untuned one, which is more than the noise, and was not exported" in completed.stderr
    completed = searchlab_cli(*command, "--scheduler", "round-robin", "--force")
    assert completed.returncode == 0 and library.exists() == (cc.get_cc() is not None)


@pytest.mark.parametrize(
    ("before", "after", "slower"),
    [
        ([1.0] * 7, [1.02] * 7, True),
        ([1.0] * 7, [1.005] * 7, False),
        ([1.0] * 7, [*[1.02] * 6, 1.0], False),
        ([1.0, 1.1] * 4, [1.05, 1.15] * 4, False),
        ([1.0] * 7, [0.5] * 7, False),
    ],
)
def test_a_model_is_slower_only_beyond_the_noise(before: list[float], after: list[float], slower: bool) -> None:
    assert ModelComparison(tuple(before), tuple(after), 0.0).is_slower == slower


class Wasteful(Few):
    """Three programs that compute a GEMM far slower than its loops in their order."""

    def schedule(self, config: Any) -> Any:
        schedule = super().schedule(config)
        schedule.pad_einsum(schedule.get_sblock("gemm"), [64, 64, 64])
        return schedule
