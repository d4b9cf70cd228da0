"""A log from somebody else may name any code: none is imported unless the user trusts the log."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import searchlab
from searchlab.analysis import report
from searchlab.apply import apply_best
from searchlab.apply.best import export_library
from searchlab.apply.verify import verify_log
from searchlab.conformance import toys
from searchlab.errors import SearchlabError
from searchlab.exchange.exports import export_logs
from searchlab.log.read import read_log
from searchlab.log.writer import check_log
from searchlab.plugins import Plugin, import_attribute, names_from
from searchlab.tables.costmodels import evaluate
from searchlab.tables.info import TableInfo
from tests.support.cli import searchlab_process as command
from tests.support.logs import write_table

EVIL = Plugin("evil_of_a_stranger:Run")
IN_OPTIONS = Plugin("trace", {"function": "evil_of_a_stranger:run"})
DEEP = Plugin("knob-template", {"more": [{"x": ["evil_of_a_stranger:run"]}]})


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file that the foreign module creates when it is imported."""
    folder, mark = tmp_path / "code", tmp_path / "it ran"
    folder.mkdir()
    (folder / "evil_of_a_stranger.py").write_text(f"open({str(mark)!r}, 'w').close()\n")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=":")
    return mark


def log_of(path: Path, space: Plugin) -> Path:
    write_table(path, toys.Small(), toys.simulate_smooth, counted=True)
    first, rest = path.read_bytes().split(b"\n", 1)
    header = json.loads(first) | {"space": msgspec.to_builtins(space), "policy": {"name": "evil_of_a_stranger:Run"}}
    header["cost_model"] = {"name": "evil_of_a_stranger:Run"}
    path.write_bytes(json.dumps(header).encode().replace(b'": ', b'":', 1) + b"\n" + rest)
    return path


def warm_started(log: Path) -> None:
    searchlab.tune(
        "gemm:8x8x8",
        space="sketch",
        policy="xgb",
        features="program",
        log=log.parent / "new.jsonl",
        trials=1,
        warm_start=[log],
    )


READERS: dict[str, Callable[[Path], Any]] = {
    "the space": lambda log: searchlab.load_log(log).space,
    "best": lambda log: searchlab.load_log(log).best.schedule(),
    "apply": apply_best,
    "verify": verify_log,
    "warm start": warm_started,
    "library": lambda log: export_library([log], log.parent / "best.o"),
    "metaschedule": lambda log: export_logs([log], "metaschedule", log.parent / "database"),
    "cost models": lambda log: evaluate([log], [Plugin("ridge")]),
}


@pytest.mark.parametrize("space", [EVIL, IN_OPTIONS, DEEP], ids=["class", "option", "deep option"])
@pytest.mark.parametrize("reader", READERS)
def test_code_that_a_log_names_is_not_imported(tmp_path: Path, mark: Path, reader: str, space: Plugin) -> None:
    log = log_of(tmp_path / "a.jsonl", space)
    with pytest.raises(SearchlabError, match="refers to the space.*no installed package registers.*--trust") as caught:
        READERS[reader](log)
    assert str(log) in str(caught.value) and not mark.exists()


def test_reading_alone_needs_no_trust(tmp_path: Path, mark: Path) -> None:
    log = log_of(tmp_path / "a.jsonl", EVIL)
    assert read_log(log).trials and not check_log(log).problems and TableInfo(read_log(log)).is_exhaustive
    assert searchlab.load_log(log).best.config and len(searchlab.load_log(log).to_frame())
    report(log, out=tmp_path / "report")
    assert not mark.exists()


@pytest.mark.parametrize(
    "workload",
    [
        "evil_of_a_stranger:Run:8x8",
        "tir:{folder}/evil_of_a_stranger.py:Run",
        "searchlab.workload.tir:Tir:{folder}/evil_of_a_stranger.py:Run",
    ],
)
@pytest.mark.parametrize("computation", [None, {"flops": 8}])
def test_a_workload_that_a_log_names_is_not_imported(
    tmp_path: Path, mark: Path, workload: str, computation: dict[str, int] | None
) -> None:
    log = log_of(tmp_path / "a.jsonl", Plugin("sketch"))
    first, rest = log.read_bytes().split(b"\n", 1)
    workload = workload.format(folder=tmp_path / "code")
    header = json.loads(first) | {"workload": workload, "computation": computation}
    log.write_bytes(json.dumps(header).encode().replace(b'": ', b'":', 1) + b"\n" + rest)
    for reader in READERS.values():
        with pytest.raises(SearchlabError):
            reader(log)
    check_log(log)
    if computation:
        assert searchlab.load_log(log).best.gflops > 0
        report(log, out=tmp_path / "report")
    else:
        with pytest.raises(SearchlabError, match="registers|damaged"):
            _ = searchlab.load_log(log).best
    assert not mark.exists()


def test_a_trusted_workload_is_imported(tmp_path: Path, mark: Path) -> None:
    log = log_of(tmp_path / "a.jsonl", EVIL)
    with searchlab.trust_plugins(), pytest.raises(SearchlabError, match="'evil_of_a_stranger:Run' cannot be loaded"):
        searchlab.load_log(log).space  # noqa: B018 - it is made when it is asked for
    assert mark.exists()


def test_the_command_line_explains_how_to_trust_a_log(tmp_path: Path, mark: Path) -> None:
    log = log_of(tmp_path / "a.jsonl", IN_OPTIONS)
    result = command("best", log, "--show", "tir")
    assert result.returncode == 2 and "add --trust" in result.stderr and not mark.exists()
    result = command("best", log, "--show", "tir", "--trust")
    assert result.returncode == 2 and "add --trust" not in result.stderr and mark.exists()


def test_a_space_that_the_user_names_is_trusted(tmp_path: Path) -> None:
    """The log of an earlier run in the same space may train the model, since the user has named that space."""
    table = write_table(tmp_path / "table.jsonl", toys.Small(), toys.simulate_smooth)
    space, measure = "searchlab.conformance.toys:Small", {"kind": "table", "path": str(table)}
    searchlab.tune(
        "gemm:64x64x64",
        space=space,
        policy="random",
        log=tmp_path / "a.jsonl",
        trials=8,
        measure=measure,
    )
    run = searchlab.tune(
        "gemm:64x64x64",
        space=space,
        policy={"name": "xgb", "options": {"n_startup": 2}},
        log=tmp_path / "b.jsonl",
        trials=8,
        batch=4,
        measure=measure,
        warm_start=[tmp_path / "a.jsonl"],
    )
    assert len(run.trials) == 8 and run.space
    with pytest.raises(SearchlabError, match="--trust"):
        searchlab.load_log(tmp_path / "a.jsonl").space  # noqa: B018


@pytest.mark.parametrize(
    ("reference", "allowed"),
    [
        ("searchlab_spaces.sketch.space:Sketch", True),
        ("searchlab_spaces.trace.cpu:stochastic_schedule_gemm", True),
        ("searchlab_spaces.trace.space:Space", False),
        ("searchlab_spaces.trace.space:load_attribute", False),
        ("searchlab_spaces.trace.space:np", False),
        ("searchlab.plugins:execute_file", False),
        ("searchlab.workload.products:Gemm", True),
        ("os:system", False),
        ("another_package:Sketch", False),
    ],
)
def test_a_file_names_only_code_that_plugin_packages_define(reference: str, allowed: bool) -> None:
    with names_from("a.jsonl"):
        if allowed:
            assert import_attribute(reference, "object")
        else:
            with pytest.raises(SearchlabError, match="no installed package registers"):
                import_attribute(reference, "object")
