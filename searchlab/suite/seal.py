"""Sealing a suite: writing its cards and metadata, and a manifest with the digest of each file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from ..errors import SearchlabError
from ..files import FileMissing, read_text, write_file
from ..measure.suite import MANIFEST_FILE, Suite, compute_file_digest
from ..schema import UNREADABLE
from .cards import TableCard
from .dataset import make_dataset_texts


class Manifest(msgspec.Struct, frozen=True):
    """The content of ``manifest.json``.

    Attributes:
        split: The split of each table.
        files: The SHA-256 of each file, by relative path.
    """

    version: str
    split: Mapping[str, str]
    files: dict[str, str]


def list_files(suite: Suite) -> dict[str, Path]:
    """Return the files of a suite by relative path, except its manifest and hidden files."""
    paths_by_name = {path.relative_to(suite.directory).as_posix(): path for path in sorted(suite.directory.rglob("*"))}
    return {
        name: path
        for name, path in paths_by_name.items()
        if path.is_file() and name != MANIFEST_FILE and not any(part.startswith(".") for part in name.split("/"))
    }


def read_manifest(suite: Suite) -> Manifest:
    """Read the manifest of ``suite``. Raises SearchlabError if it is missing or damaged."""
    path = suite.directory / MANIFEST_FILE
    try:
        return msgspec.json.decode(read_text(path, under=suite.directory, kind="the manifest"), type=Manifest)
    except FileMissing as error:
        raise SearchlabError(f"{error}; `searchlab suite seal {suite.directory}` creates it") from None
    except UNREADABLE as error:
        raise SearchlabError(f"the manifest {path} is damaged: {error}; fetch it again") from None


def seal(suite: Suite, on_table: Callable[[str], None] = lambda name: None) -> Manifest:
    """Seal ``suite`` by writing each table's card, the suite's own card and metadata, and the manifest.

    Raises:
        SearchlabError: If a table is missing, if its times depend on when they were measured, or if a table would move
            from one split to the other.
    """
    split = suite.splits
    if (suite.directory / MANIFEST_FILE).exists():
        sealed_split = read_manifest(suite).split
        if moved_tables := sorted(name for name in sealed_split if name in split and split[name] != sealed_split[name]):
            raise SearchlabError(
                f"the split of {suite.name} is frozen, but {', '.join(moved_tables)} would move to the other side; "
                f"create a new version of the suite"
            )
    cards_dir = suite.directory / "cards"
    try:
        cards_dir.mkdir(exist_ok=True)
        for card_path in cards_dir.glob("*.md"):
            card_path.unlink()
        table_cards = []
        for table in suite.tables:
            on_table(table.name)
            card = TableCard(table)
            if card.info.unsteady_reason:
                raise SearchlabError(f"{table.name} cannot be sealed: {card.info.unsteady_reason}; rebuild this table")
            write_file(cards_dir / f"{table.entry.name}.md", card.to_markdown(), under=suite.directory)
            table_cards.append(card)
        for name, text in make_dataset_texts(suite, table_cards).items():
            write_file(suite.directory / name, text, under=suite.directory)
        digests = {name: compute_file_digest(path) for name, path in list_files(suite).items()}
        manifest = Manifest(suite.spec.version, split, digests)
        manifest_bytes = msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"
        write_file(suite.directory / MANIFEST_FILE, manifest_bytes, under=suite.directory, durable=True)
    except OSError as error:
        raise SearchlabError(f"cannot write to {suite.directory}: {error.strerror}") from None
    return manifest
