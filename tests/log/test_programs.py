"""What a log's configs build now is what was measured, or it is refused."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import searchlab
from searchlab.apply import program_text
from searchlab.apply.best import export_library
from searchlab.errors import SearchlabError, SearchlabWarning
from searchlab.exchange.exports import export_logs
from searchlab.log.programs import ChangedProgram
from searchlab.log.read import read_log
from searchlab.tables.costmodels import evaluate
from searchlab.workload import program_hash
from searchlab_spaces.templates import KnobTemplate
from tests.support.apply.logs import invoke, write_log
from tests.support.spaces.programs import valid_configs

MEASURED = "0123456789abcdef"


@pytest.fixture(scope="module")
def verified(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log with the hashes of its programs."""
    space = KnobTemplate(searchlab.gemm(32, 32, 32), searchlab.resolve_target("native"))
    configs = valid_configs(space, np.random.default_rng(0), 10)
    path = write_log(tmp_path_factory.mktemp("log") / "a.jsonl", [c.to_json() for c in configs], "knob-template")
    hashes = {index: program_hash(space.schedule(config).mod) for index, config in enumerate(configs)}
    return write_edited(path, path, lambda line: line | {"program": hashes[line["index"]]})


def write_edited(log: Path, path: Path, edit: Callable[[dict[str, Any]], dict[str, Any]]) -> Path:
    header, *lines = log.read_text().splitlines()
    lines = [json.dumps(edit(json.loads(line))) for line in lines]
    path.write_text("\n".join([header, *lines, ""]))
    return path


@pytest.fixture
def changed(verified: Path, tmp_path: Path) -> Path:
    return write_edited(verified, tmp_path / "a.jsonl", lambda line: line | {"program": MEASURED})


USES: dict[str, Callable[[Path, Path], object]] = {
    "schedule": lambda log, out: searchlab.load_log(log).best.schedule(),
    "apply_best": lambda log, out: searchlab.apply_best(log),
    "build_best": lambda log, out: searchlab.build_best(searchlab.load_log(log).best),
    "tir": lambda log, out: program_text(searchlab.load_log(log).best, "tir"),
    "library": lambda log, out: export_library([log], out / "a.o"),
    "metaschedule": lambda log, out: export_logs([log], "metaschedule", out / "db"),
    "features": lambda log, out: evaluate([log], [searchlab.plugins.Plugin("random")], features="itervar"),
}


@pytest.mark.parametrize("use", USES)
def test_another_program_is_never_used(verified: Path, changed: Path, tmp_path: Path, use: str) -> None:
    with pytest.raises(ChangedProgram, match=f"trial .*{MEASURED} was measured") as refused:
        USES[use](changed, tmp_path / "changed")
    assert refused.value.measured_hash == MEASURED
    assert refused.value.built_hash == read_log(verified).records[refused.value.trial].program
    with warnings.catch_warnings():
        warnings.simplefilter("error", SearchlabWarning)
        warnings.filterwarnings("ignore", "the trials ran with")  # an earlier test may have started TVM's threads
        (tmp_path / "same").mkdir()
        USES[use](verified, tmp_path / "same")


def test_the_command_line_names_both_programs(changed: Path, tmp_path: Path) -> None:
    for words in (("best", changed, "--show", "tir"), ("export", changed, "--out", tmp_path / "a.o")):
        code, text = invoke(*words)
        assert code == 2 and MEASURED in text and "now builds" in text
    assert invoke("best", changed)[0] == 0


def test_versions_that_changed_are_named(changed: Path) -> None:
    first, rest = changed.read_text().split("\n", 1)
    changed.write_text(json.dumps(json.loads(first) | {"versions": {"apache-tvm": "0.19"}}) + "\n" + rest)
    with pytest.raises(SearchlabError, match=r"apache-tvm 0\.19 -> 0\.27"):
        searchlab.apply_best(changed)


@pytest.mark.parametrize("edit", [{"program": ""}, {"program": MEASURED, "nearest": True}])
def test_an_unknown_program_is_said_to_be_unverified(verified: Path, tmp_path: Path, edit: dict[str, Any]) -> None:
    log = write_edited(verified, tmp_path / "a.jsonl", lambda line: line | edit)
    with pytest.warns(SearchlabWarning, match="unverified"):
        searchlab.apply_best(log)
