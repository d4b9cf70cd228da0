"""Feeds damaged and hostile files to every reader, which must read them or reject them with a one-line error.

    python studies/benchmarks/fuzz.py [--inputs 100000] [--seed 0] [--megabytes 100] [--keep DIR] [--readers log ...]

The inputs are real files in which bytes, lines or JSON values are replaced, and which get a byte order mark, other line
endings, another version or a layer of gzip; and for each reader, a line of ``--megabytes`` and JSON nested 100,000
levels deep. An input is a finding if its reader raises anything but a one-line
SearchlabError, takes longer than ``SECONDS``, or imports a package. Growing memory is also a finding. Findings are kept
in DIR. The exit status is 1 if there are any.
"""

from __future__ import annotations

import argparse
import codecs
import gzip
import json
import random
import re
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
from border import SUITE
from rows import Row, write_rows

import searchlab
from searchlab.analysis.read import read_runs
from searchlab.analysis.summary import summarize
from searchlab.errors import SearchlabError, SearchlabWarning
from searchlab.exchange.imports import ImportOptions, import_file
from searchlab.log.read import read_header, read_log
from searchlab.log.reliability import describe_reliability
from searchlab.log.writer import check_log
from searchlab.measure.suite import find_suite, read_suite
from searchlab.measure.table import TableMeasurer, TableSettings
from searchlab.suite.build import build_suite
from searchlab.suite.cards import TableCard
from searchlab.suite.compare import make_suite_study, run_policy
from searchlab.suite.seal import seal
from searchlab.suite.trajectories import (
    make_trajectories_path,
    read_baselines,
    write_trajectories,
)
from searchlab.suite.verify import verify_suite
from searchlab.tables.info import TableInfo, make_info_table

ROOT = Path(__file__).parents[2]
GOLDEN, FOREIGN = ROOT / "tests" / "golden" / "data", ROOT / "tests" / "exchange" / "data"
TABLE = ROOT / "studies" / "suite" / "v1" / "tables" / "gemm-96x96x96-guided-1t.parquet"
SECONDS = 20.0
"""The time limit for a file of ordinary size, in seconds: hundreds of times what an idle machine needs."""

SECONDS_PER_MEGABYTE = 2.0
GROWTH = 64
"""The number of MB by which this process's memory may grow over all of a reader's small inputs."""

DEEP = 100_000
VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1.5,
    2**63,
    10**400,
    -(10**30),
    1e308,
    5e-324,
    float("nan"),
    float("inf"),
    "",
    "x",
    "\ud800",
    "[/b]",
    "evil_of_a_stranger:run",
    "__import__('evil_of_a_stranger')",
    "../../x",
    "\0",
    "9" * 5000,
    [],
    {},
    [[]],
    {"": {}},
    [1e-3] * 1000,
    {"name": "evil_of_a_stranger:Run", "options": {"x": 1}},
)
"""The values that replace others in JSON."""

BYTES = (b"\n", b"\0", b"{", b"]", b'"', b"\\", b"\xff", b"\r", b"1e999", b"NaN", b"null", b'"\\ud800"', b"'''", b" = ")


@dataclass(frozen=True)
class Reader:
    """A reader of files.

    Attributes:
        seeds: Intact files or directories.
        read: A function that reads the file at a path; it may write to the file's folder.
    """

    seeds: list[Path]
    read: Callable[[Path], object]


def log(path: Path) -> None:
    """Read a log with every function that accepts logs from untrusted sources."""
    call_reader(read_header, path)
    call_reader(check_log, path)
    content = read_log(path)
    result = searchlab.load_log(path)
    describe_reliability(content)
    make_info_table(TableInfo(content))
    result.to_frame()
    call_reader(lambda: result.best)
    if len(content.records) < 100:
        summarize(read_runs(path))


def table(path: Path) -> None:
    """Read a log as a table."""
    settings = TableSettings(str(path))
    call_reader(settings.default_target)
    call_reader(settings.measurable_spaces)
    header = read_header(path)
    with TableMeasurer(TableSettings(str(path), missing="nearest")) as measurer:
        # Only these attributes of the space are used.
        of_log: Any = SimpleNamespace(workload=header.workload, fingerprint=header.fingerprint, has_programs=False)
        measurer.all_costs(of_log)


def call_reader(read: Callable[..., object], *arguments: object) -> None:
    """Call ``read``, which may raise SearchlabError."""
    try:
        read(*arguments)
    except SearchlabError as error:
        check_sentence(error)


def check_sentence(error: SearchlabError) -> None:
    if "\n" in str(error) or not str(error):
        raise AssertionError(f"the message is not a sentence: {str(error)!r:.1000}")


def foreign(format: str | None) -> Callable[[Path], object]:
    return lambda path: import_file(path, path.parent / "out", ImportOptions(), format)


def suite(path: Path) -> None:
    """Read a suite, its cards and its baselines, and verify it."""
    content = find_suite(path)
    for table in content.tables:
        call_reader(lambda table=table: TableCard(table).to_markdown())
    call_reader(read_baselines, content)
    verify_suite(content, lambda text, problems: None, seconds=0)


def study(path: Path) -> object:
    """Read a file whose name does not identify its format."""
    return read_suite(path.parent) if path.name == "suite.toml" else searchlab.Study.load(path)


def write_suite(folder: Path) -> Path:
    """Write a suite with a table, its card, its manifest and a baseline."""
    directory = folder / "suite"
    directory.mkdir()
    (directory / "suite.toml").write_text(SUITE)
    new_suite = find_suite(directory)
    build_suite(new_suite, FOREIGN / "kernel_tuner")
    study = make_suite_study(new_suite, {"name": "random", "label": "random"}, None, [])
    write_trajectories(make_trajectories_path(directory / "baselines", "random"), run_policy(study, folder / "logs"))
    seal(new_suite)
    return directory


READERS = {
    "log": Reader(
        sorted(GOLDEN.glob("*.jsonl")),
        log,
    ),
    "table": Reader([*sorted(GOLDEN.glob("*.jsonl*")), TABLE], table),
    "study": Reader(
        [
            *sorted((ROOT / "studies").glob("*.toml")),
            *sorted((ROOT / "studies" / "suite").glob("*.toml")),
            ROOT / "studies" / "suite" / "v1" / "suite.toml",
        ],
        study,
    ),
    "suite": Reader([], suite),  # main() writes the suite
    "tophub": Reader([ROOT / "tests" / "border" / "data" / "tophub" / "llvm.log"], foreign(None)),
    "autotvm": Reader([FOREIGN / "autotvm_matmul512.log"], foreign("autotvm")),
    "ansor": Reader([FOREIGN / "ansor_gemm512.json"], foreign("ansor")),
    "metaschedule": Reader([FOREIGN / "metaschedule_gemm512"], foreign("metaschedule")),
    "kernel-tuner": Reader(sorted((FOREIGN / "kernel_tuner").glob("*.json.gz")), foreign(None)),
}


# --- inputs ---------------------------------------------------------------------------------------------------------


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Return ``data`` with one to four changes."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        data = rng.choice(CHANGES)(data, rng)
    return data


def flip(data: bytes, rng: random.Random) -> bytes:
    """Replace a byte."""
    at = rng.randrange(len(data) + 1)
    return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]


def insert(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.choice(BYTES) * rng.choice((1, 1, 30)) + data[at:]


def cut(data: bytes, rng: random.Random) -> bytes:
    """Remove a span, or everything after a position."""
    start, end = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    return data[:start] + (data[min(end, start + 100) :] if rng.random() < 0.7 else b"")


def duplicate(data: bytes, rng: random.Random) -> bytes:
    """Duplicate a span."""
    start, end = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    return data[:end] + data[start : min(end, start + 1000)] + data[end:]


def lines(data: bytes, rng: random.Random) -> bytes:
    """Swap two lines."""
    rows = data.split(b"\n")
    i, j = rng.randrange(len(rows)), rng.randrange(len(rows))
    rows[i], rows[j] = rows[j], rows[i]
    return b"\n".join(rows)


def value(data: bytes, rng: random.Random) -> bytes:
    """Replace a value or key in the JSON of a line or the complete file, or a byte if there is no JSON."""
    rows = data.split(b"\n")
    at = rng.randrange(min(len(rows), 5)) if rng.random() < 0.5 else rng.randrange(len(rows))
    for start, end in ((at, at + 1), (0, len(rows))):
        try:
            record = json.loads(b"\n".join(rows[start:end]))
        except (ValueError, RecursionError):
            continue
        changed = json.dumps(replace_value(record, rng), allow_nan=True, separators=(",", ":")).encode()
        return b"\n".join([*rows[:start], changed, *rows[end:]])
    return flip(data, rng)


def replace_value(record: Any, rng: random.Random) -> Any:
    """Return ``record`` with an entry replaced by one of ``VALUES``, removed, or renamed."""
    if not isinstance(record, dict | list) or not record or rng.random() < 0.1:
        return rng.choice(VALUES)
    if isinstance(record, list):
        i = rng.randrange(len(record))
        return [replace_value(item, rng) if i == j else item for j, item in enumerate(record)]
    name = rng.choice(list(record))
    how = rng.random()
    if how < 0.1:
        return {key: item for key, item in record.items() if key != name}
    if how < 0.2:
        return {rng.choice(["", "x", "name", "index", name * 2]) if key == name else key: record[key] for key in record}
    return record | {name: replace_value(record[name], rng)}


def wrap(data: bytes, rng: random.Random) -> bytes:
    """Add a byte order mark, carriage returns or a layer of gzip, or encode the file as UTF-16."""
    how = rng.randrange(4)
    if how == 3:
        return data.decode("utf-8", "replace").encode("utf-16")
    return (codecs.BOM_UTF8 + data, data.replace(b"\n", b"\r\n"), gzip.compress(data, 1))[how]


def version(data: bytes, rng: random.Random) -> bytes:
    """Replace the version of the format of a log, and sometimes add a line or a field that it does not know."""
    new = rng.choice((b'"1.0"', b'"1.1"', b'"1.3"', b'"1.999999999"', b'"2.0"', b'"1."', b'"1.-1"', b"1", b"1.2", b"2"))
    data = re.sub(rb'("searchlab_log":)("1.\d"|1)', rb"\g<1>" + new, data, count=1)
    if rng.random() < 0.5:
        return data
    at = data.rfind(b"\n", 0, rng.randrange(len(data) + 1)) + 1
    return data[:at] + rng.choice((b'{"kind":"later","x":1}\n', b'{"kind":"changed","trials":0}\n')) + data[at:]


CHANGES = (flip, insert, cut, duplicate, lines, value, value, value, value, wrap, version)


def monsters(data: bytes, megabytes: int) -> Iterator[bytes]:
    """Yield files that are too large or too deeply nested, with and without an intact beginning."""
    first, newline, _ = data.partition(b"\n")
    size = megabytes << 20
    for start in (b"", first + newline):
        yield start + b"x" * size + b"\n"
        yield start + b'{"index":0,"config":{"x":"' + b"y" * size + b'"},"input":' + b"1" * 100 + b"}\n"
        yield start + b"9" * size + b"\n"
        for left, right in ((b"[", b"]"), (b'{"a":', b"}"), (b'{"index":0,"config":{"x":' + b"[", b"]")):
            yield start + left * DEEP + b"1" + right * DEEP + b"\n"
        yield start + b'{"index":0,"config":{"x":' + b"[" * DEEP + b"]" * DEEP + b"}}\n"
        yield start + b"x = " + b"[" * DEEP + b"]" * DEEP + b"\n"


def files_of(seed: Path) -> list[Path]:
    return sorted(path for path in seed.rglob("*") if path.is_file()) if seed.is_dir() else [seed]


def put(seed: Path, folder: Path, change: Callable[[bytes], bytes], rng: random.Random) -> Path:
    """Copy ``seed`` to ``folder`` with one file changed. Compressed files are usually changed before compression."""
    changed = rng.choice(files_of(seed))
    for file in files_of(seed):
        data = file.read_bytes()
        to = folder / seed.name / file.relative_to(seed) if seed.is_dir() else folder / file.name
        to.parent.mkdir(parents=True, exist_ok=True)
        if file == changed:
            inside = file.suffix == ".gz" and rng.random() < 0.9
            data = gzip.compress(change(gzip.decompress(data)), 1) if inside else change(data)
        to.write_bytes(data)
    return folder / seed.name


# --- judging --------------------------------------------------------------------------------------------------------


def packages() -> set[str]:
    return {name.partition(".")[0] for name in sys.modules}


def find_problem(read: Callable[[Path], object], path: Path, seconds: float) -> str:
    """Return what went wrong when ``path`` was read, or "" if nothing did."""
    before, start = packages(), time.perf_counter()
    problem = ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)  # numpy's would go to standard error
            warnings.simplefilter("ignore", SearchlabWarning)
            call_reader(read, path)
    except Exception:
        problem = traceback.format_exc(limit=-6)
    elapsed = time.perf_counter() - start
    if new := packages() - before:
        problem += f"it imported {', '.join(sorted(new))}\n"
    if elapsed > seconds:
        problem += f"it took {elapsed:.1f} s\n"
    return problem


def fuzz(name: str, inputs: int, rng: random.Random, megabytes: int, keep: Path | None) -> int:
    """Return the number of findings for reader ``name``."""
    reader = READERS[name]
    findings = 0
    process = psutil.Process()

    def try_input(number: str, seed: Path, change: Callable[[bytes], bytes], seconds: float) -> None:
        nonlocal findings
        with tempfile.TemporaryDirectory(prefix="fuzz-") as scratch:
            path = put(seed, Path(scratch), change, rng)
            copy = Path(scratch, "kept")
            if keep:
                (shutil.copytree if seed.is_dir() else shutil.copy)(path, copy)
            problem = find_problem(reader.read, path, seconds)
            if problem:
                findings += 1
                print(f"--- {name}, {number}, from {seed.name}\n{problem}", flush=True)
                if keep:
                    keep.mkdir(parents=True, exist_ok=True)
                    shutil.move(copy, keep / f"{name}-{number}-{seed.name}")

    for seed in reader.seeds:  # intact files first, because they import what reading requires
        with tempfile.TemporaryDirectory(prefix="fuzz-") as scratch:
            call_reader(reader.read, put(seed, Path(scratch), bytes, rng))
    memory_before = process.memory_info().rss
    for number in range(inputs):
        try_input(str(number), rng.choice(reader.seeds), lambda data: mutate(data, rng), SECONDS)
        if number == inputs // 4:
            memory_before = process.memory_info().rss
    grown = (process.memory_info().rss - memory_before) >> 20
    if grown > GROWTH:
        findings += 1
        print(f"--- {name}: memory grew by {grown} MB")
    seed = reader.seeds[0]
    file = files_of(seed)[0]
    data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    for number, monster in enumerate(monsters(data, megabytes)):
        try_input(
            f"monster{number}", seed, lambda _, monster=monster: monster, SECONDS + megabytes * SECONDS_PER_MEGABYTE
        )
    return findings


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=100_000, metavar="N", help="number of mutated inputs (100000)")
    parser.add_argument("--seed", type=int, default=0, help="seed for the changes (0)")
    parser.add_argument("--megabytes", type=int, default=100, help="length of the longest line in megabytes (100)")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="directory in which to keep the findings")
    parser.add_argument("--readers", nargs="+", default=list(READERS), choices=list(READERS), metavar="READER")
    parser.add_argument("--rows", type=Path, metavar="FILE", help="append rows for robustness.py to FILE")
    options = parser.parse_args(argv)
    rows = []
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        READERS["suite"].seeds[:] = [write_suite(Path(folder))] if "suite" in options.readers else []
        for name in options.readers:
            start = time.perf_counter()
            count = options.inputs // len(options.readers)
            findings = fuzz(name, count, random.Random(f"{options.seed} {name}"), options.megabytes, options.keep)
            wrong = [f"{findings} findings"] if findings else []
            rows.append(Row("damaged files", name, count, wrong, time.perf_counter() - start))
            print(f"{name}: {count:,} inputs, {findings} findings, {rows[-1].seconds:.0f} s", flush=True)
    write_rows(rows, options.rows)


if __name__ == "__main__":
    main()
