"""Publishing results on a static site, each with its report, its data, and instructions for citing and verifying it.

All links are relative, so the site can be opened from a directory or served by any web server.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

import msgspec
from rich import filesize

from ..errors import SearchlabError
from ..files import copy_file, find_files, read_bytes, read_text, real_path, write_file
from ..log.cache import CACHE_FILE_NAME
from ..log.plan import JSON_COPY_NAME, PLAN_FILE_NAME, TOML_COPY_NAME
from ..log.read import find_logs, make_no_logs_error
from ..schema import UNREADABLE
from .comparison import Comparison
from .page.render import describe_measurement, make_environment, make_page_assets
from .read import REPORT_DIR, read_runs
from .runs import ComparedRuns
from .words import counted

LEADERBOARD_PREFIX = "leaderboard-"
"""The beginning of the names of a site's leaderboards."""

CARD_NAME, SUMS_NAME, LOGS_NAME = "card.json", "SHA256SUMS", "logs"
"""Names in a result's folder: the file for its entry in the index, the digests of its files, and the folder of logs."""


class IndexEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The entry of a result in the index of a site.

    Attributes:
        title: The name of the result.
        answers: The answers to the study's questions.
        date: When the result was published.
        measured: When its runs were performed, if their logs record this.
        machine: The machine that performed the runs.
        size: The numbers of strategies, workloads and runs, in words.
    """

    title: str
    answers: list[str]
    date: str
    measured: str = ""
    machine: str = ""
    size: str = ""


@dataclass(frozen=True)
class Publication:
    """A result to publish.

    Attributes:
        title: The name of the result, from which the name of its folder is derived.
        commands: Commands that verify the result if they are run in its folder.
        runs: The runs. If None, the logs in ``directory`` are copied to the site and read there.
        directory: The study's directory.
        files: Other files to copy.
        machine: The machine that performed the runs, by default the one that the logs record.
        cite: Sentences on other works to cite.
        about: Paragraphs on the result.
        source: The text of source files to show, by name.
        verified: Sentences on what was verified.
    """

    title: str
    commands: Sequence[str]
    runs: ComparedRuns | None = None
    directory: Path | None = None
    files: Sequence[Path] = ()
    machine: str = ""
    cite: Sequence[str] = ()
    about: Sequence[str] = ()
    source: Mapping[str, str] = field(default_factory=dict)
    verified: Sequence[str] = ()

    @property
    def folder(self) -> str:
        return re.sub(r"[^A-Za-z0-9.]+", "-", self.title).strip("-.") or "result"


def make_publication(directory: Path) -> Publication:
    """Return the result of the study or logs in ``directory``. Raises SearchlabError if it does not exist."""
    if not directory.is_dir():
        raise SearchlabError(f"the directory {directory} to publish does not exist; pass one that contains logs")
    commands = [f"searchlab report {LOGS_NAME} --out again", f"searchlab log check {LOGS_NAME}"]
    if (directory / TOML_COPY_NAME).is_file():
        commands.append(f"searchlab run {LOGS_NAME}/{TOML_COPY_NAME} --out repeated")
    return Publication(real_path(directory).name, commands, directory=directory)


def publish(
    out: Path, publications: Iterable[Publication], write_leaderboards: Callable[[Path], object] = lambda site: None
) -> list[IndexEntry]:
    """Write results, and an index of all results, to a site.

    A result replaces an earlier one with the same title. Other results on the site are kept.

    Args:
        out: The directory of the site.
        publications: The results to write, each with its title.
        write_leaderboards: A function that writes the leaderboards, once the site contains all results.

    Returns:
        The entries of all results on the site, newest first.

    Raises:
        SearchlabError: If a result cannot be read, if two would share a folder, or if ``out`` cannot be used as a site.
    """
    publications = list(publications)
    folder_counts = Counter(publication.folder for publication in publications)
    if shared_folders := [folder for folder, count in folder_counts.items() if count > 1]:
        raise SearchlabError(
            f"two results would be written to {out / shared_folders[0]}; rename one of their directories"
        )
    is_site = (out / "index.html").is_file() or bool(_find_entry_paths(out))
    if out.exists() and not (out.is_dir() and (is_site or not any(out.iterdir()))):
        raise SearchlabError(f"{out} is neither empty nor a site; choose another directory")
    try:
        out.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".", dir=out) as temporary:
            new_folders = [_write(Path(temporary, publication.folder), publication) for publication in publications]
            for folder in new_folders:
                if (out / folder.name).exists():
                    shutil.rmtree(out / folder.name)  # from an earlier publication
                folder.replace(out / folder.name)
        entries = {path.parent.name: _read_entry(path) for path in _find_entry_paths(out)}
        entries = dict(sorted(entries.items(), key=lambda folder_and_entry: folder_and_entry[1].date, reverse=True))
        write_leaderboards(out)
        boards = [path.stem for path in sorted(out.glob(f"{LEADERBOARD_PREFIX}*.html"))]
        _render(out / "index.html", "index", title="Results", entries=entries, boards=boards)
    except OSError as error:
        raise SearchlabError(f"cannot write the site {out}: {error.strerror}") from None
    return list(entries.values())


def _find_entry_paths(out: Path) -> list[Path]:
    return [path for path in sorted(out.glob(f"*/{CARD_NAME}")) if not path.parent.name.startswith(".")]


def _write(folder: Path, publication: Publication) -> Path:
    """Write a result to the new directory ``folder``, and return it."""
    folder.mkdir()
    runs = publication.runs
    if runs is None:
        assert publication.directory is not None
        runs = read_runs(_copy_logs(publication.directory, folder / LOGS_NAME))  # so that the page links to the copies
        (folder / LOGS_NAME / CACHE_FILE_NAME).unlink(missing_ok=True)
    for path in publication.files:
        copy_file(path, folder / path.name, under=path.parent)
    comparison = Comparison(runs)
    comparison.save(folder)
    entry = _make_entry(publication, comparison)
    write_file(folder / CARD_NAME, msgspec.json.encode(entry))
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != CARD_NAME)
    digests = {path.relative_to(folder).as_posix(): hashlib.sha256(read_bytes(path)).hexdigest() for path in paths}
    sums_text = "".join(f"{digest}  {name}\n" for name, digest in digests.items())
    write_file(folder / SUMS_NAME, sums_text)
    data_names = [name for name in digests if not name.startswith(f"{LOGS_NAME}/")]
    _render(
        folder / "index.html",
        "result",
        title=entry.title,
        entry=entry,
        publication=publication,
        files=[(name, quote(name), filesize.decimal((folder / name).stat().st_size)) for name in data_names],
        logs=len(digests) - len(data_names),
        commands=[
            f"pip install .  # in a checkout of searchlab {version('searchlab')}",
            f"sha256sum --check {SUMS_NAME}",
            *publication.commands,
        ],
        version=version("searchlab"),
        digest=hashlib.sha256(sums_text.encode()).hexdigest(),
        key=f"{publication.folder.lower()}-{entry.date[:4]}",
    )
    return folder


def _copy_logs(directory: Path, target_dir: Path) -> Path:
    """Copy the logs, plans and study files in ``directory``, but no reports, and return the target."""
    if not (logs := find_logs(directory)):
        raise make_no_logs_error([directory])
    for log in logs:
        relative_path = log.relative_to(directory)
        if REPORT_DIR not in relative_path.parts[:-1]:
            copy_file(log, target_dir / relative_path, under=directory)
    for path in find_files(directory, (PLAN_FILE_NAME, TOML_COPY_NAME, JSON_COPY_NAME)):
        copy_path = target_dir / path.relative_to(directory)
        if path.name in (PLAN_FILE_NAME, TOML_COPY_NAME, JSON_COPY_NAME) and copy_path.parent.is_dir():
            copy_file(path, copy_path, under=directory)
    return target_dir


def _make_entry(publication: Publication, comparison: Comparison) -> IndexEntry:
    summary = comparison.summary
    answers = [answer.sentence for answer in summary.answers]
    if not answers:
        verdicts = [workload_summary.verdict for workload_summary in summary.workloads]
        answers = [summary.overall.verdict] if summary.overall else verdicts
    runs = [run for workload_runs in comparison.runs.values() for run in workload_runs.runs]
    measurement = describe_measurement(runs)
    workloads = counted(len(comparison.workloads), "workload")
    return IndexEntry(
        title=publication.title,
        answers=answers[:3],
        date=time.strftime("%Y-%m-%d"),
        measured=measurement.get("made on", ""),
        machine=publication.machine or measurement.get("host", ""),
        size=f"{len(comparison.strategies)} strategies, {workloads}, {counted(len(runs), 'run')}",
    )


def _read_entry(path: Path) -> IndexEntry:
    try:
        return msgspec.json.decode(read_text(path, under=path.parent), type=IndexEntry)
    except UNREADABLE as error:
        raise SearchlabError(f"{path} is damaged: {error}; remove its folder and publish the result again") from None


def _render(path: Path, template: str, **fields: Any) -> None:
    page = make_environment().get_template(f"{template}.html.jinja").render(make_page_assets() | fields)
    write_file(path, page)
