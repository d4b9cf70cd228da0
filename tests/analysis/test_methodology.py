"""Scores of runs over an imported table, against those of autotuning_methodology."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from searchlab.analysis.methodology import methodology_scores
from searchlab.errors import SearchlabError
from searchlab.exchange.imports import As, import_file
from searchlab.log.format import Log, read_log
from tests.support.analysis.methodology import CASES, RECORDED, content, draws


def table_of(directory: Path, every: int) -> Log:
    file, out = directory / "t4.json", directory / "table.jsonl.gz"
    file.write_text(json.dumps(content(every)))
    import_file(file, out, As())
    return read_log(out)


def run_over(table: Log, places: Any, path: str = "run.jsonl") -> Log:
    """A run that tried the configs at these places of the table."""
    records = [msgspec.structs.replace(table.records[place], index=i) for i, place in enumerate(places.tolist())]
    return Log(Path(path), table.header, tuple(records))


@pytest.fixture(scope="module", params=list(CASES))
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Log]:
    return request.param, table_of(tmp_path_factory.mktemp("methodology"), CASES[request.param])


def test_the_scores_are_those_of_the_package(case: tuple[str, Log]) -> None:
    """As recorded from the package's own reading of Kernel Tuner's file (``tests.support.analysis.methodology``)."""
    name, table = case
    expected = json.loads(RECORDED.read_text())[name]
    over_trials, over_seconds = methodology_scores(table, [run_over(table, draw) for draw in draws(len(table.records))])
    assert over_trials == pytest.approx(expected["score over trials"], abs=1e-6)
    assert over_seconds == pytest.approx(expected["score over seconds"], abs=1e-6)


def test_what_cannot_be_scored_is_one_sentence(case: tuple[str, Log]) -> None:
    _, table = case
    log = run_over(table, draws(len(table.records))[0])
    short = msgspec.structs.replace(table.records[0], config={"MB": 1})
    for runs, why in (
        ([], "no run"),
        ([run_over(table, np.array([1, 2, 3]))], "3 trials"),
        ([log, Log(Path("other.jsonl"), table.header, (short,))], "trial 0 of other.jsonl has a config"),
    ):
        with pytest.raises(SearchlabError, match=why):
            methodology_scores(table, runs)
    with pytest.raises(SearchlabError, match="fewer than two different costs"):
        methodology_scores(Log(table.path, table.header, table.records[:1]), [log])
