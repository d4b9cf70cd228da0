"""A journal is a file of JSON lines to which a single process appends, so that it can later continue its work."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from ..errors import SearchlabError
from ..files import FileMissing, read_bytes
from ..schema import UNREADABLE
from .lease import LeasedFile

Entry = TypeVar("Entry", bound=msgspec.Struct)


def read_journal(
    path: Path, entry_type: type[Entry], header_type: type[Any] | None = None
) -> tuple[Any, list[Entry], list[int]]:
    """Return a journal's header, its entries, and the size of the file up to each of them, in bytes.

    Args:
        path: The journal. If there is no such file, the journal is empty.
        entry_type: The type of the entries.
        header_type: The type of the first line if it is not an entry.

    Raises:
        SearchlabError: If the file cannot be read, or a line is damaged. A last line without an end is left out,
            because that is how a process that is killed leaves it.
    """
    try:
        lines = read_bytes(path).split(b"\n")[:-1]
    except FileMissing:
        lines = []
    decoded_lines: list[Any] = []
    ends = [0]
    for number, line in enumerate(lines, 1):
        try:
            decoded_lines.append(
                msgspec.json.decode(line, type=header_type if header_type and number == 1 else entry_type)
            )
        except UNREADABLE as error:
            raise SearchlabError(f"{path}, line {number} is damaged: {error}; remove the file") from None
        ends.append(ends[-1] + len(line) + 1)
    if header_type is None:
        return None, decoded_lines, ends
    return next(iter(decoded_lines), None), decoded_lines[1:], ends[1:] or [0]


class Journal(Generic[Entry]):
    """A journal that this process writes. No other process can write it until it is closed.

    Args:
        path: The file, which is created if it does not exist.
        entry_type: The type of the entries.
        header: The first line of a new journal, or None if it has none.

    Attributes:
        header: The header in the file.
        entries: All entries.

    Raises:
        SearchlabError: If a line is damaged, the file cannot be written, or another process is writing it.
    """

    def __init__(self, path: Path, entry_type: type[Entry], header: msgspec.Struct | None = None) -> None:
        self.path = path
        self._file = LeasedFile(path)
        try:
            self.header, self.entries, self._entry_ends = read_journal(
                path, entry_type, type(header) if header else None
            )
            if header is not None and self.header is None:
                self.header = header
                self._entry_ends = [self._write(header, 0)]
        except BaseException:
            self._file.close()
            raise

    def append(self, entry: Entry) -> None:
        """Append an entry, and force it to disk."""
        self._entry_ends.append(self._write(entry, self._entry_ends[-1]))
        self.entries.append(entry)

    def replace_last(self, entry: Entry) -> None:
        """Replace the last entry of a journal that has not been written since it was opened."""
        self._entry_ends.pop()
        self.entries.pop()
        self.append(entry)

    def close(self) -> None:
        self._file.close()

    def _write(self, line: msgspec.Struct, position: int) -> int:
        data = msgspec.json.encode(line) + b"\n"
        self._file.write(data, position)
        self._file.sync()
        return position + len(data)
