"""``searchlab schema``: the form of study files."""

from __future__ import annotations

import json


def schema() -> None:
    """Print the JSON Schema of study files."""
    import msgspec

    from ..run.spec import StudySpec

    print(json.dumps(msgspec.json.schema(StudySpec), indent=2))
