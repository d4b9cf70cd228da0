"""The study that runs were made from, kept beside their logs: a copy of its file, for a reader of the report."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

TOML, JSON = "study-as-run.toml", "study-as-run.json"
"""Its name: of a copy of a study file, and of a study that a script made. They are no names that a user gives."""

_LEVELS = 4
"""How many directories above a log its study may be: RESULTS/workload/space/strategy/seed0.jsonl."""
_MOST = 100_000  # bytes that are read


def keep_study(directory: Path, name: str, text: str) -> None:
    """Write ``text`` to the file ``name`` in ``directory``, unless it is there.

    A directory that cannot be written to is left as it is: all of its runs may be complete.
    """
    path = directory / name
    with suppress(OSError):
        if not path.exists() or path.read_text(encoding="utf-8", errors="replace") != text:
            directory.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")


def kept_studies(logs: Iterable[Path]) -> list[tuple[Path, str]]:
    """The studies kept in the directories above ``logs``, in the order of their paths: each with its text."""
    places = {above for parent in {log.parent for log in logs} for above in [parent, *parent.parents][:_LEVELS]}
    found = sorted(place / name for place in places for name in (TOML, JSON) if (place / name).is_file())
    texts = []
    for path in found:
        with suppress(OSError), path.open("rb") as file:
            texts.append((path, file.read(_MOST).decode("utf-8", errors="replace")))
    return texts
