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


def convert(data: Any, expected_type: Any, source: str) -> Any:
    """Convert ``data`` to ``expected_type``; NumPy numbers, arrays and ranges count as plain numbers and lists.

    Raises SearchlabError, which identifies the invalid part of ``source``.
    """
    try:
        data = plain(data)
        try:
            return msgspec.convert(data, expected_type)
        except msgspec.ValidationError as error:
            raise SearchlabError(f"{source}: {_explain(data, expected_type, '', str(error))}") from None
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
    for field in _read_fields(type(settings)):
        try:
            check_option(field.encode_name, getattr(settings, field.name), field.type)
        except SearchlabError as error:
            raise ValueError(str(error)) from None


_read_fields = cache(msgspec.structs.fields)
"""The fields of a class, cached because evaluating the annotations takes longer than all checks."""


def drop_unknown_keys(data: Any, expected_type: Any, position: str = "") -> tuple[Any, tuple[str, ...]]:
    """Remove the keys that the type ``expected_type`` does not have from plain data, at any depth.

    Args:
        data: The data, as decoded from JSON. It is not checked in any other respect.
        expected_type: The type to which the data is to be converted.
        position: The position of ``data``, such as ``".model"``, for the clauses.

    Returns:
        The rest of the data, and a clause for each removed key, with the nearest known one.
    """
    if not _contains_struct(expected_type):
        return data, ()
    struct_types = [struct for struct in _struct_types(expected_type) if isinstance(data, dict)]
    tags = [struct.__struct_config__.tag for struct in struct_types]
    if len(struct_types) > 1 and data.get("kind") in tags:
        struct_types = [struct_types[tags.index(data["kind"])]]
    if len(struct_types) != 1:
        item_types = [item for item in _item_types(expected_type) if isinstance(data, list)]
        if len(item_types) != 1:
            return data, ()
        pairs = [drop_unknown_keys(value, item_types[0], f"{position}[{index}]") for index, value in enumerate(data)]
        return [value for value, _ in pairs], tuple(clause for _, clauses in pairs for clause in clauses)
    fields = _field_types(struct_types[0])
    tag = struct_types[0].__struct_config__.tag_field
    known_fields: dict[str, Any] = {}
    clauses_of_unknown_keys: list[str] = []
    for key, value in data.items():
        if key in fields:
            known_fields[key], clauses = drop_unknown_keys(value, fields[key], f"{position}.{key}")
            clauses_of_unknown_keys += clauses
        elif key == tag:
            known_fields[key] = value
        else:
            hint = did_you_mean(key, fields)
            clauses_of_unknown_keys.append(
                f"unknown field {f'{position}.{key}'.lstrip('.')!r}{hint if hint.endswith('?') else ''}"
            )
    return known_fields, tuple(clauses_of_unknown_keys)


def _explain(data: Any, expected_type: Any, position: str, text: str) -> str:
    """Say specifically what is wrong with ``data`` at ``position``, or return msgspec's ``text``."""
    children: list[tuple[str, Any, Any]] = []  # the path, value and type of each part of the data
    if isinstance(data, dict) and (struct_types := _struct_types(expected_type)):
        location = f" in {position.lstrip('.')}" if position else ""
        tags = [struct.__struct_config__.tag for struct in struct_types]
        if "kind" in data and any(tags):
            if data["kind"] not in tags:
                return _describe_wrong_value(data["kind"], f"{position}.kind", Literal[tuple(tags)], text)
            struct_types = [struct_types[tags.index(data["kind"])]]
        elif len(struct_types) > 1:
            return f"the key 'kind' is missing{location}; it must be {describe_values(Literal[tuple(tags)])}"
        fields = {f.encode_name: f for struct in struct_types for f in msgspec.structs.fields(struct)}
        for key, value in data.items():
            if key not in fields and not (any(tags) and key == "kind"):
                hint = _suggest_owner(key, fields) or did_you_mean(key, fields)
                return f"unknown key {key!r}{location} (its value is {value!r}){hint}"
        for key, field in fields.items():
            if field.required and key not in data:
                return f"the key {key!r} is missing{location}"
        children = [(f"{position}.{key}", data[key], field.type) for key, field in fields.items() if key in data]
    elif isinstance(data, list) and (item_types := _item_types(expected_type)):
        children = [(f"{position}[{i}]", item, Union[tuple(item_types)]) for i, item in enumerate(data)]  # noqa: UP007
    for child_position, value, child_type in children:
        try:
            msgspec.convert(value, child_type)
        except msgspec.ValidationError as error:
            return _explain(value, child_type, child_position, str(error))
    return _describe_wrong_value(data, position, expected_type, text)


def _describe_wrong_value(value: Any, position: str, expected_type: Any, text: str) -> str:
    text = text.partition(" - at `$")[0]
    problem = text[0].lower() + text[1:]
    hint = (
        f"; it must be {words}"
        if (words := describe_values(expected_type)) and not accepts(value, expected_type)
        else f": {problem}"
    )
    if isinstance(value, str):
        with suppress(msgspec.DecodeError, msgspec.ValidationError):  # "64"
            number = msgspec.json.decode(value, type=float | int)
            hint = f"; write the number without quotes: {msgspec.convert(number, expected_type)}"
        with suppress(msgspec.ValidationError):
            msgspec.convert([value], expected_type)
            hint = f"; write a list: [{msgspec.json.encode(value).decode()}]"
    if isinstance(value, list) and value:
        with suppress(msgspec.ValidationError):
            msgspec.convert(value[0], expected_type)
            hint = f"; specify only one, such as {msgspec.json.encode(value[0]).decode()}"
    return f"{position.lstrip('.')} cannot be {value!r}{hint}" if position else problem


def _suggest_owner(key: str, fields: dict[str, Any]) -> str:
    """Return ``"; it belongs in an entry of 'policies'"`` if structs in ``fields`` have the key, or "" otherwise."""
    owners = []
    for name, field in fields.items():
        for owner, types in ((repr(name), [field.type]), (f"an entry of {name!r}", _item_types(field.type))):
            if any(key in (f.encode_name for f in msgspec.structs.fields(s)) for k in types for s in _struct_types(k)):
                owners.append(owner)
    return f"; it belongs in {' or '.join(owners)}" if owners else ""


def _alternative_types(expected_type: Any) -> list[Any]:
    if get_origin(expected_type) is Annotated:
        return _alternative_types(get_args(expected_type)[0])
    if get_origin(expected_type) not in (Union, UnionType):
        return [expected_type]
    return [alternative for arg in get_args(expected_type) for alternative in _alternative_types(arg)]


@cache
def _struct_types(expected_type: Any) -> list[type[msgspec.Struct]]:
    return [t for t in _alternative_types(expected_type) if isinstance(t, type) and issubclass(t, msgspec.Struct)]


@cache
def _item_types(expected_type: Any) -> list[Any]:
    """Return the item types if ``expected_type`` can be a list or a homogeneous tuple."""
    return [get_args(t)[0] for t in _alternative_types(expected_type) if get_origin(t) in (list, tuple)]


@cache
def _contains_struct(expected_type: Any) -> bool:
    """Return whether values of the type ``expected_type`` may contain structs, whose fields are known."""
    return bool(_struct_types(expected_type)) or any(map(_contains_struct, _item_types(expected_type)))


@cache
def _field_types(struct: type[msgspec.Struct]) -> dict[str, Any]:
    return {field.encode_name: field.type for field in msgspec.structs.fields(struct)}
