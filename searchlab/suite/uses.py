"""How often the test split of a suite was used: its protocol asks for once, by a strategy that is finished."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from ..errors import SearchlabError
from ..store.store import default_path
from .trajectories import Trajectories

FILE = "test-splits.jsonl"
"""The file beside the store of this user; each line is a strategy that was run over a test split."""


class Use(msgspec.Struct, frozen=True):
    """strategy: a digest of the policy, its options, cost model, features and batch."""

    suite: str
    strategy: str
    label: str


def count_use(result: Trajectories, path: Path | None = None) -> int:
    """Note that the strategy of ``result`` was run over the test split; give how many strategies were, with this one.

    The same strategy counts once, however often it is run. Raises SearchlabError if the file cannot be written.

    Args:
        result: The runs.
        path: Where uses are noted, by default in the data folder of this user.
    """
    path = path or default_path().with_name(FILE)
    said = msgspec.json.encode([result.policy, result.cost_model, result.features, result.batch])
    use = Use(result.suite, hashlib.sha256(said).hexdigest()[:16], result.strategy)
    known: set[str] = set()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a+b") as file:
            file.seek(0)
            for line in file.read().splitlines():
                try:
                    earlier = msgspec.json.decode(line, type=Use)
                except msgspec.MsgspecError:  # torn
                    continue
                if earlier.suite == use.suite:
                    known.add(earlier.strategy)
            if use.strategy not in known:
                file.write(b"\n" * (file.tell() > 0 and not _ends_line(path)) + msgspec.json.encode(use) + b"\n")
    except OSError as error:
        raise SearchlabError(f"cannot note the use of a test split in {path}: {error.strerror}") from None
    return len(known | {use.strategy})


def _ends_line(path: Path) -> bool:
    return path.read_bytes()[-1:] in (b"", b"\n")
