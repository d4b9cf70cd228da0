"""The manifest of a suite: the SHA-256 of each of its files, and of its split, which is frozen."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import msgspec

from ..errors import SearchlabError
from ..measure.suite import Suite, digest_of
from ..schema import UNREADABLE
from .cards import Card
from .trajectories import RecordedTable

FILE = "manifest.json"


class Manifest(msgspec.Struct, frozen=True):
    """What ``manifest.json`` holds. split: that of each table. split_digest, files: SHA-256; paths are relative."""

    version: str
    split: dict[str, str]
    split_digest: str
    files: dict[str, str]


def split_of(suite: Suite) -> dict[str, str]:
    return {entry.name: entry.split for entry in sorted(suite.spec.tables, key=lambda entry: entry.name)}


def split_digest(split: dict[str, str]) -> str:
    return hashlib.sha256(msgspec.json.encode(split, order="sorted")).hexdigest()


def files_of(suite: Suite) -> dict[str, Path]:
    """The files of a suite by relative path, but its manifest and hidden files."""
    paths = {path.relative_to(suite.directory).as_posix(): path for path in sorted(suite.directory.rglob("*"))}
    return {
        name: path
        for name, path in paths.items()
        if path.is_file() and name != FILE and not any(part.startswith(".") for part in name.split("/"))
    }


def read_manifest(suite: Suite) -> Manifest:
    """Raises SearchlabError if there is none, or if it is damaged."""
    path = suite.directory / FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=Manifest)
    except OSError as error:
        raise SearchlabError(
            f"cannot read the manifest {path}: {error.strerror}; `searchlab suite seal {suite.directory}` makes it"
        ) from None
    except UNREADABLE as error:
        raise SearchlabError(f"the manifest {path} is damaged: {error}; fetch it again") from None


def seal(suite: Suite, on_table: Callable[[str], None] = lambda name: None) -> Manifest:
    """Write the card of each table, and the manifest.

    Raises SearchlabError if a table is missing, if its times depend on when they were read, or if a table of an earlier
    manifest is in another split now.
    """
    split = split_of(suite)
    if (suite.directory / FILE).exists():
        frozen = read_manifest(suite).split
        moved = sorted(name for name in frozen if name in split and split[name] != frozen[name])
        if moved:
            raise SearchlabError(
                f"the split of {suite.name} is frozen, and {', '.join(moved)} would change sides; make a new version "
                f"of the suite"
            )
    cards = suite.directory / "cards"
    try:
        cards.mkdir(exist_ok=True)
        for old in cards.glob("*.md"):
            old.unlink()
        for table in suite.tables:
            on_table(table.name)
            card = Card(RecordedTable(table))
            if card.info.unsteady:
                raise SearchlabError(f"{table.name} is refused: {card.info.unsteady}; build this table again")
            (cards / f"{table.entry.name}.md").write_text(card.text(), encoding="utf-8")
        files = {name: digest_of(path) for name, path in files_of(suite).items()}
        manifest = Manifest(suite.spec.version, split, split_digest(split), files)
        text = msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"
        (suite.directory / FILE).write_bytes(text)
    except OSError as error:
        raise SearchlabError(f"cannot write in {suite.directory}: {error.strerror}") from None
    return manifest
