"""Tables at rest: logs as Parquet files, with a row for each trial.

A column ``config.NAME`` contains the values of a knob, the column ``cost`` each trial's cost, and the other columns the
fields of trials under the same names as in logs; those with the default value in all trials are omitted. The header is
JSON in the key-value metadata, under the key ``searchlab``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import SearchlabError
from ..parquet import KEY, NUMBERS, decode, encode, make_array

if TYPE_CHECKING:
    import pyarrow as pa

_LINES_KEY, _ENCODED_KNOBS_KEY = "searchlab.lines", "searchlab.json"
_CONFIG_PREFIX, _MODEL_PREFIX = "config.", "model."
_ARROW_TYPES = {bool: "bool", int: "int64", float: "double", str: "string"}
_COLUMN_TYPES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("seconds", "at"), (NUMBERS,)),
    **dict.fromkeys(("failure", "message", "program", "statistic"), ("string",)),
    **dict.fromkeys(("build_seconds", "run_seconds", "check_seconds", "connect_seconds"), ("double",)),
    **dict.fromkeys(("propose_seconds", "train_seconds", "feature_seconds", "time", "sentinel"), ("double",)),
    **dict.fromkeys(("reused", "nearest", "pruned", "fill_in"), ("bool",)),
    "batch": ("int64",),
    _CONFIG_PREFIX: tuple(_ARROW_TYPES.values()),
    _MODEL_PREFIX: ("int64", "double"),
}


def encode_table(header_bytes: bytes, other_lines: bytes, records: Sequence[Any]) -> bytes:
    """Return the file of a table, with its header and a JSON array of the lines that are neither header nor trials.

    Raises TypeError, ValueError or OverflowError if no table can contain these values.
    """
    columns, encoded_knobs = _make_knob_columns([record.config for record in records])
    columns["cost"] = make_array([record.cost for record in records], "double")
    for field in msgspec.structs.fields(type(records[0])) if records else ():
        values = [getattr(record, field.name) for record in records]
        if field.encode_name in _COLUMN_TYPES and any(value != field.default for value in values):
            columns[field.encode_name] = make_array(values, *_COLUMN_TYPES[field.encode_name])
    models = [msgspec.to_builtins(record.model_quality) or {} for record in records]
    for name in dict.fromkeys(name for model in models for name in model):
        columns[_MODEL_PREFIX + name] = make_array([model.get(name) for model in models])
    return encode(
        columns, {KEY: header_bytes, _LINES_KEY: other_lines, _ENCODED_KNOBS_KEY: msgspec.json.encode(encoded_knobs)}
    )


def _make_knob_columns(configs: Sequence[Mapping[str, Any]]) -> tuple[dict[str, pa.Array], list[str]]:
    """Return a column for each knob, and the names of the knobs whose values are encoded as JSON.

    The columns are in the order of the knobs in the configs, as far as this is the same in all of them. The value of a
    knob that a config lacks is null. Values are encoded unless they are all booleans, integers, numbers or text.
    """
    knob_order: TopologicalSorter[str] = TopologicalSorter()
    for names in dict.fromkeys(map(tuple, configs)):
        for name in names:
            knob_order.add(name)
        for before, name in pairwise(names):
            knob_order.add(name, before)
    try:
        knobs = list(knob_order.static_order())
    except CycleError:
        knobs = list(dict.fromkeys(name for config in configs for name in config))
    columns, encoded_knobs = {}, []
    for name in knobs:
        value_types = {type(config[name]) for config in configs if name in config}
        if len(value_types) == 1 and value_types <= _ARROW_TYPES.keys():
            knob_values = [config.get(name) for config in configs]
            columns[_CONFIG_PREFIX + name] = make_array(knob_values, _ARROW_TYPES[value_types.pop()])
        else:
            texts = [msgspec.json.encode(config[name]).decode() if name in config else None for config in configs]
            columns[_CONFIG_PREFIX + name] = make_array(texts, "string")
            encoded_knobs.append(name)
    return columns, encoded_knobs


def extract_header_bytes(path: Path, data: bytes) -> bytes:
    """Return the header, as JSON, of the table whose bytes are ``data``. Raises SearchlabError if it is damaged."""
    return _get_header_bytes(path, decode(path, data, {})[0])


def decode_table(path: Path, data: bytes) -> tuple[bytes, bytes, list[dict[str, Any]]]:
    """Return a table's header, its lines that are neither header nor trials, and the fields of its trials.

    Only the types have been checked. Raises SearchlabError, or an error in :data:`~searchlab.schema.UNREADABLE`, if the
    table is damaged or too large.
    """
    from pyarrow import compute

    metadata, table = decode(path, data, _COLUMN_TYPES)
    for field in table.schema:
        if str(field.type) == "double" and compute.all(compute.is_finite(table[field.name])).as_py() is False:
            raise msgspec.ValidationError(f"its column {field.name!r} contains a number that is not finite")
    configs = _read_rows(table, _CONFIG_PREFIX)
    if any(table[name].null_count for name in table.column_names if name.startswith(_CONFIG_PREFIX)):
        configs = [{name: value for name, value in config.items() if value is not None} for config in configs]
    for name in msgspec.json.decode(metadata.get(_ENCODED_KNOBS_KEY, b"[]"), type=set[str]):
        values: dict[str, Any] = {}
        for config in configs:
            if isinstance(text := config.get(name), str):
                config[name] = values[text] if text in values else values.setdefault(text, msgspec.json.decode(text))
    trials = _read_rows(table, "")
    for index, (trial, config, model) in enumerate(zip(trials, configs, _read_rows(table, _MODEL_PREFIX), strict=True)):
        trial |= {"index": index, "config": config}
        if fields := {name: value for name, value in model.items() if value is not None}:
            trial["model"] = fields
    return _get_header_bytes(path, metadata), metadata.get(_LINES_KEY, b"[]"), trials


def _read_rows(table: pa.Table, prefix: str) -> list[dict[str, Any]]:
    """Return the values in each row of those columns whose names begin with ``prefix``."""
    names = [name for name in table.column_names if name.startswith(prefix) and ("." in name) == bool(prefix)]
    selected = table.select(names).rename_columns([name.removeprefix(prefix) for name in names])
    rows: list[dict[str, Any]] = selected.to_pylist() if names else [{} for _ in range(len(table))]
    return rows


def _get_header_bytes(path: Path, metadata: Mapping[str, bytes]) -> bytes:
    if KEY not in metadata:
        raise SearchlabError(f"{path} is not a table of searchlab: its metadata have no key {KEY!r}")
    return metadata[KEY]
