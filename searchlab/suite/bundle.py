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
from ..console import escape_to_one_line
from ..costmodel import COST_MODELS
from ..errors import SearchlabError
from ..files import find_files, read_bytes, read_text, write_file
from ..log.read import RESULT_FILE_NAME, RUNS_SUFFIX
from ..measure.suite import SPLITS, Name, Split, Suite, find_suite
from ..plugins import Plugin, find_unregistered_code
from ..policy import POLICIES
from ..schema import UNREADABLE, convert, parse_toml
from .trajectories import Trajectories, decode_trajectories, read_trajectories

BUNDLE_SUFFIX = ".zip"
SUBMISSION_FILE, SOURCE_FOLDER, PROJECT_FILE, README_FILE = "submission.json", "source/", "pyproject.toml", "README.md"

TEXT_SUFFIXES = (".py", ".toml", ".md", ".txt", ".json", ".csv")
"""The endings of source files. Everything in a bundle but its trajectories can be read by a person."""

MAX_FILE_COUNT, MAX_BYTES = 200, 32 << 20
_MEMBER_NAME = re.compile(r"[A-Za-z0-9_./+-]{1,200}")

AREA_DIGITS = 6
"""The number of decimal places of the areas in a submission."""

ShortText = Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]
Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
Track = Literal["as published", "tuned on dev", "transfer"]


class Submission(
    msgspec.Struct,
    frozen=True,
    rename={"format_version": "submission"},
    kw_only=True,
    forbid_unknown_fields=True,
):
    """The content of ``submission.json``.

    Attributes:
        format_version: The version of the format.
        name: The name of the strategy in tables, as in its trajectories.
        track: Whether its options are those of a publication or its defaults, were tuned on the development split, or
            whether it has learned from other workloads.
        tuned_on: The suites, splits or tables on which its options were tuned or from which it has learned.
        suite: The suite's version.
        suite_digest: The digest of the suite's protocol, split and tables; see :func:`compute_suite_digest`.
        plugins: For each name in the trajectories that the policy's package registers, its class (``module:Class``).
        areas: The mean area under the curve by split and table.
        files: The SHA-256 of every other file in the bundle.
    """

    format_version: Literal[1] = 1
    name: ShortText
    description: ShortText
    authors: Annotated[list[ShortText], msgspec.Meta(min_length=1, max_length=100)]
    licence: ShortText
    citation: ShortText
    track: Track
    tuned_on: list[ShortText] = []
    suite: Name
    suite_digest: Digest
    plugins: dict[str, str] = {}
    areas: dict[Split, dict[str, float]]
    files: dict[str, Digest]

    def resolve_plugin(self, plugin: Plugin) -> Plugin:
        """Return ``plugin`` with the name by which the bundle's source provides it."""
        return Plugin(self.plugins.get(plugin.name, plugin.name), plugin.options)


@dataclass(frozen=True)
class Bundle:
    """The content of a bundle.

    Attributes:
        source_files: The text files of the policy's source, by relative path.
        digest: The SHA-256 of the archive.
    """

    path: Path
    submission: Submission
    results: Mapping[Split, Trajectories]
    source_files: Mapping[str, bytes]
    digest: str

    @property
    def code_references(self) -> list[str]:
        """The code (``module:name``) to which the results refer, and which no installed package registers."""
        results = self.results.values()
        plugins = [self.submission.resolve_plugin(plugin) for result in results for plugin in result.plugins]
        names = [name for plugin in plugins for name in find_unregistered_code([plugin.name, plugin.options])]
        return list(dict.fromkeys(names))


# --- writing ----------------------------------------------------------------------------------------------------------


class _Author(msgspec.Struct):
    name: str = ""
    email: str = ""


class _SubmissionOptions(msgspec.Struct, forbid_unknown_fields=True, rename={"tuned_on": "tuned-on"}):
    """The table ``tool.searchlab`` of a ``pyproject.toml``."""

    track: Track
    citation: ShortText
    tuned_on: list[ShortText] = []


class _ProjectMetadata(msgspec.Struct, rename={"licence": "license", "entry_points": "entry-points"}):
    """What a submission needs of a ``pyproject.toml``."""

    authors: list[_Author] = []
    description: str = ""
    licence: str = ""
    entry_points: dict[str, dict[str, str]] = {}


def submit(package_dir: Path, bundle_path: Path, suite_path: str = "") -> Bundle:
    """Write the bundle of the package in ``package_dir`` to ``bundle_path``.

    Args:
        package_dir: The package: Python files, ``pyproject.toml``, and directories written by ``suite run --out``.
        bundle_path: The bundle.
        suite_path: The path of the suite, if it cannot be found by name.

    Raises:
        SearchlabError: If something is missing or would be refused.
    """
    project, options = _read_project(package_dir)
    results_by_path = {path: read_trajectories(path) for path in sorted(package_dir.glob(f"*/{RESULT_FILE_NAME}"))}
    if not results_by_path:
        raise SearchlabError(
            f"{package_dir} contains no results; run `searchlab suite run ... --out {package_dir / 'dev'}`"
        )
    first_result = next(iter(results_by_path.values()))
    suite = find_suite(suite_path or first_result.suite).select_split(None)
    results: dict[Split, Trajectories] = {}
    for result_path, result in results_by_path.items():
        splits = {suite.splits[name] for name in result.tables if name in suite.splits}
        (split, *more_splits) = splits or {SPLITS[0]}
        if more_splits or split in results:
            raise SearchlabError(f"{result_path} is a second result of the split {split}; remove it from {package_dir}")
        results[split] = result
    class_names = {name: value for group in project.entry_points.values() for name, value in group.items()}
    contents = {f"{split}{RUNS_SUFFIX}": read_bytes(path) for split, path in zip(results, results_by_path, strict=True)}
    contents |= {SOURCE_FOLDER + name: content for name, content in _read_source(package_dir)}
    submission = Submission(
        name=first_result.strategy,
        description=project.description,
        authors=[author.name or author.email for author in project.authors],
        licence=project.licence,
        citation=options.citation,
        track=options.track,
        tuned_on=options.tuned_on,
        suite=suite.spec.version,
        suite_digest=compute_suite_digest(suite),
        plugins={
            plugin.name: class_names[plugin.name] for plugin in first_result.plugins if plugin.name in class_names
        },
        areas={split: compute_mean_areas(suite, result) for split, result in results.items()},
        files={name: hashlib.sha256(content).hexdigest() for name, content in contents.items()},
    )
    submission_text = msgspec.json.format(msgspec.json.encode(submission), indent=2) + b"\n"
    write_file(bundle_path, pack_archive({SUBMISSION_FILE: submission_text, **contents}))
    bundle = read_bundle(bundle_path)
    if problems := list(find_bundle_problems(bundle, suite)):
        bundle_path.unlink()
        raise SearchlabError(f"the bundle would be refused: {'; '.join(problems)}")
    return bundle


def pack_archive(contents: Mapping[str, bytes]) -> bytes:
    """Return an archive of files with ``contents``; equal ones yield equal bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def compute_mean_areas(suite: Suite, result: Trajectories) -> dict[str, float]:
    """Return the mean area under the curve on each table, over the seeds."""
    areas = {name: result.compute_areas(suite.table(name)) for name in result.tables}
    return {name: round(float(table_areas.mean()), AREA_DIGITS) for name, table_areas in areas.items()}


def compute_suite_digest(suite: Suite) -> str:
    """Return a digest of the protocol, split and tables of ``suite``, but not of its baselines and cards."""
    tables = sorted((table.entry.name, table.entry.split, table.digest) for table in suite.tables)
    content = msgspec.json.encode([suite.spec.version, suite.spec.trials, suite.spec.seeds, tables])
    return hashlib.sha256(content).hexdigest()


def _read_source(package_dir: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the relative path and the content of each file of a package's source, without hidden files and tests."""
    for path in find_files(package_dir, TEXT_SUFFIXES):
        relative_path = path.relative_to(package_dir)
        is_code = path.suffix == ".py" or (path.parent / "__init__.py").is_file()
        is_omitted = any(part.startswith((".", "test_")) for part in relative_path.parts)
        if (is_code or relative_path.as_posix() in (PROJECT_FILE, README_FILE)) and not is_omitted:
            yield relative_path.as_posix(), read_bytes(path, under=package_dir)


def _read_project(package_dir: Path) -> tuple[_ProjectMetadata, _SubmissionOptions]:
    project_path = package_dir / PROJECT_FILE
    tables = parse_toml(read_text(project_path, under=package_dir), project_path)
    options = tables.get("tool", {}).get("searchlab")
    if options is None:
        raise SearchlabError(
            f'{project_path} has no table [tool.searchlab]; add it with track = "as published", "tuned on dev" or '
            f'"transfer", tuned-on = [...] and citation = "..."'
        )
    return (
        convert(tables.get("project", {}), _ProjectMetadata, str(project_path)),
        convert(options, _SubmissionOptions, f"{project_path}, tool.searchlab"),
    )


# --- reading ----------------------------------------------------------------------------------------------------------


def read_bundle(path: Path) -> Bundle:
    """Read a bundle without executing or unpacking anything. Raises SearchlabError if it is not a proper one."""
    archive_bytes = read_bytes(path, kind="the bundle", limit=MAX_BYTES)
    try:
        with zipfile.ZipFile(io.BytesIO(archive_bytes)) as archive:
            contents = dict(_read_members(archive))
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, ValueError) as error:
        raise _make_refusal(path, f"it is not a ZIP archive that can be read ({error})") from None
    if SUBMISSION_FILE not in contents:
        raise _make_refusal(path, f"it has no {SUBMISSION_FILE}")
    try:
        submission_fields = msgspec.json.decode(contents.pop(SUBMISSION_FILE))
    except UNREADABLE as error:
        raise _make_refusal(path, f"its {SUBMISSION_FILE} is damaged: {error}") from None
    submission = convert(submission_fields, Submission, f"{SUBMISSION_FILE} of {path}")
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    for name in sorted({*digests, *submission.files}):
        if digests.get(name) != submission.files.get(name):
            raise _make_refusal(path, f"its {name} is not the file that {SUBMISSION_FILE} lists, by its SHA-256")
    results: dict[Split, Trajectories] = {}
    for split in SPLITS:
        if content := contents.pop(f"{split}{RUNS_SUFFIX}", b""):
            results[split] = decode_trajectories(Path(path, f"{split}{RUNS_SUFFIX}"), content)
    if not results:
        raise _make_refusal(path, "it has no results")
    source = {name.removeprefix(SOURCE_FOLDER): content for name, content in contents.items()}
    return Bundle(path, submission, results, source, hashlib.sha256(archive_bytes).hexdigest())


def _read_members(archive: zipfile.ZipFile) -> Iterator[tuple[str, bytes]]:
    """Yield the name and content of each file. Raises ValueError for anything that a bundle must not contain."""
    member_infos = archive.infolist()
    if len(member_infos) > MAX_FILE_COUNT or sum(member.file_size for member in member_infos) > MAX_BYTES:
        raise ValueError(f"it unpacks to more than {MAX_FILE_COUNT} files or {MAX_BYTES >> 20} MB")
    result_names = {SUBMISSION_FILE, *(f"{split}{RUNS_SUFFIX}" for split in SPLITS)}
    earlier_names: set[str] = set()
    for member_info in member_infos:
        name = member_info.filename
        path_parts = PurePosixPath(name).parts
        is_relative = name == "/".join(path_parts) and not name.startswith("/") and not {"..", "."} & {*path_parts}
        if not is_relative or not _MEMBER_NAME.fullmatch(name):
            raise ValueError(f"the name {escape_to_one_line(name)!r} of a file is not a plain relative path")
        if name in earlier_names:
            raise ValueError(f"it contains {name} twice")
        earlier_names.add(name)
        if stat.S_IFMT(member_info.external_attr >> 16) not in (0, stat.S_IFREG):
            raise ValueError(f"its {name} is a link, a directory or a device, not a regular file")
        if name not in result_names and not (name.startswith(SOURCE_FOLDER) and name.endswith(TEXT_SUFFIXES)):
            suffixes = ", ".join(TEXT_SUFFIXES)
            raise ValueError(f"its {name} is neither a result nor a text file ({suffixes}) in {SOURCE_FOLDER}")
        with archive.open(member_info) as member:
            content = member.read(member_info.file_size + 1)
        if name not in result_names:
            try:
                content.decode()
            except UnicodeDecodeError:
                raise ValueError(f"its {name} is not text in UTF-8") from None
        yield name, content


def _make_refusal(path: Path, reason: str) -> SearchlabError:
    return SearchlabError(f"the bundle {path} is refused: {reason}; ask its authors for a new one")


# --- checks without executing anything --------------------------------------------------------------------------------


def find_bundle_problems(bundle: Bundle, suite: Suite) -> Iterator[str]:
    """Yield a sentence for each reason to refuse ``bundle``, from its data alone."""
    submission = bundle.submission
    own_digest = compute_suite_digest(suite)
    if (submission.suite, submission.suite_digest) != (suite.spec.version, own_digest):
        yield (
            f"it was made with another suite: {submission.suite} with the digest {submission.suite_digest}, not "
            f"{suite.spec.version} with {own_digest}"
        )
        return
    if submission.name in suite.baseline_paths:
        yield f"it is called {submission.name}, as a baseline is"
    yield from _find_tuning_problems(submission, suite)
    yield from _find_code_problems(bundle)
    for split, result in bundle.results.items():
        yield from _find_result_problems(bundle, split, result, suite)
    dev, test = (bundle.results.get(split) for split in SPLITS)
    if dev and test:
        for name in ("policy", "cost_model", "features", "batch", "start_salt", "code_digests"):
            if getattr(dev, name) != getattr(test, name):
                fact = name.replace("_", " ")
                yield f"its {fact} on the test split differs from that on the dev split; submit only one strategy"
    if test and test.test_uses not in (msgspec.UNSET, 1):
        yield f"its authors ran {test.test_uses} variants of it on the test split; the protocol allows one"


def _find_tuning_problems(submission: Submission, suite: Suite) -> Iterator[str]:
    allowed_names = {f"{suite.spec.version}/{name}" for name, split in suite.splits.items() if split == "dev"}
    for name in submission.tuned_on:
        if name.partition("/")[0] == suite.spec.version and name not in (f"{suite.spec.version}/dev", *allowed_names):
            yield f"it was tuned on {escape_to_one_line(name)}; only tables of {suite.spec.version}/dev may be used"
    if bool(submission.tuned_on) == (submission.track == "as published"):
        tuned_on_text = f"lists {escape_to_one_line(', '.join(submission.tuned_on) or 'none')}"
        yield f"its class is {submission.track!r}, but tuned_on {tuned_on_text}"


def _find_code_problems(bundle: Bundle) -> Iterator[str]:
    """Yield problems with names of code, without importing it: all must be searchlab's or in the source."""
    modules = {PurePosixPath(name).parts[name.startswith("src/")].removesuffix(".py") for name in bundle.source_files}
    for reference in bundle.code_references:
        if reference.partition(":")[0].partition(".")[0] not in modules:
            yield f"it refers to the code {escape_to_one_line(reference)!r}, which is not in its source"
    for result in bundle.results.values():
        for registry, plugin in ((POLICIES, result.policy), (COST_MODELS, result.cost_model)):
            if plugin is None:
                continue
            name = bundle.submission.resolve_plugin(plugin).name
            entry_point = registry.entry_points_by_name().get(name)
            package = entry_point.dist if entry_point else None
            if ":" not in name and (package is None or package.name != "searchlab"):
                yield f"it uses {escape_to_one_line(name)!r}, which is neither part of searchlab nor in its source"


def _find_result_problems(bundle: Bundle, split: Split, result: Trajectories, suite: Suite) -> Iterator[str]:
    spec = suite.spec
    table_names = [entry.name for entry in spec.tables if entry.split == split]
    result_title = f"its result on {split}"
    if (result.suite, result.strategy) != (spec.version, bundle.submission.name):
        yield f"{result_title} is of {escape_to_one_line(result.strategy)} on {escape_to_one_line(result.suite)}"
    if omitted_tables := [name for name in table_names if name not in result.tables]:
        yield f"{result_title} leaves out {listed(omitted_tables)}"
    if foreign_tables := [name for name in result.tables if name not in table_names]:
        yield f"{result_title} contains {escape_to_one_line(listed(foreign_tables))}, which are not tables of {split}"
    areas = bundle.submission.areas.get(split, {})
    for name in table_names:
        if name not in result.tables:
            continue
        table = suite.table(name)
        try:
            runs = result.runs_on(table).runs
            if (seeds := [run.seed for run in runs]) != list(range(spec.seeds)):
                yield f"{result_title} has the seeds {format_ranges(seeds)} on {name}, not 0 to {spec.seeds - 1}"
                continue
            for run in runs:
                trial_count = min(spec.trials, len(table.log.records))
                if len(run.configs) > spec.trials or (len(run.configs) < trial_count and not run.ended):
                    yield f"its run on {name} with seed {run.seed} has {len(run.configs)} trials, not {spec.trials}"
        except SearchlabError as error:
            yield str(error)
            continue
        area = float(result.compute_areas(table).mean())
        if abs(area - areas.get(name, -1.0)) > 10**-AREA_DIGITS:
            yield f"its area on {name} is {areas.get(name)}, but {area:.{AREA_DIGITS}f} follows from its runs"
    if extra_tables := set(areas) - set(result.tables):
        yield f"it states areas on {escape_to_one_line(listed(sorted(extra_tables)))}, where it has no runs"
