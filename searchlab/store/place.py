"""The location of a store, and how an entry of a warm start names one."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import SearchlabError

VARIABLE = "SEARCHLAB_STORE"
"""The environment variable that names the default store."""

WORD = "store"
"""The entry of a warm start that is the default store; with ``:PATH`` it is the store at that path."""


def default_path() -> Path:
    """The store that is meant where none is named: ``SEARCHLAB_STORE``, or ``searchlab/store.db`` in the data folder.

    The data folder is ``XDG_DATA_HOME`` if it is an absolute path, else ``~/.local/share`` (XDG Base Directory
    Specification 0.8). Raises SearchlabError if the user has no home.
    """
    if named := os.environ.get(VARIABLE):
        return Path(named)
    data = Path(os.environ.get("XDG_DATA_HOME", ""))
    if not data.is_absolute():
        try:
            data = Path.home() / ".local" / "share"
            if not os.environ.get("HOME", "set"):  # Path.home() is then the directory /
                raise RuntimeError
        except RuntimeError:
            raise SearchlabError(f"this user has no home directory for a store; name a file in {VARIABLE}") from None
    return data / "searchlab" / "store.db"


def named_store(entry: str, base: Path) -> Path | None:
    """The path of the store that ``entry`` of a warm start names; None if it is the path of logs.

    base: the directory from which relative paths start. Raises SearchlabError where ``"store"`` may mean both.
    """
    word, colon, path = entry.partition(":")
    if word != WORD:
        return None
    if not colon and (base / WORD).exists():
        raise SearchlabError(
            f'the warm start "{WORD}" is the default store, and {base / WORD} exists as well; write "./{WORD}" for '
            f'the logs there, or "{WORD}:" for the default store'
        )
    return base / path if path else default_path()
