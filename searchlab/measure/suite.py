"""Suites: complete tables with a protocol and a frozen split, in a directory with a ``suite.toml``."""

from __future__ import annotations

import hashlib
import tomllib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec

from ..errors import SearchlabError, did_you_mean
from ..log.format import Header, read_header
from ..log.packed import SUFFIX
from ..plugins import Plugin
from ..records import Statistic
from ..schema import explained
from ..space import Space
from ..target import Target, resolve_target
from ..workload import parse_workload
from .table import TableSettings

FILE = "suite.toml"
RUNS = ".json.gz"
"""The ending of the files with the runs of a strategy."""
Split = Literal["dev", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)

_HERE = Path(__file__).resolve()
PLACES = (_HERE.parents[2] / "studies" / "suite", _HERE.parents[1] / "suites")
"""The directories in which suites are found by name: in a checkout, and in an installed package."""

Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][\w.+-]*$")]
Count = Annotated[int, msgspec.Meta(ge=1)]


class SuiteSpace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The space of a table."""

    name: str
    options: dict[str, Any] = {}


class SuiteEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of a suite: ``tables/NAME.jsonl.gz`` or ``tables/NAME.packed``."""

    name: Name
    split: Split
    workload: str
    space: SuiteSpace
    threads: Count = 1  # of its programs
    file: str = ""  # the file that `searchlab suite build` imports it from; "" if it was measured with searchlab

    @property
    def family(self) -> str:
        """The key by which results are summarised: the kernel that was measured on several devices, or the space."""
        return parse_workload(self.workload).cluster or self.space.name


class SuiteSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The keys of ``suite.toml``."""

    version: Name
    title: str
    licence: str
    trials: Count  # the budget of a run in the protocol
    seeds: Count  # the seeds per strategy in the protocol
    tables: list[SuiteEntry]

    def __post_init__(self) -> None:
        names = [entry.name for entry in self.tables]
        if not names:
            raise ValueError("tables must have at least one entry, not []")
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two tables are called {name!r}; each needs its own name")


@dataclass(frozen=True)
class SuiteTable:
    """A table of a suite."""

    name: str  # with the version of the suite, as in logs: v1/gemm-64x64x64
    entry: SuiteEntry
    directory: Path

    @property
    def path(self) -> Path:
        """The file of the table. Raises SearchlabError if it is missing."""
        path = self.directory / "tables" / f"{self.entry.name}{SUFFIX if self.imported else '.jsonl.gz'}"
        if not path.is_file():
            remedy = f"searchlab suite build {self.directory} makes it" if self.imported else "fetch the suite again"
            raise SearchlabError(f"the table {self.name} is missing: there is no {path}; {remedy}")
        return path

    @property
    def imported(self) -> bool:
        """Whether it was measured with another tuner."""
        return bool(self.entry.file)

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the file."""
        return digest_of(self.path)

    @cached_property
    def header(self) -> Header:
        return read_header(self.path)

    @property
    def plugin(self) -> Plugin:
        """The space of the table. For an imported table its options, which list the configs, are in the header."""
        return self.header.space if self.imported else Plugin(self.entry.space.name, self.entry.space.options)

    def target(self) -> Target:
        """Return the target that the table was measured for. Raises SearchlabError if this TVM does not know it."""
        try:
            return resolve_target(self.header.target)
        except SearchlabError as error:
            raise SearchlabError(
                f"the table {self.name} was measured for a target that this TVM does not know: {error}; use a TVM that "
                f"does, or choose other tables"
            ) from None

    def settings(self, noise: bool = False) -> TableSettings:
        """Return the settings of measuring from the table."""
        statistic: Statistic = self.header.measure.get("statistic", "median") if self.imported else "median"
        return TableSettings(str(self.path), noise=noise, statistic=statistic, name=self.name, digest=self.digest)


@dataclass(frozen=True)
class Suite:
    """A suite, or a part of it: one split or one table."""

    directory: Path
    spec: SuiteSpec
    split: Split | None = None
    only: str = ""

    def __repr__(self) -> str:
        return f"<Suite {self.name}: {len(self.tables)} tables>"

    @property
    def name(self) -> str:
        part = self.only or self.split
        return self.spec.version + (f"/{part}" if part else "")

    @cached_property
    def tables(self) -> list[SuiteTable]:
        """The tables of the part, in the order of ``suite.toml``."""
        return [
            SuiteTable(f"{self.spec.version}/{entry.name}", entry, self.directory)
            for entry in self.spec.tables
            if self.split in (None, entry.split) and self.only in ("", entry.name)
        ]

    def table(self, name: str) -> SuiteTable:
        """Return the table ``name``. Raises SearchlabError if there is none."""
        known = {table.entry.name: table for table in self.tables}
        if name not in known:
            raise SearchlabError(f"the suite {self.name} has no table {name!r}{did_you_mean(name, known)}")
        return known[name]

    @property
    def baseline_files(self) -> dict[str, Path]:
        """The file of each baseline, by its name in file names."""
        return {path.name.removesuffix(RUNS): path for path in sorted((self.directory / "baselines").glob(f"*{RUNS}"))}

    def part(self, split: Split | None) -> Suite:
        return Suite(self.directory, self.spec, split)


def installed_suites() -> dict[str, Path]:
    """Return the directories of the suites that are found by name."""
    found: dict[str, Path] = {}
    for place in PLACES:
        for file in sorted(place.glob(f"*/{FILE}")):
            found.setdefault(file.parent.name, file.parent)
    return found


def find_suite(text: str | Path, base: Path = Path()) -> Suite:
    """Return a suite, or a part of it.

    Args:
        text: The name of a suite, such as ``v1``, or the path of a directory. With ``/dev`` or ``/test`` it is one
            split of the suite, with ``/TABLE`` one table.
        base: The directory from which a relative path starts.

    Raises:
        SearchlabError: If there is no such suite or part, or if the suite is damaged.
    """
    text = str(text).rstrip("/")
    if (directory := _directory(text, base)) is not None:
        return read_suite(directory)
    head, _, part = text.rpartition("/")
    if (directory := _directory(head, base) if head else None) is None:
        raise SearchlabError(
            f"there is no suite {text!r}: no directory of this name contains {FILE}"
            f"{did_you_mean(text.partition('/')[0], installed_suites())}"
        )
    suite = read_suite(directory)
    if part in SPLITS:
        if not (found := suite.part(part)).tables:
            raise SearchlabError(f"the suite {suite.name} has no table in its split {part!r}")
        return found
    names = [entry.name for entry in suite.spec.tables]
    if part in names:
        return Suite(suite.directory, suite.spec, only=part)
    known = did_you_mean(part, [*SPLITS, *names])
    raise SearchlabError(f"the suite {suite.name} has no split or table {part!r}{known}")


def _directory(name: str, base: Path) -> Path | None:
    return base / name if (base / name / FILE).is_file() else installed_suites().get(name)


def read_suite(directory: Path) -> Suite:
    """Return the suite in ``directory``. Raises SearchlabError if its ``suite.toml`` is missing or invalid."""
    path = directory / FILE
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SearchlabError(f"cannot read the suite {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SearchlabError(f"{path} is not valid TOML: {error}") from None
    return Suite(directory, explained(data, SuiteSpec, str(path)))


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file. Raises SearchlabError if it cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise SearchlabError(f"cannot read {path}: {error.strerror}") from None


def check_table(table: SuiteTable, space: Space) -> None:
    """Raise SearchlabError if ``table`` was not measured in ``space``, which its entry in ``suite.toml`` describes."""
    header = table.header
    if (header.workload, header.fingerprint) != (str(space.workload), space.fingerprint):
        raise SearchlabError(
            f"the table {table.name} was measured in another space than {FILE} names: {header.workload} with "
            f"fingerprint {header.fingerprint}, not {space.workload} with {space.fingerprint}; the entry is wrong, or "
            f"{table.entry.space.name} differs in this version of searchlab"
        )
