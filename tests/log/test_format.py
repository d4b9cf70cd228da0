from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchlab.errors import SearchlabError
from searchlab.log.format import Record
from searchlab.log.read import read_log
from searchlab.log.writer import LogWriter
from searchlab.plugins import Plugin
from searchlab.records import FAILURES, Measurement, Trial
from searchlab.space import Config
from tests.support.logs import HEADER, make_record, write_trials


def test_a_log_that_is_not_durable_is_the_same_once_closed(tmp_path: Path) -> None:
    durable = write_trials(tmp_path / "durable.jsonl", 5)
    path = tmp_path / "other.jsonl"
    for first in (0, 3):  # it is resumed as any
        writer = LogWriter(path, HEADER, durable=False)
        assert len(writer.log.records) == first
        for index in range(first, 5 if first else 3):
            writer.append(make_record(index))
        if first:
            writer.sync()
            assert len(read_log(path).records) == 5
        writer.close()
    times = re.compile(rb',"time":[^}]+')
    assert times.sub(b"", path.read_bytes()) == times.sub(b"", durable)


values = st.one_of(st.booleans(), st.integers(-99, 99), st.text(max_size=5), st.lists(st.integers(1, 9), max_size=4))
measurements = st.one_of(
    st.builds(
        Measurement,
        seconds=st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=5).map(tuple),
        build_seconds=st.floats(0, 10),
        run_seconds=st.floats(0, 10),
        connect_seconds=st.floats(0, 10),
        program=st.text("0123456789abcdef"),
        reused=st.booleans(),
    ),
    st.builds(Measurement, failure=st.sampled_from(FAILURES), message=st.text()),
)


@settings(max_examples=50)
@given(st.dictionaries(st.text(max_size=5), values, max_size=4), measurements)
def test_a_log_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, config: dict[str, Any], measured: Measurement
) -> None:
    path = tmp_path_factory.mktemp("log") / "a.jsonl"
    writer = LogWriter(path, HEADER)
    writer.append(Record.from_trial(Trial(0, Config(config), measured), propose_seconds=0.5, train_seconds=0.25))
    writer.close()
    log = read_log(path)
    assert log.header == HEADER
    assert log.trials == [Trial(0, Config(config), measured)]


@pytest.mark.parametrize("lost", [1, 2, 30, 150])
def test_a_torn_last_line_is_cut_off_before_the_next_append(tmp_path: Path, lost: int) -> None:
    path = tmp_path / "a.jsonl"
    content = write_trials(path, 3)
    assert lost < len(content.splitlines()[-1])
    path.write_bytes(content[:-lost])
    assert len(read_log(path).records) == 2
    writer = LogWriter(path, HEADER)
    assert len(writer.log.records) == 2
    writer.append(make_record(2))
    writer.close()
    assert [record.index for record in read_log(path).records] == [0, 1, 2]


def test_a_torn_header_is_rewritten_but_no_foreign_file(tmp_path: Path) -> None:
    header = write_trials(tmp_path / "a.jsonl", 0)
    for keep in (0, 1, 10, len(header) - 1):
        path = tmp_path / f"torn{keep}.jsonl"
        path.write_bytes(header[:keep])
        LogWriter(path, HEADER).close()
        assert read_log(path).header == HEADER
    for number, foreign in enumerate([b"dear diary", b"{}\n", b'{"input": []}\n', b"\x7fELF\x00\xff", b"[1, 2]"]):
        path = tmp_path / f"foreign{number}.jsonl"
        path.write_bytes(foreign)
        for opened in (lambda p=path: LogWriter(p, HEADER), lambda p=path: read_log(p)):
            with pytest.raises(SearchlabError, match="not a searchlab log"):
                opened()
        assert path.read_bytes() == foreign


@pytest.mark.parametrize(
    ("line", "damage", "message"),
    [
        (1, b"garbage", "line 2: it is damaged"),
        (2, b"\xff\xfe", "line 3: it is damaged"),
        (2, b'{"kind":"trial","index":7,"config":{}}', "line 3: it contains trial 7 instead of trial 1"),
        (1, b'{"kind":"trial","index":0,"config":{},"failure":"gremlins"}', "line 2: it is damaged.*gremlins"),
        (1, b'{"index":0,"config":{}}', "line 2: it is damaged.*kind"),
        (2, b'{"kind":"trial","index":1,"batch":-1,"config":{}}', "line 3: it is damaged.*batch"),
        (0, b'{"searchlab_log":"1.0"}', "line 1: the header is damaged"),
        (0, b'{"searchlab_log":99}', "format is 99; this version of searchlab reads formats 1.x"),
    ],
)
def test_damage_is_named_with_its_line_and_nothing_is_touched(
    tmp_path: Path, line: int, damage: bytes, message: str
) -> None:
    path = tmp_path / "a.jsonl"
    lines = write_trials(path, 3).splitlines()
    lines[line] = damage
    path.write_bytes(before := b"\n".join(lines) + b"\n")
    for opened in (lambda: LogWriter(path, HEADER), lambda: read_log(path)):
        with pytest.raises(SearchlabError, match=message):
            opened()
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"workload": "gemm:8x8x8"}, "its workload is gemm:64x64x64, not gemm:8x8x8"),
        ({"seed": 1}, "its seed is 0, not 1"),
        ({"policy": Plugin("random", {"x": 2})}, "its policy is .*1.*, not .*2"),
        ({"batch": 8}, "its batch is 4, not 8"),
        ({"measure": {"kind": "table"}}, "its measure is"),
        ({"host": {"cpu": "y"}}, "its host is"),
    ],
)
def test_the_log_of_another_run_is_refused_naming_the_difference(tmp_path: Path, changed: dict, message: str) -> None:  # type: ignore[type-arg]
    path = tmp_path / "a.jsonl"
    before = write_trials(path, 2)
    with pytest.raises(SearchlabError, match=message):
        LogWriter(path, msgspec.structs.replace(HEADER, **changed))
    assert path.read_bytes() == before


def test_library_versions_may_change_between_runs(tmp_path: Path) -> None:
    write_trials(tmp_path / "a.jsonl", 2)
    LogWriter(tmp_path / "a.jsonl", msgspec.structs.replace(HEADER, versions={}, created_at=2.0, workers=9)).close()


def test_two_processes_cannot_write_one_log(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    writer = LogWriter(path, HEADER)
    code = (
        "import sys\nfrom searchlab.errors import SearchlabError\n"
        "from searchlab.log.writer import LogWriter\nfrom tests.support.logs import HEADER\n"
        "try: LogWriter(sys.argv[1], HEADER)\nexcept SearchlabError as error: print(error)"
    )
    output = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True).stdout
    assert "another process is writing" in output
    writer.append(make_record(0))
    writer.close()
    assert len(read_log(path).records) == 1


def test_a_full_disk_is_one_sentence_and_loses_no_complete_line(tmp_path: Path) -> None:
    """A limit on the size of files acts like a full disk."""
    path = tmp_path / "a.jsonl"
    code = (
        "import resource, signal, sys\nfrom searchlab.errors import SearchlabError\n"
        "from searchlab.log.writer import LogWriter\nfrom tests.support.logs import HEADER, make_record\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))\n"
        "writer = LogWriter(sys.argv[1], HEADER)\n"
        "try:\n    for index in range(100): writer.append(make_record(index))\n"
        "except SearchlabError as error: print(index, error)"
    )
    output = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True).stdout
    failed_at, _, text = output.partition(" ")
    assert "cannot write " in text and "free some space or" in text
    assert len(read_log(path).records) == int(failed_at) > 0


@pytest.mark.parametrize("call", ["fsync", "pwrite"])
def test_a_disk_that_fails_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    def fails(*_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    path = tmp_path / "a.jsonl"
    content = write_trials(path, 2)
    path.write_bytes(content + b'{"half')  # what a write that failed has left, which the next run cuts off
    with monkeypatch.context() as patched:
        patched.setattr(os, call, fails)
        with (
            pytest.raises(SearchlabError, match="cannot write .*: Input/output error; free some space or"),
            LogWriter(path, HEADER) as writer,
        ):
            writer.append(make_record(2))
    with LogWriter(path, HEADER) as writer:
        assert len(writer.log.records) == 2
    assert path.read_bytes() == content


def test_reading_an_unreadable_path_is_one_sentence(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.jsonl", tmp_path):
        with pytest.raises(SearchlabError, match="cannot read the log"):
            read_log(path)
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(SearchlabError, match="no header yet"):
        read_log(tmp_path / "empty.jsonl")


def test_elapsed_charges_building_on_all_workers(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path / "a.jsonl", msgspec.structs.replace(HEADER, workers=2))
    writer.append(make_record(0))
    writer.append(make_record(1, 2e-3))
    writer.close()
    log = read_log(tmp_path / "a.jsonl")
    each = 0.01 + 0.02 + 0.1 / 2 + 0.2
    assert log.elapsed_seconds.tolist() == pytest.approx([each, 2 * each])
    assert log.costs.tolist() == [1e-3, 2e-3]


def test_the_cause_of_a_difference_precedes_its_consequences(tmp_path: Path) -> None:
    """A fingerprint may depend on the target, and means nothing to a reader."""
    write_trials(tmp_path / "a.jsonl", 1)
    changed = msgspec.structs.replace(HEADER, target={"kind": "cuda"}, fingerprint="other")
    with pytest.raises(SearchlabError, match="its target is"):
        LogWriter(tmp_path / "a.jsonl", changed)
