"""``searchlab schema``: the form of study files."""

from __future__ import annotations

import inspect
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..plugins import PluginKind


def schema() -> None:
    """Print the JSON Schema of study files, with the options of every plug-in that is installed."""
    import msgspec

    from ..costmodel import COST_MODELS
    from ..executors.contract import EXECUTORS
    from ..policy import POLICIES
    from ..run.study import StudySpec
    from ..space import SPACES

    whole = msgspec.json.schema(StudySpec)
    kinds: dict[str, list[PluginKind[Any]]] = {
        "NamedPolicy": [POLICIES], "Named": [SPACES], "NamedCostModel": [COST_MODELS],
        "NamedPlugin": [COST_MODELS, EXECUTORS],
    }  # fmt: skip
    for name, of_entry in kinds.items():
        whole["$defs"][name]["allOf"] = [rule for kind in of_entry for rule in _rules(kind)]
    print(json.dumps(whole, indent=2))


def _rules(kind: PluginKind[Any]) -> list[dict[str, Any]]:
    """What the options of an entry may be, by the name of its plug-in. One that cannot be imported has no rule."""
    rules = []
    for name in kind.installed():
        try:
            options = kind.options_of(kind.load(name))
        except Exception:  # whatever a plug-in raises
            continue
        takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in options.values())
        named = {option: _values(p) for option, p in options.items() if p.kind is not inspect.Parameter.VAR_KEYWORD}
        taken = {"properties": named, "additionalProperties": takes_any}
        rules.append({"if": {"properties": {"name": {"const": name}}}, "then": {"properties": {"options": taken}}})
    return rules


def _values(parameter: inspect.Parameter) -> dict[str, Any]:
    import msgspec

    from ..options import in_words

    values = msgspec.json.schema(parameter.annotation) if in_words(parameter.annotation) else {}
    plain = isinstance(parameter.default, bool | int | float | str | None)
    return {**values, "default": parameter.default} if plain else values
