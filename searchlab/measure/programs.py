"""The code of programs in a folder, so that they can be timed again later without being built again."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ..errors import SearchlabError
from .code import Objects


class Programs:
    """The object files of programs, by their hash: one file a program. Raises SearchlabError where none can be kept."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SearchlabError(f"cannot keep programs in {self.folder}: {error.strerror}") from None

    def __contains__(self, program: str) -> bool:
        return self._file(program).exists()

    def __getitem__(self, program: str) -> Objects:
        return tuple(msgspec.msgpack.decode(self._file(program).read_bytes(), type=list[bytes]))

    def __setitem__(self, program: str, objects: Objects) -> None:
        file = self._file(program)
        part = file.with_suffix(".part")  # a kill leaves no half of a program
        try:
            part.write_bytes(msgspec.msgpack.encode(list(objects)))
            part.replace(file)
        except OSError as error:
            raise SearchlabError(f"cannot keep a program in {self.folder}: {error.strerror}; free space") from None

    def _file(self, program: str) -> Path:
        return self.folder / f"{program}.objects"
