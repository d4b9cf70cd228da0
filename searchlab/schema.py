"""Reading settings from plain data; an error names the key, its value, and the values it may have."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import inspect

from .errors import SearchlabError, did_you_mean

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding JSON from outside raises: it is no JSON, or of wrong types; it is no Unicode; it is nested too deep."""


def explained(data: Any, kind: Any, source: str) -> Any:
    """``data`` as a ``kind``. Raises SearchlabError, which names the wrong place in ``source``."""
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise SearchlabError(f"{source}: {_explain(str(error), data, kind)}") from None


def _explain(text: str, data: Any, kind: Any) -> str:
    text, _, path = text.partition(" - at `$")
    steps = re.findall(r"\.?([^.\[\]`]+)|\[(\d+)\]", path)
    keys: list[str | int] = [int(index) if index else name for name, index in steps if name != "..."]
    value, types = data, _members(inspect.type_info(kind), data)
    for key in keys:
        types = [inner for t in types for inner in _members(_child(t, key), _get(value, key))]
        value = _get(value, key)
    where = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys).lstrip(".")
    if match := re.search(r"unknown field `(.+)`", text):
        fields = sorted({f.encode_name for t in types if isinstance(t, inspect.StructType) for f in t.fields})
        inside = f" in {where}" if where else ""
        hint = _belongs_in(match[1], types) or did_you_mean(match[1], fields)
        return f"unknown key {match[1]!r}{inside} (its value is {_get(value, match[1])!r}){hint}"
    if match := re.search(r"missing required field `(.+)`", text):
        return f"the key {match[1]!r} is missing{f' in {where}' if where else ''}"
    allowed = [str(v) for t in types if isinstance(t, inspect.LiteralType) for v in t.values]
    if keys and keys[-1] == "kind":
        allowed = [str(tag) for tag in _tags(kind, keys[:-1], data)]
    hint = f"; it may be {' or '.join(repr(v) for v in allowed)}" if allowed else f": {text[0].lower()}{text[1:]}"
    return f"{where} cannot be {value!r}{hint}" if where else f"{text[0].lower()}{text[1:]}"


def _belongs_in(key: str, types: list[inspect.Type]) -> str:
    """``"; it belongs in an entry of 'policies'"`` if structs within ``types`` have the key ``key``, else nothing."""
    places = []
    for field in (field for t in types if isinstance(t, inspect.StructType) for field in t.fields):
        listed = [item for member in _members(field.type, None) if (item := _child(member, 0)) is not None]
        inner = [t for kind in (field.type, *listed) for t in _members(kind, None)]
        if any(key == f.encode_name for t in inner if isinstance(t, inspect.StructType) for f in t.fields):
            places.append(f"an entry of {field.encode_name!r}" if listed else repr(field.encode_name))
    return f"; it belongs in {' or '.join(places)}" if places else ""


def _get(value: Any, key: str | int) -> Any:
    try:
        return value[key]
    except (KeyError, IndexError, TypeError):
        return None


def _members(kind: inspect.Type | None, value: Any) -> list[inspect.Type]:
    """The alternatives of a type; among tagged structs, only the one that ``value`` names."""
    types = list(kind.types) if isinstance(kind, inspect.UnionType) else [kind] if kind else []
    tag = _get(value, "kind")
    chosen: list[inspect.Type] = [
        t for t in types if isinstance(t, inspect.StructType) and t.tag is not None and t.tag == tag
    ]
    return chosen or types


def _child(kind: inspect.Type, key: str | int) -> inspect.Type | None:
    if isinstance(kind, inspect.StructType):
        return next((field.type for field in kind.fields if field.encode_name == key), None)
    if isinstance(kind, inspect.ListType):
        return kind.item_type
    return kind.value_type if isinstance(kind, inspect.DictType) else None


def _tags(kind: Any, keys: list[str | int], data: Any) -> list[Any]:
    types: list[inspect.Type] = [inspect.type_info(kind)]
    for key in keys:
        types = [inner for t in types for inner in _members(_child(t, key), None)]
    types = [inner for t in types for inner in _members(t, None)]
    return [t.tag for t in types if isinstance(t, inspect.StructType) and t.tag is not None]
