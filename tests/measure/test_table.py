from __future__ import annotations

from pathlib import Path

import pytest

from searchlab.errors import SearchlabError
from searchlab.measure.table import TableMeasurer
from searchlab.target import Target
from tests import toys
from tests.conftest import write_table


def test_a_table_answers_what_was_recorded(tmp_path: Path) -> None:
    space = toys.Small()
    write_table(tmp_path / "logs" / "a.jsonl", space, toys.flaky)
    configs = list(space.enumerate())[::7]
    for given in (tmp_path / "logs", tmp_path / "logs" / "a.jsonl"):
        with TableMeasurer([given]) as measurer:
            assert list(measurer.measure(space, configs)) == [toys.flaky(config) for config in configs]


def test_several_tables_stand_side_by_side(tmp_path: Path) -> None:
    write_table(tmp_path / "a.jsonl", toys.Small(), toys.smooth)
    write_table(tmp_path / "b.jsonl", toys.Dependent(), toys.smooth)
    measurer = TableMeasurer([tmp_path])
    for kind in (toys.Small, toys.Dependent):
        space = kind()
        assert len(list(measurer.measure(space, list(space.enumerate())))) == space.size()


def test_another_space_another_target_and_an_unmeasured_config_are_refused(tmp_path: Path) -> None:
    path = write_table(tmp_path / "a.jsonl", toys.Small(), toys.smooth)
    other = toys.Small(toys.WORKLOAD, Target({"kind": "llvm", "mcpu": "haswell"}))
    for space in (toys.Dependent(), other):
        with pytest.raises(SearchlabError, match="no log in .* was made in this space"):
            list(TableMeasurer([path]).measure(space, []))
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:50]))
    space = toys.Small()
    with pytest.raises(SearchlabError, match="was never measured"):
        list(TableMeasurer([path]).measure(space, list(space.enumerate())))


def test_building_is_charged_on_the_workers_it_was_recorded_on(tmp_path: Path) -> None:
    first = write_table(tmp_path / "a.jsonl", toys.Small(), toys.smooth)
    first.write_text(first.read_text().replace('"workers":1', '"workers":3', 1))
    assert TableMeasurer([first]).workers == 3
    write_table(tmp_path / "b.jsonl", toys.Dependent(), toys.smooth)
    with pytest.raises(SearchlabError, match="built on 1 and 3 workers"):
        TableMeasurer([tmp_path])


def test_no_log_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(SearchlabError, match=r"no log \(\*.jsonl\)"):
        TableMeasurer([tmp_path])
    with pytest.raises(SearchlabError, match="cannot read the log"):
        TableMeasurer([tmp_path / "absent.jsonl"])
