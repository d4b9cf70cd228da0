"""Suites: complete tables with a protocol and a frozen split, in a directory that holds ``suite.toml``."""

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
from .table import TableSettings

FILE = "suite.toml"
RUNS = ".json.gz"
"""Ending of the files that hold the runs of a strategy."""
Split = Literal["dev", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)

_HERE = Path(__file__).resolve()
PLACES = (_HERE.parents[2] / "studies" / "suite", _HERE.parents[1] / "suites")
"""Where suites are found by name: in a checkout, and in an installed package."""

Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][\w.+-]*$")]
Count = Annotated[int, msgspec.Meta(ge=1)]


class SuiteSpace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The space of a table."""

    name: str
    options: dict[str, Any] = {}


class SuiteEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of a suite, ``tables/NAME.jsonl.gz`` or ``tables/NAME.packed``.

    Attributes:
        threads: Of its programs.
        group: What makes several tables alike, such as their kernel; empty if each stands for itself.
        file: The name of the file that ``searchlab suite build`` imports it from; empty if it was built here.
    """

    name: Name
    split: Split
    workload: str
    space: SuiteSpace
    threads: Count = 1
    group: str = ""
    file: str = ""

    @property
    def family(self) -> str:
        """What its results are summarized with: its group, or its space."""
        return self.group or self.space.name


class SuiteSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The keys of ``suite.toml``. trials, seeds: the budget of a run, and the number of its seeds, of the protocol."""

    version: Name
    title: str
    licence: str
    trials: Count
    seeds: Count
    tables: list[SuiteEntry]

    def __post_init__(self) -> None:
        names = [entry.name for entry in self.tables]
        if not names:
            raise ValueError("tables must have at least one entry, not []")
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two tables are called {name!r}; each needs a name of its own")


@dataclass(frozen=True)
class SuiteTable:
    """A table of a suite. name: as logs have it, with the version of the suite: ``v1/gemm-64x64x64``."""

    name: str
    entry: SuiteEntry
    directory: Path

    @property
    def path(self) -> Path:
        """Its file. Raises SearchlabError if it is missing."""
        path = self.directory / "tables" / f"{self.entry.name}{SUFFIX if self.imported else '.jsonl.gz'}"
        if not path.is_file():
            remedy = f"searchlab suite build {self.directory} makes it" if self.imported else "fetch the suite again"
            raise SearchlabError(f"the table {self.name} is missing: there is no {path}; {remedy}")
        return path

    @property
    def imported(self) -> bool:
        """Whether another tuner measured it."""
        return bool(self.entry.file)

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of its file."""
        return digest_of(self.path)

    @cached_property
    def header(self) -> Header:
        return read_header(self.path)

    @property
    def plugin(self) -> Plugin:
        """Its space. The header of an imported table holds the options, which list its configs."""
        return self.header.space if self.imported else Plugin(self.entry.space.name, self.entry.space.options)

    def target(self) -> Target:
        """The target that it was measured for. Raises SearchlabError if this TVM cannot name it."""
        try:
            return resolve_target(self.header.target)
        except SearchlabError as error:
            raise SearchlabError(
                f"the table {self.name} was measured for a target that this TVM cannot name: {error}; use a TVM that "
                f"knows this target, or choose the other tables"
            ) from None

    def settings(self, noise: bool = False) -> TableSettings:
        """The measurement that answers from it."""
        statistic: Statistic = self.header.measure.get("statistic", "median") if self.imported else "median"
        return TableSettings(str(self.path), noise=noise, statistic=statistic, name=self.name, digest=self.digest)


@dataclass(frozen=True)
class Suite:
    """A suite; or one split of it, or one table."""

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
        """The tables of the part, or all, in the order of ``suite.toml``."""
        return [
            self._table(entry)
            for entry in self.spec.tables
            if self.split in (None, entry.split) and self.only in ("", entry.name)
        ]

    def table(self, name: str) -> SuiteTable:
        """The table ``name``. Raises SearchlabError if there is none."""
        known = {table.entry.name: table for table in self.tables}
        if name not in known:
            raise SearchlabError(f"the suite {self.name} has no table {name!r}{did_you_mean(name, known)}")
        return known[name]

    @property
    def baseline_files(self) -> dict[str, Path]:
        """The runs of each baseline, by its name in file names."""
        return {path.name.removesuffix(RUNS): path for path in sorted((self.directory / "baselines").glob(f"*{RUNS}"))}

    def part(self, split: Split | None) -> Suite:
        return Suite(self.directory, self.spec, split)

    def _table(self, entry: SuiteEntry) -> SuiteTable:
        return SuiteTable(f"{self.spec.version}/{entry.name}", entry, self.directory)


def installed_suites() -> dict[str, Path]:
    """The directories of the suites that are found by name."""
    found: dict[str, Path] = {}
    for place in PLACES:
        for file in sorted(place.glob(f"*/{FILE}")):
            found.setdefault(file.parent.name, file.parent)
    return found


def find_suite(text: str | Path, base: Path = Path()) -> Suite:
    """The suite that ``text`` names: ``v1``, or the path of a directory; with ``/dev`` or ``/test`` one split of it.

    With ``/TABLE`` it is one table.

    base: the directory from which a relative path starts. Raises SearchlabError if there is none, or if it is damaged.
    """
    text = str(text).rstrip("/")
    directory, split = _directory(text, base), ""
    if directory is None and "/" in text:
        head, _, split = text.rpartition("/")
        directory = _directory(head, base)
    if directory is None:
        raise SearchlabError(
            f"there is no suite {text!r}: no directory of this name holds {FILE}"
            f"{did_you_mean(text.partition('/')[0], installed_suites())}"
        )
    suite = read_suite(directory)
    if not split:
        return suite
    if split not in SPLITS:
        names = [entry.name for entry in suite.spec.tables]
        if split not in names:
            known = did_you_mean(split, [*SPLITS, *names])
            raise SearchlabError(f"the suite {suite.name} has no split or table {split!r}{known}")
        return Suite(suite.directory, suite.spec, only=split)
    if not (part := suite.part(split)).tables:
        raise SearchlabError(f"the suite {suite.name} has no table in its split {split!r}")
    return part


def _directory(name: str, base: Path) -> Path | None:
    return base / name if (base / name / FILE).is_file() else installed_suites().get(name)


def read_suite(directory: Path) -> Suite:
    """The suite in ``directory``. Raises SearchlabError that names what is wrong in its ``suite.toml``."""
    path = directory / FILE
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SearchlabError(f"cannot read the suite {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SearchlabError(f"{path} is not valid TOML: {error}") from None
    return Suite(directory, explained(data, SuiteSpec, str(path)))


def digest_of(path: Path) -> str:
    """The SHA-256 of a file. Raises SearchlabError if it cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise SearchlabError(f"cannot read {path}: {error.strerror}") from None


def check_table(table: SuiteTable, space: Space) -> None:
    """Raise SearchlabError if ``table`` is not of ``space``, made anew from its entry in ``suite.toml``."""
    header = table.header
    if (header.workload, header.fingerprint) != (str(space.workload), space.fingerprint):
        raise SearchlabError(
            f"the table {table.name} was measured in another space than {FILE} names: {header.workload} with "
            f"fingerprint {header.fingerprint}, not {space.workload} with {space.fingerprint}; the entry is wrong, or "
            f"this version of searchlab has another {table.entry.space.name}"
        )
