"""Suites: directories that contain complete tables, and a ``suite.toml`` with the protocol and a frozen split."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, get_args

import msgspec
import numpy as np

from ..errors import SearchlabError, did_you_mean
from ..files import MAX_NAME_BYTES, read_bytes, read_text, resolve_inside
from ..log.columns import LogColumns
from ..log.format import Header, Log
from ..log.read import RUNS_SUFFIX, read_header, read_log
from ..options import Jobs, SeedCount, Trials
from ..parquet import PARQUET
from ..plugins import Plugin
from ..records import Statistic
from ..schema import convert, parse_toml
from ..space import Config, Space
from ..target import Target, resolve_target
from ..workload import parse_workload_in_file
from .table import TableSettings

SUITE_FILE, MANIFEST_FILE = "suite.toml", "manifest.json"
Split = Literal["dev", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)

_MODULE_PATH = Path(__file__).resolve()

SUITE_PARENT_DIRS = (_MODULE_PATH.parents[2] / "studies" / "suite", _MODULE_PATH.parents[1] / "suites")
"""The directories in which suites are found by name, in a checkout and in an installed package."""

Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][\w.+-]*$", max_length=MAX_NAME_BYTES)]


class SuiteEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table in ``suite.toml``, stored in ``tables/NAME.parquet``.

    Attributes:
        threads: The number of threads that its programs use.
        file: The file from which `searchlab suite build` imports it; "" if it was measured with searchlab.
    """

    name: Name
    split: Split
    workload: str
    space: Plugin
    threads: Jobs = 1
    file: str = ""

    @property
    def family(self) -> str:
        """The key by which results are summarised: the kernel, if several devices were measured, or else the space."""
        return parse_workload_in_file(self.workload, Path(SUITE_FILE)).cluster or self.space.name


class SuiteSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The keys of ``suite.toml``.

    Attributes:
        trials: The protocol's budget for a run.
        seeds: The protocol's number of seeds per strategy.
        faults: Known faults of the data, in sentences.
    """

    version: Name
    title: str
    licence: str
    trials: Trials
    seeds: SeedCount
    tables: list[SuiteEntry]
    faults: list[str] = []

    def __post_init__(self) -> None:
        names = [entry.name for entry in self.tables]
        if not names:
            raise ValueError("tables must not be empty")
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two tables are called {name!r}; give each table a unique name")


@dataclass(frozen=True)
class SuiteTable:
    """A table in a suite.

    Attributes:
        name: The table's name with the suite's version, as in logs, for example v1/gemm-64x64x64.
    """

    name: str
    entry: SuiteEntry
    directory: Path

    @property
    def path(self) -> Path:
        """The path of the table's file. Raises SearchlabError if the file is missing."""
        if not self.expected_path.is_file():
            command = f"create it with `searchlab suite build {self.directory} --from DIR`"
            remedy = command if self.is_imported else "download the suite again"
            raise SearchlabError(f"the table {self.name} is missing: {self.expected_path} does not exist; {remedy}")
        return self.expected_path

    @property
    def expected_path(self) -> Path:
        """The path of the table's file, whether or not the file exists."""
        return self.directory / "tables" / f"{self.entry.name}{PARQUET}"

    @property
    def is_imported(self) -> bool:
        """Whether the table was measured with a different tuner."""
        return bool(self.entry.file)

    @cached_property
    def digest(self) -> str:
        """The file's SHA-256 digest."""
        return compute_file_digest(self.path)

    @cached_property
    def header(self) -> Header:
        return read_header(self.path)

    @cached_property
    def log(self) -> Log:
        return read_log(self.path)

    @cached_property
    def positions_by_config(self) -> dict[Config, int]:
        return {Config(record.config): position for position, record in enumerate(self.log.records)}

    @cached_property
    def columns(self) -> LogColumns:
        """The table's columns as a run would have them if its strategy took no time."""
        spent = self.log.spent_seconds.copy()
        spent[:, :2] = 0.0
        return replace(LogColumns.from_log(self.log), spent_seconds=spent)

    @cached_property
    def optimum(self) -> float | None:
        """The lowest cost in seconds, or None if no config runs or if configs are missing."""
        optimum = float(self.log.costs.min(initial=np.inf))
        is_complete = len(self.log.records) >= (self.log.header.space_size or np.inf)
        return optimum if is_complete and np.isfinite(optimum) else None

    @property
    def plugin(self) -> Plugin:
        """The table's space. For an imported table, the options, which list all configs, are read from the header."""
        return self.header.space if self.is_imported else self.entry.space

    def target(self) -> Target:
        """Return the target for which the table was measured. Raises SearchlabError if this TVM does not support it."""
        try:
            return resolve_target(self.header.target)
        except SearchlabError as error:
            raise SearchlabError(
                f"the table {self.name} was measured for a target that this TVM does not support: {error}; use a "
                f"version of TVM that does, or choose different tables"
            ) from None

    def settings(self, noise: bool = False) -> TableSettings:
        """Return the settings for taking measurements from the table."""
        statistic: Statistic = self.header.measure.get("statistic", "median") if self.is_imported else "median"
        return TableSettings(
            str(self.path.absolute()), noise=noise, statistic=statistic, name=self.name, digest=self.digest
        )


@dataclass(frozen=True)
class Suite:
    """A suite, or part of one: a split or a single table."""

    directory: Path
    spec: SuiteSpec
    split: Split | None = None
    table_name: str = ""

    def __repr__(self) -> str:
        return f"<Suite {self.name}: {len(self.tables)} tables>"

    @property
    def name(self) -> str:
        part_name = self.table_name or self.split
        return self.spec.version + (f"/{part_name}" if part_name else "")

    @cached_property
    def tables(self) -> list[SuiteTable]:
        """The tables in the suite or part, in the order of ``suite.toml``."""
        return [
            SuiteTable(f"{self.spec.version}/{entry.name}", entry, self.directory)
            for entry in self.spec.tables
            if self.split in (None, entry.split) and self.table_name in ("", entry.name)
        ]

    @property
    def splits(self) -> dict[str, Split]:
        """The split of each table of the whole suite, by the table's name, sorted."""
        return dict(sorted((entry.name, entry.split) for entry in self.spec.tables))

    def table(self, name: str) -> SuiteTable:
        """Return the table called ``name``. Raises SearchlabError if it does not exist."""
        tables = {table.entry.name: table for table in self.tables}
        if name not in tables:
            raise SearchlabError(f"the suite {self.name} has no table {name!r}{did_you_mean(name, tables)}")
        return tables[name]

    @property
    def baseline_paths(self) -> dict[str, Path]:
        """The path of each baseline's file, by the baseline's name."""
        return {
            path.name.removesuffix(RUNS_SUFFIX): path
            for path in sorted((self.directory / "baselines").glob(f"*{RUNS_SUFFIX}"))
        }

    def select_split(self, split: Split | None) -> Suite:
        return Suite(self.directory, self.spec, split)


def find_installed_suites() -> dict[str, Path]:
    """Return the directories of the suites that can be found by name."""
    suites: dict[str, Path] = {}
    for directory in SUITE_PARENT_DIRS:
        for file in sorted(directory.glob(f"*/{SUITE_FILE}")):
            suites.setdefault(file.parent.name, file.parent)
    return suites


def find_suite(text: str | Path, base_dir: Path = Path()) -> Suite:
    """Return a suite, or part of one.

    Args:
        text: The name of a suite, such as ``v1``, or the path of its directory. Append ``/dev`` or ``/test`` to select
            a split, or ``/TABLE`` to select a table.
        base_dir: The directory that relative paths start from.

    Raises:
        SearchlabError: If the suite or part does not exist, or the suite is damaged.
    """
    text = str(text).rstrip("/")
    if (directory := _find_directory(text, base_dir)) is not None:
        return read_suite(directory)
    suite_name, _, part_name = text.rpartition("/")
    if (directory := _find_directory(suite_name, base_dir) if suite_name else None) is None:
        raise SearchlabError(
            f"cannot find the suite {text!r}: no directory with this name contains {SUITE_FILE}"
            f"{did_you_mean(text.partition('/')[0], find_installed_suites())}"
        )
    suite = read_suite(directory)
    if part_name in SPLITS:
        if not (split := suite.select_split(part_name)).tables:
            raise SearchlabError(f"the suite {suite.name} has no tables in its {part_name!r} split")
        return split
    names = [entry.name for entry in suite.spec.tables]
    if part_name in names:
        return Suite(suite.directory, suite.spec, table_name=part_name)
    hint = did_you_mean(part_name, [*SPLITS, *names])
    raise SearchlabError(f"the suite {suite.name} has no split or table {part_name!r}{hint}")


def _find_directory(name: str, base_dir: Path) -> Path | None:
    return base_dir / name if (base_dir / name / SUITE_FILE).is_file() else find_installed_suites().get(name)


def read_suite(directory: Path) -> Suite:
    """Return the suite in ``directory``. Raises SearchlabError if its ``suite.toml`` is missing or invalid."""
    path = directory / SUITE_FILE
    toml_text = read_text(path, under=directory, kind="the suite")
    for contained_path in directory.rglob("*"):  # the tables, cards and baselines of a suite are part of it
        if contained_path.is_symlink():
            resolve_inside(contained_path, directory)
    return Suite(directory, convert(parse_toml(toml_text, path), SuiteSpec, str(path)))


def compute_file_digest(path: Path) -> str:
    """Return a file's SHA-256 digest. Raises SearchlabError if the file cannot be read."""
    return hashlib.sha256(read_bytes(path)).hexdigest()


def check_table(table: SuiteTable, space: Space) -> None:
    """Raise SearchlabError if ``table`` was not measured in ``space``, the space that its suite entry describes."""
    header = table.header
    if (header.workload, header.fingerprint) != (str(space.workload), space.fingerprint):
        raise SearchlabError(
            f"the table {table.name} was not measured in the space that {SUITE_FILE} specifies: its space is "
            f"{header.workload} with fingerprint {header.fingerprint}, not {space.workload} with {space.fingerprint}; "
            f"correct the entry, or use a version of searchlab in which {table.entry.space.name} is the same"
        )
