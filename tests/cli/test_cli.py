"""The command line: exit codes and output, in separate processes where that matters."""

from __future__ import annotations

import html
import io
import json
import os
import re
import time
from importlib.metadata import version
from pathlib import Path

import pytest
from rich.console import Console

from searchlab import Study, tune
from searchlab.cli.parameters import parse_plugin
from searchlab.cli.terminal import progress_console, say_table
from searchlab.conformance import toys
from searchlab.errors import SearchlabWarning
from searchlab.plugins import Plugin
from searchlab.run import progress
from tests.support.cli import searchlab, searchlab_process
from tests.support.logs import read_deterministic_part, write_table
from tests.support.measure.faulty import Faulty

pytestmark = pytest.mark.usefixtures("unoptimized")

STUDY = """
workloads = ["gemm:64x64x64"]
spaces = [{ name = "searchlab.conformance.toys:Small", label = "small" }]
policies = ["random", "evolutionary"]
seeds = 2
trials = 20
target = { kind = "llvm" }
measure = { kind = "table", path = "table.jsonl" }
"""


TABLE = '{"kind": "table", "path": "table.jsonl"}'

OLD_TABLE = Path(__file__).parents[2] / "studies" / "fidelity" / "gemm-knob-template.parquet"
"""A table that was measured while the machine drifted."""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    write_table(tmp_path / "table.jsonl", toys.Small(), toys.simulate_flaky)
    (tmp_path / "study.toml").write_text(STUDY)
    return tmp_path / "study.toml"


def test_help_explains_itself() -> None:
    overview = searchlab("--help")
    assert overview.returncode == 0
    for command in ("run", "tune", "report", "best", "list", "space", "table", "schema"):
        assert command in overview.stdout
        help_of = searchlab(command, "--help")
        assert help_of.returncode == 0 and len(help_of.stdout.splitlines()) > 5
    assert searchlab().returncode == 2


def test_a_study_is_run_repeated_and_reported(study: Path, tmp_path: Path) -> None:
    """In every process, one seed has one result: neither hash randomisation nor the number of threads matters."""
    first = searchlab_process("run", study, cwd=tmp_path, PYTHONHASHSEED="7", OMP_NUM_THREADS="2")
    assert first.returncode == 0, first.stderr
    assert "best known" in " ".join(first.stdout.split()) and "results/study/report" in first.stdout
    logs = {path: path.read_bytes() for path in (tmp_path / "results" / "study").rglob("*.jsonl")}
    assert len(logs) == 4
    assert searchlab("run", study, cwd=tmp_path).returncode == 0
    assert {path: path.read_bytes() for path in logs} == logs
    reported = searchlab("report", "results/study", "--json", cwd=tmp_path)
    summary = json.loads(reported.stdout)
    assert {row["strategy"] for row in summary["workloads"][0]["strategies"]} == {"evolutionary", "random"}
    assert (tmp_path / "results" / "study" / "report" / "report.html").exists()
    assert searchlab("run", study, "--out", tmp_path / "other").returncode == 0
    for path in logs:
        repeated = tmp_path / "other" / path.relative_to(tmp_path / "results" / "study")
        assert read_deterministic_part(repeated) == read_deterministic_part(path)


def test_the_progress_bar_of_a_study_always_completes(study: Path, tmp_path: Path) -> None:
    """Covers runs that their policy ended, and logs with more trials than the study now has."""
    output = io.StringIO()
    terminal = Console(file=output, force_terminal=True, width=120)
    study.write_text(STUDY.replace("trials = 20", "trials = 130"))  # the space has 120 configs
    Study.load(study).run(tmp_path / "out", progress=terminal)
    assert "520/520" in output.getvalue()
    study.write_text(STUDY)
    with pytest.warns(SearchlabWarning, match="contains 120 trials, more than the 20"):
        Study.load(study).run(tmp_path / "out", progress=terminal)
    assert "80/80" in output.getvalue()


def test_a_folder_of_tables_gets_no_report(study: Path, tmp_path: Path) -> None:
    folder = tmp_path / "tables"
    folder.mkdir()
    lines = (tmp_path / "table.jsonl").read_text().splitlines(keepends=True)
    header = json.loads(lines[0]) | {"label": "table"}
    (folder / "a.jsonl").write_text("".join([json.dumps(header, separators=(",", ":")) + "\n", *lines[1:]]))
    refused = searchlab("report", folder, cwd=tmp_path)
    assert refused.returncode == 2 and "is a folder of tables, such as a.jsonl; specify where" in refused.stderr
    assert [path.name for path in folder.iterdir()] == ["a.jsonl"]
    assert searchlab("report", folder, "--out", "here", cwd=tmp_path).returncode == 0


def test_logs_are_reported_on_by_name(study: Path, tmp_path: Path) -> None:
    table = tmp_path / "table.jsonl"
    result = searchlab("report", table, table, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "the report: results/report/report.html" in result.stdout
    assert (tmp_path / "results" / "report" / "report.html").is_file()
    result = searchlab("report", table, tmp_path, "--out", "here", "--json", cwd=tmp_path)
    assert json.loads(result.stdout)["workloads"][0]["strategies"][0]["seeds"] == [0], "one log, named twice"
    assert (tmp_path / "here" / "report.html").is_file()


@pytest.mark.parametrize(
    "workload, space", [("gemm:8x8x8", "trace,function=columns:split"), ("columns:Own:8x8x8", "sketch")]
)
def test_the_hint_of_tune_works_for_code_of_the_user(tmp_path: Path, workload: str, space: str) -> None:
    (tmp_path / "columns.py").write_text(
        "from searchlab.workload.products import Gemm\n"
        "class Own(Gemm):\n"
        "    pass\n"
        "def split(sch):\n"
        "    _, j, _ = sch.get_loops(sch.get_sblock('gemm'))\n"
        "    sch.split(j, sch.sample_perfect_tile(j, n=2))\n"
    )
    words = ["--space", space, "--policy", "random", "--trials", 2, "--log", "a.jsonl"]
    result = searchlab("tune", workload, *words, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "show the program: searchlab best a.jsonl --show tir --trust\n" in result.stdout
    assert searchlab("best", "a.jsonl", "--show", "tir", "--trust", cwd=tmp_path).returncode == 0
    assert searchlab("best", "a.jsonl", "--show", "tir", cwd=tmp_path).returncode == 2


def test_tune_resumes_extends_and_refuses_a_log(tmp_path: Path) -> None:
    log = tmp_path / "a[red].jsonl"
    words = ["tune", "gemm:16x16x16", "--space", "knob-template", "--log", log, "--batch", 4]
    assert searchlab(*words, "--policy", "random", "--trials", 4).returncode == 0
    first = log.read_bytes()
    result = searchlab(*words, "--policy", "random", "--trials", 6)
    assert result.returncode == 0 and "best of 6" in result.stdout
    assert f"show the program: searchlab best {log} --show tir\n" in result.stdout
    after = log.read_bytes()
    lines = [json.loads(line) for line in after.splitlines()]
    assert after.startswith(first) and [line["index"] for line in lines if "config" in line] == list(range(6))
    assert [line["trials"] for line in lines if line["kind"] == "finalists"] == [
        4,
        6,
    ]  # the fastest were measured again twice
    for change, message in (
        (["--policy", "grid"], "its policy is"),
        (["--policy", "random", "--seed", 1], "its seed is 0, not 1"),
        (["--policy", "random", "--target", "haswell"], "its "),
    ):
        refused = searchlab(*words, *change)
        assert refused.returncode == 2 and message in refused.stderr
        assert log.read_bytes() == after

    best = json.loads(searchlab("best", log, "--json").stdout)
    assert set(best) >= {"config", "seconds", "gflops", "tied", "drift"} and best["seconds"] > 0 < best["noise"]
    output = searchlab("best", log).stdout
    assert "tile_i" in output and "measured again" in output and "the repeats of a trial spread by" in output
    assert "sch.split" in searchlab("best", log, "--show", "trace").stdout
    assert "@T.prim_func" in searchlab("best", log, "--show", "tir").stdout
    assert "define" in searchlab("best", log, "--show", "source").stdout
    highlighted = searchlab_process("best", log, "--show", "trace", FORCE_COLOR="1", TERM="xterm").stdout
    plain = re.sub(r"\x1b\[[\d;]*m", "", highlighted)
    trace = searchlab("best", log, "--show", "trace").stdout.rstrip()
    assert plain != highlighted and plain.rstrip() == trace
    page = searchlab("best", log, "--show", "trace", "--html").stdout
    assert page.startswith("<!DOCTYPE html>") and "{color: #" in page
    assert trace in html.unescape(re.sub(r"<[^>]*>", "", page))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tune", "gemm:8x8x8", "--space", "knob-template", "--policy", "xbg", "--log", "a"], "did you mean 'xgb'"),
        (["best", "a", "--html"], "--html is only for code; pass --show"),
        (["tune", "gemm:8x8x8", "--space", "no", "--policy", "xgb", "--log", "a"], "unknown space 'no'"),
        (
            ["tune", "gemm:8x8x8", "--space", "guided-gemm,block=knobs", "--policy", "grid", "--log", "a"],
            "did you mean 'blocks'",
        ),
        (["tune", "gemm:8x8x8", "--space", "knob-template", "--policy", "xgb,epsilon=2", "--log", "a"], "epsilon"),
        (["tune", "gem:8x8x8", "--space", "knob-template", "--policy", "xgb", "--log", "a"], "did you mean 'gemm'"),
        (["tune", "gemm:8x8x8", "--space", "knob-template", "--policy", "grid", "--log", "."], "cannot write the log"),
        (
            ["tune", "gemm:8x8x8", "--space", "knob-template", "--policy", "grid", "--target", "vulkan", "--log", "a"],
            "cannot build for target 'vulkan'",
        ),
        (
            ["tune", "gemm:8x8x8", "--space", "knob-template", "--policy", "grid", "--target", "cuda", "--log", "a"],
            "no CUDA device was found",
        ),
        (
            [
                "tune",
                "gemm:8x8x8",
                "--space",
                "trace",
                "--policy",
                "grid",
                "--log",
                "a",
                "--target",
                '{"kind": "cuda", "arch": "sm_90"}',
            ],
            "no CUDA device was found",
        ),
        (
            ["tune", "gemm:8x8x8", "--space", "knob-template", "--policy", "xgb", "--features", "knobs", "--log", "a"],
            "did you mean 'knob'",
        ),
        (
            ["tune", "gemm:8x8x8", "--space", "knob-template", "--policy", "grid", "--trials", "0", "--log", "a"],
            "trials",
        ),
        (["tune", "gemm:8x8x8"], "(see searchlab tune --help)"),
        (["run", "absent.toml"], "cannot read the study"),
        (["run", "bad.toml"], "unknown key 'workload'"),
        (["report", "."], "no log"),
        (["report", "nowhere"], "cannot report on nowhere: there is no such directory or log"),
        (["report", "bad.toml"], "unknown key 'workload'"),
        (["report"], "missing argument"),
        (["best", "bad.toml"], "is not a searchlab log"),
        (["best", "absent"], "cannot read the log"),
        (["table", "build", "gemm:64x64x64", "--space", "sketch"], "configs to count for gemm:64x64x64; set --limit"),
        (["table", "build", "gemm:8x8x8", "--space", "sketch", "--option", "levels"], "the form name=value"),
        (["table", "build", "gemm:8x8x8", "--space", "sketch", "--measure", "local"], "is not valid JSON"),
        (["table", "build", "gemm:8x8x8", "--space", "sketch", "--measure", '{"kind": "tabel"}'], "'tabel'"),
        (["table", "info", "absent.jsonl.gz"], "cannot read the log"),
        (["table", "info", "."], "no log"),
        (["space", "gemm:8x8x8", "--space", "guided-gem"], "did you mean 'guided-gemm'"),
        (["list", "polcies"], "polcies"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bad.toml").write_text("workload = 'gemm:8x8x8'\n")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    result = searchlab(*words, cwd=tmp_path)
    assert result.returncode == 2
    assert message in result.stderr.replace("\n", " ")
    assert "Traceback" not in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.toml"]
    assert not result.stdout.strip(), "no bar of a run that never began"


def test_a_table_is_built_described_and_searched(tmp_path: Path) -> None:
    quick = '{"kind": "local", "repeat": 2, "min_repeat_ms": 0}'
    words = ["table", "build", "gemm:16x16x16", "--space", "guided-gemm", "--limit", 6, "--measure", quick]
    words += ["--passes", 0]  # timing in passes fails on a busy machine
    built = searchlab(*words, cwd=tmp_path)
    table = "results/tables/gemm_16x16x16/guided-gemm.jsonl"
    assert built.returncode == 0 and f"table info {table}" in built.stdout, built.stderr
    (info,) = json.loads(searchlab("table", "info", table, "--json", cwd=tmp_path).stdout)
    assert info["configs"] == 6 and info["space_size"] > 6 and not info["exhaustive"]
    output = searchlab("table", "info", "results/tables", cwd=tmp_path).stdout
    assert "gemm:16x16x16" in output and f"6 of {info['space_size']}" in output and "GFLOPS" in output
    drifted = searchlab("table", "info", OLD_TABLE, cwd=tmp_path)
    assert drifted.returncode == 1 and "depend on the order of measurement" in " ".join(drifted.stdout.split())
    nearest = json.dumps({"kind": "table", "path": table, "missing": "nearest"})
    words = ["tune", "gemm:16x16x16", "--space", "guided-gemm", "--policy", "random", "--log", "b.jsonl"]
    result = searchlab(*words, "--measure", nearest, cwd=tmp_path)
    assert result.returncode == 0 and result.stderr.count("warning:") == 1 and "UserWarning" not in result.stderr


def test_list_space_and_schema_describe_what_is_installed() -> None:
    listed = json.loads(searchlab("list", "--json").stdout)
    assert set(listed["policies"]) >= {"random", "grid", "evolutionary", "xgb", "tpe"}
    assert listed["workloads"]["resnet50/conv3.2b"] == "conv2d:1x28x28x128x128x3x3:p1"
    assert json.loads(searchlab("list", "spaces", "--json").stdout).keys() == {"spaces"}
    assert "\nkc " in searchlab("space", "gemm:64x64x64", "--space", "guided-gemm", "--option", "blocks=knobs").stdout
    output = searchlab("space", "gemm:64x64x64", "--space", "knob-template").stdout
    assert "9,800 configs" in output and "tile_i" in output
    schema = json.loads(searchlab("schema").stdout)
    properties = schema["$defs"]["StudySpec"]["properties"]
    assert set(properties) == {
        "workloads",
        "spaces",
        "policies",
        "cost_models",
        "seeds",
        "trials",
        "batch",
        "target",
        "measure",
        "warm_start",
        "suite",
        "contrasts",
        "starts",
        "seconds",
        "stop_after",
        "executor",
        "claims",
    }


ACME = '''
from typing import Annotated
from searchlab import NeverTwice
from searchlab.options import Between
from searchlab.policy import Origin, OwnModel

class Copy(NeverTwice):
    """Walks about. And far."""

    def __init__(self, space, *, seed, legs: Annotated[int, Between(1, 8)] = 2):
        super().__init__(space, seed=seed)
        self.legs = legs

    origin = Origin("Walker [x]", "2.1", "walk.py", "reproduction", ("no walls", "one leg"))

    def propose(self, n, rng):
        return []

class Other(Copy, own_model=OwnModel("ridge")):
    """See :func:`~acme.walk.far`, :class:`.Copy` and :meth:`the walk <Copy.propose>`, as ``x``::

        walk()
    """

'''


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--version"], f"searchlab {version('searchlab')}"),
        (["show", "space", "guided-gemm"], "one of 'model', 'knobs'"),
        (["show", "costmodel", "lightgbm"], "a whole number from 2 to 1024"),
        (["show", "workload", "resnet50/conv3.2b"], "conv2d:1x28x28x128x128x3x3:p1"),
        (["list", "policies"], "(original: MetaSchedule's EvolutionarySearch"),
        (["space", "gemm:64x64x64", "--space", "guided-gemm,blocks=knobs", "--target", "haswell"], "256 configs"),
    ],
)
def test_show_list_and_space_describe_plug_ins(words: list[str], message: str) -> None:
    result = searchlab(*words)
    assert result.returncode == 0 and message in " ".join(result.stdout.split()), result.stdout + result.stderr


def test_options_have_one_syntax_wherever_a_plug_in_is_named() -> None:
    arms = [{"name": "xgb", "options": {"epsilon": 0.2}}, "tpe"]
    expected = Plugin("bandit", {"arms": arms, "window": 5})
    assert parse_plugin(f"bandit,arms={json.dumps(arms)},window=5") == expected
    assert parse_plugin("bandit", [f"arms={json.dumps(arms)}", "window=5"]) == expected
    assert parse_plugin("xgb,note=a b") == Plugin("xgb", {"note": "a b"})


def test_what_tune_finds_is_printed_as_json(tmp_path: Path) -> None:
    write_table(tmp_path / "table.jsonl", toys.SingleChoice(), toys.simulate_smooth)
    words = [
        "--space",
        "searchlab.conformance.toys:SingleChoice",
        "--policy",
        "grid",
        "--measure",
        TABLE,
        "--log",
        "a.jsonl",
        "--json",
    ]
    result = searchlab("tune", "gemm:64x64x64", *words, "--trials", 1, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["trial"] == 0
    refused = searchlab("tune", "gemm:64x64x64", *words, "--trials", "many", cwd=tmp_path)
    assert (
        refused.stderr
        == "error: invalid value for '--trials': it must be a valid integer (see searchlab tune --help)\n"
    )


def test_a_dry_run_says_what_would_be_run(study: Path, tmp_path: Path) -> None:
    first = searchlab("run", study, "--dry-run", cwd=tmp_path)
    assert "4 runs, 0 of them complete in results/study; 80 trials are left: seconds" in first.stdout, first.stderr
    assert not (tmp_path / "results").exists()
    assert searchlab("run", study, cwd=tmp_path).returncode == 0
    study.write_text(STUDY.replace("trials = 20", "trials = 30"))
    resumed_plan = " ".join(searchlab("run", study, "--dry-run", cwd=tmp_path).stdout.split())
    assert "4 runs, 0 of them complete in results/study; 40 trials are left: 0 s" in resumed_plan
    study.write_text('contrasts = [["evolutionary", "random"]]' + STUDY)
    last = searchlab("run", study, "--dry-run", cwd=tmp_path).stdout
    assert "4 runs, 4 of them complete" in last and "to be tested: evolutionary against random. A signif" in last
    assert "needs at least 4 seeds; the study has 2" in last


@pytest.mark.parametrize("executor", ["nowhere", "local", "dask://"])
def test_a_dry_run_refuses_what_a_run_refuses(executor: str, study: Path, tmp_path: Path) -> None:
    study.write_text('executor = { name = "local", options = { job = 2 } }' + STUDY)
    words = ["run", study, "--executor", executor]
    dry, real = (searchlab(*words, *more, cwd=tmp_path) for more in (["--dry-run"], []))
    assert dry.returncode == real.returncode == 2 and dry.stderr.splitlines()[-1] == real.stderr.splitlines()[-1]


def test_results_beside_the_study_file_are_pointed_out(study: Path, tmp_path: Path) -> None:
    (elsewhere := tmp_path / "elsewhere").mkdir()
    (tmp_path / "results" / "study").mkdir(parents=True)
    hint = "results/study does not exist here, but ../results/study does"
    for command in (["run", "--dry-run"], ["report"], ["power"], ["watch"]):
        result = searchlab(*command, f"../{study.name}", cwd=elsewhere)
        assert hint in " ".join(result.stderr.split()), command
        assert "results/study" in result.stdout if command[0] == "run" else result.returncode == 2


@pytest.mark.parametrize("edited", ["objective", "proposer"])
def test_a_study_whose_code_has_changed_is_refused_in_a_sentence(edited: str, tmp_path: Path) -> None:
    (tmp_path / "objective.py").write_text("def f(config):\n    return config['x']\n")
    (tmp_path / "proposer.py").write_text(
        "import searchlab\n\n\nclass Fixed(searchlab.Policy):\n    def ask(self, n):\n"
        "        return [self.space.config_at(1)]\n\n    def tell(self, trials):\n        pass\n"
    )
    study = tmp_path / "study.toml"
    study.write_text(
        'workloads = ["python:objective:f"]\npolicies = ["proposer:Fixed"]\ntrials = 1\nseeds = 3\n'
        '[[spaces]]\nname = "parameters"\noptions.parameters = { x = [1, 2, 3] }\n'
    )
    assert searchlab("run", study, cwd=tmp_path).returncode == 0
    file = tmp_path / f"{edited}.py"
    file.write_text(file.read_text().replace("config['x']", "1").replace("config_at(1)", "config_at(0)"))
    os.utime(file, (time.time() + 2,) * 2)  # Python compiles a file again if its time, in seconds, or its size differs
    dry = searchlab("run", study, "--dry-run", cwd=tmp_path).stdout
    result = searchlab("run", study, cwd=tmp_path)
    assert result.returncode != 0 and result.stderr.count("cannot be continued") == 1
    if edited == "objective":
        assert "3 runs, 0 of them complete" in dry and "2 other logs cannot be continued either" in dry
    else:
        assert "3 logs will first be compared" in dry and "the code of the policy" in dry
        assert "seed0.jsonl and 2 more cannot be continued" in result.stderr


def test_a_run_prints_the_requested_details(study: Path, tmp_path: Path) -> None:
    short = searchlab("run", study, cwd=tmp_path).stdout
    full = searchlab("run", study, "--full", cwd=tmp_path).stdout
    assert "best known" in short and "failed" not in short and "failed" in full
    summary = json.loads(searchlab("run", study, "--json", cwd=tmp_path).stdout)
    assert len(summary["workloads"][0]["strategies"]) == 2
    (tmp_path / "results").rename(tmp_path / "earlier")
    lines = searchlab("run", study, "--verbose", cwd=tmp_path).stdout.splitlines()
    trials = [line for line in lines if ", trial 19: " in line]
    assert len(trials) == 4 and all(" GFLOPS (best " in line and ') with {"' in line for line in trials)


def test_a_failed_trial_is_printed_with_its_reason(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    caplog.set_level("INFO", logger="searchlab")
    tune("gemm:8x8x8", space=Faulty, policy="grid", log=tmp_path / "a.jsonl", trials=4, progress=False)
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 5 and any("trial 3: build_error: " in message for message in messages), messages
    assert messages[4] == f"measuring the fastest programs in {tmp_path / 'a.jsonl'} again"


def test_progress_is_printed_in_lines_where_bars_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LINE_INTERVAL_SECONDS", 0.0)
    printed = io.StringIO()
    with progress.RunProgress(Console(file=printed, width=40)) as bars:
        for count in (1, 2):
            bars.show("block of times", count, 4)
    lines = printed.getvalue().splitlines()
    assert [line.split(",")[0] for line in lines] == ["block of times: 1 of 4 done", "block of times: 2 of 4 done"]


def test_the_last_line_of_progress_shows_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, the last line was that of a run that was still in progress."""
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", 0.0)
    printed = io.StringIO()
    tune(lambda x: x, {"x": [2, 1, 3, 4]}, policy="grid", trials=4, batch=1, progress=Console(file=printed, width=40))
    first, *_, last = printed.getvalue().splitlines()
    assert " of 4 done" in first and last.endswith("seed 0: 4 of 4 done, 1.000 s")
    assert printed.getvalue().count("4 of 4") == 1


def test_best_accepts_a_directory(study: Path, tmp_path: Path) -> None:
    table = json.loads(searchlab("best", tmp_path / "table.jsonl", "--json").stdout)
    (best,) = json.loads(searchlab("best", tmp_path, "--json").stdout)
    assert best == table and best["file"] == str(tmp_path / "table.jsonl")
    assert f"of {tmp_path / 'table.jsonl'}" in searchlab("best", tmp_path).stdout
    (tmp_path / "empty").mkdir()
    refused = searchlab("best", tmp_path / "empty")
    assert refused.returncode == 2 and "no logs" in refused.stderr


def test_policies_are_listed_with_their_origins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "acme-1.dist-info").mkdir()
    (tmp_path / "acme-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1\n")
    entries = ("walk = acme:Copy", "other = acme:Other", "raises = raising:Policy", "gone = nowhere:Policy")
    (tmp_path / "acme-1.dist-info" / "entry_points.txt").write_text("\n".join(["[searchlab.policies]", *entries]))
    (tmp_path / "acme.py").write_text(ACME)
    (tmp_path / "raising.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    table = searchlab("list", "policies", cwd=tmp_path)
    assert table.returncode == 0 and not table.stderr
    lines = [line.split() for line in table.stdout.splitlines()]
    assert ["walk", "Walks", "about", "(reproduction:", "Walker", "[x],", "2.1)"] in lines
    assert ["other", "See", "`far`,", "`Copy`", "and", "`the", "walk`,", "as", "`x`:"] in lines
    assert ["raises", "raising:Policy"] in lines
    other_policy = searchlab("show", "policy", "other", cwd=tmp_path)
    assert "See `far`, `Copy` and `the walk`, as `x`:" in other_policy.stdout and ":func:" not in other_policy.stdout
    assert "its cost model: ridge, with the features knob" in other_policy.stdout
    description = searchlab("show", "policy", "walk", cwd=tmp_path)
    assert description.returncode == 0, description.stderr
    for text in ("Walks about. And far.", "reproduction: Walker [x], 2.1 (walk.py)", "- no walls", "- one leg"):
        assert text in description.stdout
    option = next(line.split() for line in description.stdout.splitlines() if line.split()[:1] == ["legs"])
    assert " ".join(option) == "legs 2 a whole number from 1 to 8"
    data = json.loads(searchlab("list", "policies", "--json", cwd=tmp_path).stdout)
    assert data["policies"]["walk"] == "acme:Copy"
    assert data["origins"]["walk"] == {
        "name": "Walker [x]",
        "version": "2.1",
        "source": "walk.py",
        "kind": "reproduction",
        "deviations": ["no walls", "one leg"],
    }
    assert not data["origins"].keys() & {"other", "raises", "gone"}


def test_the_shipped_studies_are_valid() -> None:
    for path in Path("studies").glob("*.toml"):
        assert Study.load(path).spec.trials >= 1, path


def test_a_table_in_a_pipe_breaks_no_names(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["a" * 70, "b" * 70]
    say_table(("first", "second", "text"), [(*names, "some words " * 20)])
    printed = capsys.readouterr().out
    assert all(name in printed for name in names)


def test_progress_goes_to_the_standard_error() -> None:
    console = progress_console(quiet=False, verbose=False)
    assert console and console.stderr
