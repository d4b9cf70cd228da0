"""Files that are truncated, foreign or hostile: an error that names the line, and nothing is executed or written."""

from __future__ import annotations

import base64
import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchlab.errors import SearchlabError
from searchlab.exchange.imports import ImportOptions, import_file
from searchlab.plugins import Plugin
from tests.support.exchange import DATA

AUTOTVM, ANSOR, DATABASE = DATA / "autotvm_matmul512.log", DATA / "ansor_gemm512.json", DATA / "metaschedule_gemm512"
RECORDS, WORKLOADS = "database_tuning_record.json", "database_workload.json"
DEEP = "[" * 100_000


class Bomb:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def assert_refused(path: Path, why: str, **options: Any) -> None:
    out = path.parent / "never.jsonl"
    with pytest.raises(SearchlabError, match=why):
        import_file(path, out, ImportOptions(**options))
    assert not out.exists()


def rewrite_second_line(source: Path, path: Path, change: Callable[[Any], Any]) -> Path:
    """Write ``source`` with its second line changed."""
    lines = source.read_text().splitlines()
    changed = change(json.loads(lines[1]))
    lines[1] = changed if isinstance(changed, str) else json.dumps(changed)
    path.write_text("\n".join(lines) + "\n")
    return path


def set_item(*where: Any) -> Callable[[Any], Any]:
    """Return a function that sets the item at a path to the last argument."""

    def change(record: Any) -> Any:
        inner = record
        for step in where[:-2]:
            inner = inner[step]
        inner[where[-2]] = where[-1]
        return record

    return change


AUTOTVM_CHANGES = [
    (lambda r: json.dumps(r)[:120], "line 2 is damaged"),
    (lambda r: DEEP, "line 2 is damaged"),
    (set_item("result", 2, -1), "line 2 is damaged"),
    (lambda r: json.dumps(set_item("result", 3, "@")(r)).replace('"@"', "1e999"), "line 2 is damaged"),
    (set_item("result", 0, []), "line 2 is damaged: it succeeded but contains no time"),
    (set_item("result", 0, 0, -1.0), "line 2 is damaged: -1.0 is not a time"),
    (set_item("result", 0, 0, "__import__('os').getpid()"), "line 2 is damaged.*not a time"),
    (
        lambda r: json.dumps(set_item("result", 0, 0, "@")(r)).replace('"@"', "9" * 400),
        "line 2 is damaged: 9+ is not a time",
    ),
    (set_item("result", 1, 99), "99 is not a known MeasureErrorNo"),
    (set_item("result", [1]), "line 2 is damaged"),
    (set_item("input", 0, "-keys=cpu"), "line 2 is damaged.*does not start with its kind"),
    (set_item("input", 0, "llvm os.system('true')"), "line 2 is damaged.*is not an option"),
    (set_item("input", 0, 7), "its target must be .* not 7"),
    (set_item("input", []), "its task is not"),
    (set_item("config", {}), "line 2 is damaged.*entity"),
    (set_item("config", "entity", [["tile_y"]]), "line 2 is damaged"),
    (lambda r: "{}", "not an AutoTVM record"),
    (lambda r: "[]", "line 2 is damaged"),
]


@pytest.mark.parametrize(("change", "why"), AUTOTVM_CHANGES)
def test_a_hostile_log_of_autotvm_is_refused(change: Callable[[Any], Any], why: str, tmp_path: Path) -> None:
    assert_refused(rewrite_second_line(AUTOTVM, tmp_path / "a.log", change), why)


def test_a_log_that_could_not_be_read_again_is_not_written(tmp_path: Path) -> None:
    path = rewrite_second_line(AUTOTVM, tmp_path / "records.log", set_item("config", "entity", 0, 0, "x" * 10_000))
    assert_refused(path, "records.log cannot be imported: its log could not be read again: .* length <= 4000")


def test_pickled_logs_of_autotvm_are_not_read(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    bomb = base64.b64encode(pickle.dumps(Bomb(ran))).decode()
    assert_refused(
        rewrite_second_line(AUTOTVM, tmp_path / "a.log", lambda r: "\t".join([bomb] * 4)), "line 2 is damaged.*pickled"
    )
    assert not ran.exists()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda r: json.dumps(r)[:-9], "line 2 is damaged"),
        (set_item("i", 0, 0, "not JSON"), "workload key 'not JSON' is not a JSON list"),
        (set_item("i", 0, 0, DEEP), "is not a JSON list"),
        (set_item("i", 0, 0, "[]"), "workload key '\\[\\]'"),
        (set_item("i", 0, 0, "[7]"), "does not start with a name"),
        (set_item("i", 0, []), "its task is not"),
        (set_item("i", 1, 1, [[]]), "transform step 0 has no kind"),
        (set_item("r", 0, [0.0]), "0.0 is not a time"),
        (set_item("v", 6), "line 2 is damaged"),
    ],
)
def test_a_hostile_log_of_ansor_is_refused(change: Callable[[Any], Any], why: str, tmp_path: Path) -> None:
    assert_refused(rewrite_second_line(ANSOR, tmp_path / "a.json", change), why)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda r: json.dumps(r)[:-99], "line 2 is damaged"),
        (set_item(0, 3), "refers to workload 3"),
        (set_item(0, -1), "refers to workload -1"),
        (set_item(1, 0, 1, 0, 0, 999), "a decision for instruction 999"),
        (set_item(1, 1, 0, "soon"), "not a time"),
        (set_item(1, 0, 0, 0, 3, 7), "line 2 is damaged"),
        (set_item(1, 0, 0, 2, ["Annotate", ["b0", '"{}"'], ["searchlab.trial"], []]), "annotation 'searchlab.trial'"),
        (set_item(1, 0, 0, 2, ["Annotate", ["b0", 7], ["searchlab.trial"], []]), "annotation 'searchlab.trial'"),
    ],
)
def test_a_hostile_database_of_metaschedule_is_refused(change: Callable[[Any], Any], why: str, tmp_path: Path) -> None:
    shutil.copy(DATABASE / WORKLOADS, tmp_path)
    rewrite_second_line(DATABASE / RECORDS, tmp_path / RECORDS, change)
    assert_refused(tmp_path, why)


@pytest.mark.parametrize(
    "instruction",
    [
        ["RunThis", [], [], []],
        ["Split", ["l2"], [], []],
        ["GetSBlock", [], ["nowhere", "main"], ["b9"]],
        ["SamplePerfectTile", ["l2"], ["four", {}], ["v5"]],
        ["Annotate", [None], [None], [None]],
    ],
)
def test_a_trace_that_tvm_refuses_is_left_out(instruction: list[Any], tmp_path: Path) -> None:
    shutil.copy(DATABASE / WORKLOADS, tmp_path)
    rewrite_second_line(DATABASE / RECORDS, tmp_path / RECORDS, set_item(1, 0, 0, 4, instruction))
    (imported,), _ = import_file(tmp_path, tmp_path / "a.jsonl", ImportOptions(space=Plugin("sketch")))
    assert imported.omitted_records[0][0] == 2 and "cannot be applied" in imported.omitted_records[0][1]


@pytest.mark.parametrize(
    "change",
    [
        set_item(1, 0, 1, 0, 1, [0, 0, 0, 0]),
        set_item(1, 0, 1, 0, 1, [None, 1, 1, 512]),
        lambda r: json.loads(json.dumps(r).replace("[0, 16, 64, 512]", "[0, 16, 64, null]")),
    ],
)
def test_a_trace_that_tvm_dies_of_is_left_out(change: Callable[[Any], Any], tmp_path: Path) -> None:
    shutil.copy(DATABASE / WORKLOADS, tmp_path)
    rewrite_second_line(DATABASE / RECORDS, tmp_path / RECORDS, change)
    (imported,), _ = import_file(tmp_path, tmp_path / "a.jsonl", ImportOptions(space=Plugin("sketch")))
    assert imported.omitted_records[0][0] == 2 and "it crashes (SIG" in imported.omitted_records[0][1]


@pytest.mark.parametrize("module", ["", "!", base64.b64encode(b"12345678" + DEEP.encode()).decode()])
def test_a_module_is_only_parsed(module: str, tmp_path: Path) -> None:
    shutil.copy(DATABASE / RECORDS, tmp_path)
    (tmp_path / WORKLOADS).write_text(json.dumps(["6784452950838281763", module]))
    import_file(tmp_path, tmp_path / "a.jsonl", ImportOptions())  # for analysis, its hash and shapes say enough
    assert_refused(tmp_path, "none of the 8 records", space=Plugin("sketch"))
    (tmp_path / WORKLOADS).write_text(json.dumps(["1", module]))
    assert_refused(tmp_path, "no GEMM or conv2d")


@pytest.mark.parametrize("size", [0, -1, 2**62, 10**30])
def test_impossible_sizes_are_refused(size: int, tmp_path: Path) -> None:
    shutil.copy(DATABASE / WORKLOADS, tmp_path)
    first, *rest = (DATABASE / RECORDS).read_text().splitlines()
    record = json.loads(first)
    record[1][3] = [[kind, dtype, [size] * len(shape)] for kind, dtype, shape in record[1][3]]
    (tmp_path / RECORDS).write_text("\n".join([json.dumps(record), *rest]))
    assert_refused(tmp_path, "no GEMM or conv2d")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is empty"),
        ("\n\n", "is empty"),
        ("hello\n", "line 1 is not JSON"),
        ("[1]", "line 1 does not look like"),
        ('{"searchlab_log": 1}', "line 1 does not look like"),
        (DEEP, "line 1 is not JSON"),
    ],
)
def test_files_of_other_formats_are_refused(text: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(text)
    assert_refused(tmp_path / "a.json", why)


def test_missing_files_are_refused(tmp_path: Path) -> None:
    assert_refused(tmp_path / "none.log", "cannot read")
    assert_refused(tmp_path, "cannot read.*database_workload.json")


@settings(max_examples=60)
@given(source=st.sampled_from([AUTOTVM, ANSOR]), data=st.data())
def test_a_byte_more_or_less_is_an_error_or_a_log(source: Path, data: st.DataObject, tmp_path_factory: Any) -> None:
    text = bytearray(source.read_bytes())
    position = data.draw(st.integers(0, len(text) - 1))
    text[position : position + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    folder = tmp_path_factory.mktemp("damaged")
    (folder / "a.log").write_bytes(text)
    try:
        logs, _ = import_file(folder / "a.log", folder / "out", ImportOptions())
    except SearchlabError:
        return
    assert logs and all(imported_log.records for imported_log in logs)
