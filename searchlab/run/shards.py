"""Parts of a study, for machines that share nothing: each makes its part, and the logs are put together."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

from ..errors import SearchlabError
from .plan import Run


def in_shard(runs: Sequence[Run], part: int, parts: int) -> list[Run]:
    """The runs of the ``part``-th (from 1) of ``parts`` shards, in their order.

    The shards of a study are as large as each other, but for one run, and each run is in one of them. Runs are dealt
    out in the order of a hash of their names, so that no shard has the slow strategies.
    """
    if not 1 <= part <= parts:
        raise SearchlabError(f"the shard must be i/n with i from 1 to n, not {part}/{parts}")
    order = sorted(runs, key=lambda run: hashlib.sha256(run.log.as_posix().encode()).digest())
    own = {run.log for run in order[part - 1 :: parts]}
    return [run for run in runs if run.log in own]


def parse_shard(text: str) -> tuple[int, int]:
    """``"2/8"`` as (2, 8). Raises SearchlabError."""
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    if found is None:
        raise SearchlabError(f"the shard must be i/n, as 1/4, not {text!r}")
    return int(found[1]), int(found[2])
