"""Conversion of plain data to settings, with errors that name the key, its value and the allowed values."""

from __future__ import annotations

import tomllib
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from .errors import SearchlabError, did_you_mean
from .options import accepts, check_option, describe_values, plain

UNREADABLE = (msgspec.DecodeError, UnicodeError, RecursionError)
"""The errors raised when decoding untrusted JSON: invalid JSON or types, invalid Unicode, and excessive nesting."""


def convert(data: Any, kind: Any, source: str) -> Any:
    """Convert ``data`` to the type ``kind``; NumPy numbers, arrays and ranges count as plain numbers and lists.

    Raises SearchlabError, which identifies the invalid part of ``source``.
    """
    try:
        data = plain(data)
        try:
            return msgspec.convert(data, kind)
        except msgspec.ValidationError as error:
            raise SearchlabError(f"{source}: {_explain(data, kind, '', str(error))}") from None
    except RecursionError:
        raise SearchlabError(f"{source} is nested too deeply, or contains itself") from None
    except UnicodeEncodeError as error:
        raise SearchlabError(f"{source}: {error.object!r} is not valid Unicode") from None


def parse_toml(text: str, path: Path) -> dict[str, Any]:
    """Parse the text of the TOML file ``path``. Raises SearchlabError if it is not valid TOML."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also an integer of more than 4,300 digits
        raise SearchlabError(f"{path} is not valid TOML: {error}") from None


def check_fields(settings: msgspec.Struct) -> None:
    """Raise ValueError if a field does not have its declared type, since msgspec checks only what it converts.

    Fields whose types :func:`~searchlab.options.check_option` cannot check may have any value.
    """
    for field in _fields(type(settings)):
        try:
            check_option(field.encode_name, getattr(settings, field.name), field.type)
        except SearchlabError as error:
            raise ValueError(str(error)) from None


_fields = cache(msgspec.structs.fields)
"""The fields of a class, cached because evaluating the annotations takes longer than all checks."""


def drop_unknown_keys(data: Any, kind: Any, where: str = "") -> tuple[Any, tuple[str, ...]]:
    """Remove the keys that the type ``kind`` does not have from plain data, at any depth.

    Args:
        data: The data, as decoded from JSON. It is not checked in any other respect.
        kind: The type to which the data is to be converted.
        where: The position of ``data``, such as ``".model"``, for the clauses.

    Returns:
        The rest of the data, and a clause for each removed key, with the nearest known one.
    """
    if not _contains_struct(kind):
        return data, ()
    structs = [struct for struct in _structs(kind) if isinstance(data, dict)]
    tags = [struct.__struct_config__.tag for struct in structs]
    if len(structs) > 1 and data.get("kind") in tags:
        structs = [structs[tags.index(data["kind"])]]
    if len(structs) != 1:
        items = [item for item in _items(kind) if isinstance(data, list)]
        if len(items) != 1:
            return data, ()
        pairs = [drop_unknown_keys(value, items[0], f"{where}[{index}]") for index, value in enumerate(data)]
        return [value for value, _ in pairs], tuple(clause for _, clauses in pairs for clause in clauses)
    fields = _field_types(structs[0])
    tag = structs[0].__struct_config__.tag_field
    known_fields: dict[str, Any] = {}
    unknown: list[str] = []
    for key, value in data.items():
        if key in fields:
            known_fields[key], clauses = drop_unknown_keys(value, fields[key], f"{where}.{key}")
            unknown += clauses
        elif key == tag:
            known_fields[key] = value
        else:
            hint = did_you_mean(key, fields)
            unknown.append(f"unknown field {f'{where}.{key}'.lstrip('.')!r}{hint if hint.endswith('?') else ''}")
    return known_fields, tuple(unknown)


def _explain(data: Any, kind: Any, where: str, text: str) -> str:
    """Describe what is wrong with ``data`` at ``where``, as specifically as possible, or return msgspec's ``text``."""
    parts: list[tuple[str, Any, Any]] = []  # the path, value and type of each part of the data
    if isinstance(data, dict) and (structs := _structs(kind)):
        position = f" in {where.lstrip('.')}" if where else ""
        tags = [struct.__struct_config__.tag for struct in structs]
        if "kind" in data and any(tags):
            if data["kind"] not in tags:
                return _wrong(data["kind"], f"{where}.kind", Literal[tuple(tags)], text)
            structs = [structs[tags.index(data["kind"])]]
        elif len(structs) > 1:
            return f"the key 'kind' is missing{position}; it must be {describe_values(Literal[tuple(tags)])}"
        fields = {f.encode_name: f for struct in structs for f in msgspec.structs.fields(struct)}
        for key, value in data.items():
            if key not in fields and not (any(tags) and key == "kind"):
                hint = _belongs_in(key, fields) or did_you_mean(key, fields)
                return f"unknown key {key!r}{position} (its value is {value!r}){hint}"
        for key, field in fields.items():
            if field.required and key not in data:
                return f"the key {key!r} is missing{position}"
        parts = [(f"{where}.{key}", data[key], field.type) for key, field in fields.items() if key in data]
    elif isinstance(data, list) and (items := _items(kind)):
        parts = [(f"{where}[{i}]", item, Union[tuple(items)]) for i, item in enumerate(data)]  # noqa: UP007
    for path, value, part_kind in parts:
        try:
            msgspec.convert(value, part_kind)
        except msgspec.ValidationError as error:
            return _explain(value, part_kind, path, str(error))
    return _wrong(data, where, kind, text)


def _wrong(data: Any, where: str, kind: Any, text: str) -> str:
    text = text.partition(" - at `$")[0]
    problem = text[0].lower() + text[1:]
    hint = f"; it must be {words}" if (words := describe_values(kind)) and not accepts(data, kind) else f": {problem}"
    if isinstance(data, str):
        with suppress(msgspec.DecodeError, msgspec.ValidationError):  # "64"
            number = msgspec.json.decode(data, type=float | int)
            hint = f"; write the number without quotes: {msgspec.convert(number, kind)}"
        with suppress(msgspec.ValidationError):
            msgspec.convert([data], kind)
            hint = f"; write a list: [{msgspec.json.encode(data).decode()}]"
    if isinstance(data, list) and data:
        with suppress(msgspec.ValidationError):
            msgspec.convert(data[0], kind)
            hint = f"; specify only one, such as {msgspec.json.encode(data[0]).decode()}"
    return f"{where.lstrip('.')} cannot be {data!r}{hint}" if where else problem


def _belongs_in(key: str, fields: dict[str, Any]) -> str:
    """Return ``"; it belongs in an entry of 'policies'"`` if structs in ``fields`` have the key, or "" otherwise."""
    titles = []
    for name, field in fields.items():
        for title, kinds in ((repr(name), [field.type]), (f"an entry of {name!r}", _items(field.type))):
            if any(key in (f.encode_name for f in msgspec.structs.fields(s)) for k in kinds for s in _structs(k)):
                titles.append(title)
    return f"; it belongs in {' or '.join(titles)}" if titles else ""


def _alternatives(kind: Any) -> list[Any]:
    if get_origin(kind) is Annotated:
        return _alternatives(get_args(kind)[0])
    if get_origin(kind) not in (Union, UnionType):
        return [kind]
    return [alternative for arg in get_args(kind) for alternative in _alternatives(arg)]


@cache
def _structs(kind: Any) -> list[type[msgspec.Struct]]:
    return [t for t in _alternatives(kind) if isinstance(t, type) and issubclass(t, msgspec.Struct)]


@cache
def _items(kind: Any) -> list[Any]:
    """Return the item types if ``kind`` can be a list or a homogeneous tuple."""
    return [get_args(t)[0] for t in _alternatives(kind) if get_origin(t) in (list, tuple)]


@cache
def _contains_struct(kind: Any) -> bool:
    """Return whether values of the type ``kind`` may contain structs, whose fields are known."""
    return bool(_structs(kind)) or any(map(_contains_struct, _items(kind)))


@cache
def _field_types(struct: type[msgspec.Struct]) -> dict[str, Any]:
    return {field.encode_name: field.type for field in msgspec.structs.fields(struct)}
