"""Checking and repairing logs: all problems are named, and intact trials are kept."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from searchlab.cli.app import app
from searchlab.errors import SearchlabError
from searchlab.log.format import Ended, Final, Finalist, find_logs, read_log
from searchlab.log.writer import LogWriter, examine, repair
from tests.support.logs import HEADER, trial, written


def lines_of(path: Path, count: int = 8) -> list[bytes]:
    return written(path, count).splitlines()


def problems(path: Path, lines: list[bytes]) -> dict[int, str]:
    path.write_bytes(b"\n".join(lines) + b"\n")
    return {line.number: line.problem for line in examine(path).problems}


def test_an_intact_log_is_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    lines = lines_of(path)
    final = Final(trials=8, finalists=(Finalist(3, (1e-3,)),))
    writer = LogWriter(path, HEADER)
    writer.append(Ended(trials=8))
    writer.append(final)
    writer.append(trial(8))
    writer.close()
    before = path.read_bytes()
    assert before.splitlines()[:9] == lines
    assert not examine(path).problems and examine(path).trials == 9
    assert repair(path) is None and path.read_bytes() == before and len(list(tmp_path.iterdir())) == 1


def test_all_problems_are_named_with_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    lines = lines_of(path, 12)
    lines[3] = b"garbage"
    lines[5] = lines[5][:20]
    lines[9] = lines[8]
    lines[11] = b'{"kind":"finalists","trials":99,"finalists":[{"index":0,"seconds":[1.0]}]}'
    lines.append(b'{"kind":"ended","trials":98}')
    found = problems(path, lines)
    assert list(found) == [4, 6, 10, 11, 12, 14] and "98 trials" in found[14]
    assert "damaged" in found[4] and "damaged" in found[6] and "99 trials" in found[12]
    assert (
        found[10] == "it contains trial 7 instead of trial 8" and found[11] == "it contains trial 9 instead of trial 8"
    )
    path.write_bytes(b"\n".join(lines[:3]) + b"\n" + lines[4][:-3])
    assert [(line.number, "incomplete" in line.problem) for line in examine(path).problems] == [(4, True)]


def test_repaired_it_can_go_on_and_nothing_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    whole = lines_of(path)
    lines = [*whole]
    lines[4] = b"\xff\xfe"
    path.write_bytes(damaged := b"\n".join(lines) + b"\n")
    done = repair(path)
    assert done is not None and (done.trials, done.rest_trials) == (3, 4)
    assert path.read_bytes().splitlines() == whole[:4]
    assert done.saved.read_bytes() == damaged and done.saved.name == "a.jsonl.damaged"
    assert done.rest is not None and done.rest.read_bytes().splitlines() == [whole[0], *whole[5:]]
    assert find_logs(tmp_path) == [path]  # what is beside it is taken for no log
    writer = LogWriter(path, HEADER)
    assert [record.index for record in writer.records] == [0, 1, 2]
    writer.append(trial(3))
    writer.close()
    assert len(read_log(path).records) == 4
    path.write_bytes(damaged)
    again = repair(path)
    assert again is not None and again.saved.name == "a.jsonl.damaged1" and done.saved.read_bytes() == damaged


def test_a_line_too_many_costs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    whole = lines_of(path)
    path.write_bytes(b"\n".join([*whole[:4], b"", *whole[4:]]) + b"\n")
    done = repair(path)
    assert done is not None and (done.trials, done.rest) == (8, None)
    assert path.read_bytes().splitlines() == whole


@given(st.data())
def test_a_repaired_log_is_readable_and_keeps_every_intact_record(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("log") / "a.jsonl"
    lines = lines_of(path, 6)
    whole = lines[1:]
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(1, len(lines) - 1))
        match data.draw(st.sampled_from(["drop", "garbage", "twice", "cut"])):
            case "drop" if len(lines) > 2:
                del lines[at]
            case "garbage":
                lines[at] = data.draw(st.binary(max_size=9)).replace(b"\n", b"").replace(b"\r", b"")
            case "twice":
                lines.insert(at, lines[at])
            case _:
                lines[at] = lines[at][:-1][: data.draw(st.integers(0, 250))]
    path.write_bytes(b"\n".join(lines) + data.draw(st.sampled_from([b"", b"\n"])))
    try:
        readable = [record.index for record in read_log(path).records]
    except SearchlabError:
        readable = None
    done = repair(path)
    kept = path.read_bytes().splitlines()
    if readable is not None:
        assert [record.index for record in read_log(path).records] == readable
    else:
        assert done is not None
    assert kept[1:] == whole[: len(kept) - 1] and not examine(path).problems
    rest = done.rest.read_bytes().splitlines() if done and done.rest else []
    torn = not (done.saved if done else path).read_bytes().endswith(b"\n")
    for line in set(lines[1 : len(lines) - torn]) & set(whole):
        assert line in kept or line in rest


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "the log is empty"),
        (b"dear diary\n", "no header|damaged"),
        (b'{"searchlab_log":99}\n', "log format is 99"),
        (b'{"searchlab_log":1}\n', "the header is damaged"),
        (b'{"index":0,"config":{}}\n', "not a searchlab log, or its first line is missing"),
    ],
)
def test_without_a_header_nothing_is_touched(tmp_path: Path, data: bytes, said: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(data)
    with pytest.raises(SearchlabError, match=f"cannot be repaired: line 1: .*({said})"):
        repair(path)
    assert path.read_bytes() == data and len(list(tmp_path.iterdir())) == 1


def test_a_log_that_is_written_or_compressed_or_absent_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    writer = LogWriter(path, HEADER)
    code = (
        "import sys\nfrom pathlib import Path\nfrom searchlab.log.writer import SearchlabError, repair\n"
        "try: repair(Path(sys.argv[1]))\nexcept SearchlabError as error: print(error)"
    )
    said = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True).stdout
    writer.close()
    assert "another process is writing" in said
    for name, reason in (("a.jsonl.gz", "gunzip"), ("absent.jsonl", "cannot read")):
        with pytest.raises(SearchlabError, match=reason):
            repair(tmp_path / name)


def test_on_the_command_line(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.jsonl", tmp_path / "bad.jsonl"
    written(good, 2)
    lines = lines_of(bad, 3)
    lines[2] = b"{"
    bad.write_bytes(b"\n".join(lines) + b"\n")

    def invoke(*words: object) -> tuple[int, str]:
        done = CliRunner().invoke(app, [str(word) for word in words])
        return done.exit_code, " ".join(done.output.split())

    assert invoke("log", "check", good) == (0, f"{good} is intact: 2 trials")
    code, said = invoke("log", "check", tmp_path)
    assert code == 1 and f"{bad}, line 3: it is damaged" in said and f"log repair {bad}" in said and str(good) in said
    code, said = invoke("log", "check", bad, "--json")
    assert code == 1 and json.loads(said)[0]["problems"][0]["line"] == 3
    code, said = invoke("log", "repair", bad)
    assert (
        code == 0
        and "1 trials" in said
        and "the 1 trials after the first lost one" in said
        and "bad.jsonl.damaged" in said
    )
    assert invoke("log", "check", tmp_path)[0] == 0
    assert "nothing was changed" in invoke("log", "repair", bad)[1]
