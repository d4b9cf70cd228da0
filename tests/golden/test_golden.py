"""Logs of formats 1.0 and 1.2 and the older tables of suite v1 stay readable; docs/design/log-format.md is true."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import searchlab
from searchlab.log.format import CodeChange, FinalistTimes, Header, Record, RunEnd
from searchlab.log.read import read_log
from searchlab.log.result import load_log
from searchlab.measure.suite import find_suite
from tests.golden.make_golden import DATA, GUIDED, TARGET
from tests.golden.seen import read, seen

ROOT = Path(__file__).parents[2]
LOGS = sorted(DATA.glob("*.jsonl*"))
OLDER = [table.path for table in find_suite("v1").tables[::9]]


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.name)
def test_a_log_is_read_as_it_was(path: Path) -> None:
    expected = json.loads((DATA / "seen.json").read_text())[path.name]
    content = seen(read_log(path))
    assert content.pop("charged") == pytest.approx(expected.pop("charged")) and content == expected
    assert load_log(path).to_frame().shape[0] == len(content["costs"])


@pytest.mark.parametrize("path", [*LOGS, *OLDER], ids=lambda path: path.name)
def test_the_specification_is_enough_to_read_it(path: Path) -> None:
    independent, own_reading = read(path), seen(read_log(path))
    assert independent.pop("charged") == pytest.approx(own_reading.pop("charged"))
    assert independent.pop("costs") == pytest.approx(own_reading.pop("costs")) and independent == own_reading


@pytest.mark.parametrize(("name", "cut"), [("model", 21), ("warm", 9), ("all", 110)])
def test_a_run_goes_on_from_its_log(name: str, cut: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the middle of a batch, and to the same end: batches, configs and costs."""
    original = read_log(DATA / f"{name}.jsonl")
    for file in LOGS:
        shutil.copy(file, tmp_path)
    header = original.header
    text = (tmp_path / f"{name}.jsonl").read_bytes().split(b"\n")
    monkeypatch.chdir(tmp_path)
    log = tmp_path / f"{name}.jsonl"
    log.write_bytes(b"\n".join(text[: cut + 1]) + b"\n")
    again = searchlab.tune(
        header.workload,
        space=GUIDED,
        policy={"name": header.policy.name, "options": header.policy.options},
        log=log,
        trials=len(original.records) + (1 if original.run_end else 0),
        batch=header.batch,
        seed=header.seed,
        target=TARGET,
        measure=header.measure,
        stop_after=original.run_end.stop_after if original.run_end else None,
        warm_start=[tmp_path / "model.jsonl"] if header.warm_start else [],
        progress=False,
    ).log
    assert [record.config for record in again.records] == [record.config for record in original.records]
    assert again.batch_starts == original.batch_starts and (again.run_end is None) == (original.run_end is None)


def test_every_field_and_every_kind_of_line_is_covered() -> None:
    text = (ROOT / "docs" / "design" / "log-format.md").read_text()
    fields = {
        name for kind in (Header, Record, FinalistTimes, RunEnd, CodeChange) for name in kind.__struct_encode_fields__
    }
    assert not [name for name in sorted(fields) if f"`{name}`" not in text]
    lines: list[dict[str, Any]] = [
        json.loads(line) for path in LOGS if path.suffix == ".jsonl" for line in path.read_text().splitlines()
    ]
    assert {line["kind"] for line in lines} == {"header", "trial", "finalists", "ended", "changed"}
    present = {name for line in lines for name in line}
    unused = {"at", "connect_seconds", "nearest", "statistic", "passes", "computation", "fill_in"}
    unused |= {"feature_seconds", "check_seconds"}
    assert fields - present <= unused, "only in tables, in fleets, with workloads of plug-ins and in newer logs"
