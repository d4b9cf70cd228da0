"""Bundles: a policy's results over a suite with its source, in one archive that can be read without executing anything.

The archive is a ZIP file with ``submission.json``, one file of trajectories for each split, and the text files of the
policy's source.
"""

from __future__ import annotations

import hashlib
import io
import re
import stat
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

import msgspec

from ..analysis.words import format_ranges, listed
from ..console import one_line
from ..costmodel import COST_MODELS
from ..errors import SearchlabError
from ..files import find_files, read_bytes, read_text, write_file
from ..log.read import RESULT_FILE_NAME, RUNS_SUFFIX
from ..measure.suite import SPLITS, Name, Split, Suite, find_suite, split_of
from ..plugins import Plugin, unregistered_code
from ..policy import POLICIES
from ..schema import UNREADABLE, convert, parse_toml
from .trajectories import RecordedTables, Trajectories, decode_trajectories, read_trajectories

BUNDLE_SUFFIX = ".zip"
SUBMISSION, SOURCE, PROJECT, README = "submission.json", "source/", "pyproject.toml", "README.md"

TEXT_SUFFIXES = (".py", ".toml", ".md", ".txt", ".json", ".csv")
"""The endings of source files. Everything in a bundle but its trajectories can be read by a person."""

MAX_FILES, MAX_BYTES = 200, 32 << 20
_NAME = re.compile(r"[A-Za-z0-9_./+-]{1,200}")

DIGITS = 6
"""The number of decimal places of the areas in a submission."""

Line = Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]
Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
Track = Literal["as published", "tuned on dev", "transfer"]


class Submission(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of ``submission.json``.

    Attributes:
        submission: The version of the format.
        name: The name of the strategy in tables, as in its trajectories.
        track: Whether its options are those of a publication or its defaults, were tuned on the development split, or
            whether it has learned from other workloads.
        tuned_on: The suites, splits or tables on which its options were tuned or from which it has learned.
        suite: The suite's version.
        suite_digest: The digest of the suite's protocol, split and tables; see :func:`suite_digest`.
        plugins: For each name in the trajectories that the policy's package registers, its class (``module:Class``).
        areas: The mean area under the curve by split and table.
        files: The SHA-256 of every other file in the bundle.
    """

    submission: Literal[1] = 1
    name: Line
    description: Line
    authors: Annotated[list[Line], msgspec.Meta(min_length=1, max_length=100)]
    licence: Line
    citation: Line
    track: Track
    tuned_on: list[Line] = []
    suite: Name
    suite_digest: Digest
    plugins: dict[str, str] = {}
    areas: dict[Split, dict[str, float]]
    files: dict[str, Digest]

    def plugin(self, plugin: Plugin) -> Plugin:
        """Return ``plugin`` with the name by which the bundle's source provides it."""
        return Plugin(self.plugins.get(plugin.name, plugin.name), plugin.options)


@dataclass(frozen=True)
class Bundle:
    """The content of a bundle.

    Attributes:
        source: The text files of the policy's source, by relative path.
        digest: The SHA-256 of the archive.
    """

    path: Path
    submission: Submission
    results: Mapping[Split, Trajectories]
    source: Mapping[str, bytes]
    digest: str

    @property
    def references(self) -> list[str]:
        """The code (``module:name``) to which the results refer, and which no installed package registers."""
        plugins = [self.submission.plugin(plugin) for result in self.results.values() for plugin in result.plugins]
        names = [name for plugin in plugins for name in unregistered_code([plugin.name, plugin.options])]
        return list(dict.fromkeys(names))


# --- writing ----------------------------------------------------------------------------------------------------------


class _Author(msgspec.Struct):
    name: str = ""
    email: str = ""


class _Options(msgspec.Struct, forbid_unknown_fields=True):
    """The table ``tool.searchlab`` of a ``pyproject.toml``."""

    track: Track
    citation: Line
    tuned_on: list[Line] = msgspec.field(default_factory=list, name="tuned-on")


class _Project(msgspec.Struct):
    """What a submission needs of a ``pyproject.toml``."""

    authors: list[_Author] = []
    description: str = ""
    licence: str = msgspec.field(default="", name="license")
    entry_points: dict[str, dict[str, str]] = msgspec.field(default_factory=dict, name="entry-points")


def submit(directory: Path, path: Path, suite_path: str = "") -> Bundle:
    """Write the bundle of the package in ``directory`` to ``path``.

    Args:
        directory: The package: Python files, ``pyproject.toml``, and directories written by ``suite run --out``.
        path: The bundle.
        suite_path: The path of the suite, if it cannot be found by name.

    Raises:
        SearchlabError: If something is missing or would be refused.
    """
    project, options = _read_project(directory)
    files = sorted(directory.glob(f"*/{RESULT_FILE_NAME}"))
    if not files:
        raise SearchlabError(
            f"{directory} contains no results; run `searchlab suite run ... --out {directory / 'dev'}`"
        )
    suite = find_suite(suite_path or read_trajectories(files[0]).suite).select_split(None)
    splits = split_of(suite)
    results: dict[Split, Trajectories] = {}
    for file in files:
        result = read_trajectories(file)
        (split, *more_splits) = {splits[name] for name in result.tables if name in splits} or {SPLITS[0]}
        if more_splits or split in results:
            raise SearchlabError(f"{file} is a second result of the split {split}; remove it from {directory}")
        results[split] = result
    result = next(iter(results.values()))
    registered = {name: value for group in project.entry_points.values() for name, value in group.items()}
    members = {f"{split}{RUNS_SUFFIX}": read_bytes(file) for split, file in zip(results, files, strict=True)}
    members |= {SOURCE + name: content for name, content in _read_source(directory)}
    submission = Submission(
        name=result.strategy,
        description=project.description,
        authors=[author.name or author.email for author in project.authors],
        licence=project.licence,
        citation=options.citation,
        track=options.track,
        tuned_on=options.tuned_on,
        suite=suite.spec.version,
        suite_digest=suite_digest(suite),
        plugins={plugin.name: registered[plugin.name] for plugin in result.plugins if plugin.name in registered},
        areas={split: mean_areas(suite, result) for split, result in results.items()},
        files={name: hashlib.sha256(data).hexdigest() for name, data in members.items()},
    )
    metadata = msgspec.json.format(msgspec.json.encode(submission), indent=2) + b"\n"
    write_file(path, pack({SUBMISSION: metadata, **members}))
    bundle = read_bundle(path)
    if problems := list(bundle_problems(bundle, suite)):
        path.unlink()
        raise SearchlabError(f"the bundle would be refused: {'; '.join(problems)}")
    return bundle


def pack(members: Mapping[str, bytes]) -> bytes:
    """Return an archive of ``members``; equal ones yield equal bytes."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    return file.getvalue()


def mean_areas(suite: Suite, result: Trajectories) -> dict[str, float]:
    """Return the mean area under the curve on each table, over the seeds."""
    recorded_tables = RecordedTables(suite)
    return {name: round(float(recorded_tables[name].areas(result).mean()), DIGITS) for name in result.tables}


def suite_digest(suite: Suite) -> str:
    """Return a digest of the protocol, split and tables of ``suite``, but not of its baselines and cards."""
    tables = sorted((table.entry.name, table.entry.split, table.digest) for table in suite.tables)
    content = msgspec.json.encode([suite.spec.version, suite.spec.trials, suite.spec.seeds, tables])
    return hashlib.sha256(content).hexdigest()


def _read_source(directory: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the relative path and the content of each file of a package's source, without hidden files and tests."""
    for file in find_files(directory, TEXT_SUFFIXES):
        path = file.relative_to(directory)
        is_code = file.suffix == ".py" or (file.parent / "__init__.py").is_file()
        is_omitted = any(part.startswith((".", "test_")) for part in path.parts)
        if (is_code or path.as_posix() in (PROJECT, README)) and not is_omitted:
            yield path.as_posix(), read_bytes(file, under=directory)


def _read_project(directory: Path) -> tuple[_Project, _Options]:
    path = directory / PROJECT
    data = parse_toml(read_text(path, under=directory), path)
    options = data.get("tool", {}).get("searchlab")
    if options is None:
        raise SearchlabError(
            f'{path} has no table [tool.searchlab]; add it with track = "as published", "tuned on dev" or "transfer", '
            f'tuned-on = [...] and citation = "..."'
        )
    return convert(data.get("project", {}), _Project, str(path)), convert(options, _Options, f"{path}, tool.searchlab")


# --- reading ----------------------------------------------------------------------------------------------------------


def read_bundle(path: Path) -> Bundle:
    """Read a bundle without executing or unpacking anything. Raises SearchlabError if it is not a proper one."""
    data = read_bytes(path, kind="the bundle", limit=MAX_BYTES)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = dict(_members(archive))
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, ValueError) as error:
        raise _refusal(path, f"it is not a ZIP archive that can be read ({error})") from None
    if SUBMISSION not in members:
        raise _refusal(path, f"it has no {SUBMISSION}")
    try:
        metadata = msgspec.json.decode(members.pop(SUBMISSION))
    except UNREADABLE as error:
        raise _refusal(path, f"its {SUBMISSION} is damaged: {error}") from None
    submission = convert(metadata, Submission, f"{SUBMISSION} of {path}")
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in members.items()}
    for name in sorted({*digests, *submission.files}):
        if digests.get(name) != submission.files.get(name):
            raise _refusal(path, f"its {name} is not the file that {SUBMISSION} lists, by its SHA-256")
    results: dict[Split, Trajectories] = {}
    for split in SPLITS:
        if content := members.pop(f"{split}{RUNS_SUFFIX}", b""):
            results[split] = decode_trajectories(Path(path, f"{split}{RUNS_SUFFIX}"), content)
    if not results:
        raise _refusal(path, "it has no results")
    source = {name.removeprefix(SOURCE): content for name, content in members.items()}
    return Bundle(path, submission, results, source, hashlib.sha256(data).hexdigest())


def _members(archive: zipfile.ZipFile) -> Iterator[tuple[str, bytes]]:
    """Yield the name and content of each file. Raises ValueError for anything that a bundle must not contain."""
    infos = archive.infolist()
    if len(infos) > MAX_FILES or sum(info.file_size for info in infos) > MAX_BYTES:
        raise ValueError(f"it unpacks to more than {MAX_FILES} files or {MAX_BYTES >> 20} MB")
    results = {SUBMISSION, *(f"{split}{RUNS_SUFFIX}" for split in SPLITS)}
    names: set[str] = set()
    for info in infos:
        name = info.filename
        parts = PurePosixPath(name).parts
        if name != "/".join(parts) or name.startswith("/") or {"..", "."} & {*parts} or not _NAME.fullmatch(name):
            raise ValueError(f"the name {one_line(name)!r} of a file is not a plain relative path")
        if name in names:
            raise ValueError(f"it contains {name} twice")
        names.add(name)
        if stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG):
            raise ValueError(f"its {name} is a link, a directory or a device, not a regular file")
        if name not in results and not (name.startswith(SOURCE) and name.endswith(TEXT_SUFFIXES)):
            raise ValueError(f"its {name} is neither a result nor a text file ({', '.join(TEXT_SUFFIXES)}) in {SOURCE}")
        with archive.open(info) as file:
            content = file.read(info.file_size + 1)
        if name not in results:
            try:
                content.decode()
            except UnicodeDecodeError:
                raise ValueError(f"its {name} is not text in UTF-8") from None
        yield name, content


def _refusal(path: Path, reason: str) -> SearchlabError:
    return SearchlabError(f"the bundle {path} is refused: {reason}; ask its authors for a new one")


# --- checks without executing anything --------------------------------------------------------------------------------


def bundle_problems(bundle: Bundle, suite: Suite) -> Iterator[str]:
    """Yield a sentence for each reason to refuse ``bundle``, from its data alone."""
    submission = bundle.submission
    digest = suite_digest(suite)
    if (submission.suite, submission.suite_digest) != (suite.spec.version, digest):
        yield (
            f"it was made with another suite: {submission.suite} with the digest {submission.suite_digest}, not "
            f"{suite.spec.version} with {digest}"
        )
        return
    if submission.name in suite.baseline_paths:
        yield f"it is called {submission.name}, as a baseline is"
    yield from _tuning_problems(submission, suite)
    yield from _code_problems(bundle)
    for split, result in bundle.results.items():
        yield from _result_problems(bundle, split, result, suite)
    dev, test = (bundle.results.get(split) for split in SPLITS)
    if dev and test:
        for name in ("policy", "cost_model", "features", "batch", "starts", "code"):
            if getattr(dev, name) != getattr(test, name):
                yield f"its {name} on the test split is not that on the dev split; only one strategy may be submitted"
    if test and test.test_uses not in (msgspec.UNSET, 1):
        yield f"its authors ran {test.test_uses} variants of it on the test split; the protocol allows one"


def _tuning_problems(submission: Submission, suite: Suite) -> Iterator[str]:
    allowed_names = {f"{suite.spec.version}/{name}" for name, split in split_of(suite).items() if split == "dev"}
    for name in submission.tuned_on:
        if name.partition("/")[0] == suite.spec.version and name not in (f"{suite.spec.version}/dev", *allowed_names):
            yield f"it was tuned on {one_line(name)}; only tables of {suite.spec.version}/dev may be used"
    if bool(submission.tuned_on) == (submission.track == "as published"):
        names = f"lists {one_line(', '.join(submission.tuned_on))}" if submission.tuned_on else "lists none"
        yield f"its class is {submission.track!r}, but tuned_on {names}"


def _code_problems(bundle: Bundle) -> Iterator[str]:
    """Yield problems with names of code, without importing it: all must be searchlab's or in the source."""
    modules = {PurePosixPath(name).parts[name.startswith("src/")].removesuffix(".py") for name in bundle.source}
    for reference in bundle.references:
        if reference.partition(":")[0].partition(".")[0] not in modules:
            yield f"it refers to the code {one_line(reference)!r}, which is not in its source"
    for result in bundle.results.values():
        for kind, plugin in ((POLICIES, result.policy), (COST_MODELS, result.cost_model)):
            name = bundle.submission.plugin(plugin).name if plugin else ":"
            point = kind.entry_points_by_name().get(name)
            if ":" not in name and (point is None or point.dist is None or point.dist.name != "searchlab"):
                yield f"it uses {one_line(name)!r}, which is neither part of searchlab nor in its source"


def _result_problems(bundle: Bundle, split: Split, result: Trajectories, suite: Suite) -> Iterator[str]:
    spec, recorded_tables = suite.spec, RecordedTables(suite)
    names = [entry.name for entry in spec.tables if entry.split == split]
    title = f"its result on {split}"
    if (result.suite, result.strategy) != (spec.version, bundle.submission.name):
        yield f"{title} is of {one_line(result.strategy)} on {one_line(result.suite)}"
    if omitted_tables := [name for name in names if name not in result.tables]:
        yield f"{title} leaves out {listed(omitted_tables)}"
    if foreign_tables := [name for name in result.tables if name not in names]:
        yield f"{title} contains {one_line(listed(foreign_tables))}, which are not tables of {split}"
    areas = bundle.submission.areas.get(split, {})
    for name in names:
        if name not in result.tables:
            continue
        table = recorded_tables[name]
        try:
            runs = result.runs_on(table.table).runs
            if (seeds := [run.seed for run in runs]) != list(range(spec.seeds)):
                yield f"{title} has the seeds {format_ranges(seeds)} on {name}, not 0 to {spec.seeds - 1}"
                continue
            for run in runs:
                table.check(result, run)
                trial_count = min(spec.trials, len(table.log.records))
                if len(run.configs) > spec.trials or (len(run.configs) < trial_count and not run.ended):
                    yield f"its run on {name} with seed {run.seed} has {len(run.configs)} trials, not {spec.trials}"
        except SearchlabError as error:
            yield str(error)
            continue
        area = float(table.areas(result).mean())
        if abs(area - areas.get(name, -1.0)) > 10**-DIGITS:
            yield f"its area on {name} is {areas.get(name)}, but {area:.{DIGITS}f} follows from its runs"
    if extra_tables := set(areas) - set(result.tables):
        yield f"it states areas on {one_line(listed(sorted(extra_tables)))}, where it has no runs"
