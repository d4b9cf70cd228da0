"""A suite as a data set that other tools open: a card with Hugging Face's metadata, and Croissant metadata.

Sources: Hugging Face, "Dataset Cards" and "Structure your repository"; MLCommons, "Croissant format specification 1.0".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import msgspec
import pyarrow as pa
from jinja2 import StrictUndefined, Template
from pyarrow import parquet

from ..log.format import Header
from ..measure.suite import Suite
from ..tables.info import format_date, format_values
from .cards import TableCard

README_FILE, CROISSANT_FILE = "README.md", "croissant.json"

COLUMNS = {
    "config.*": "the value of each knob; empty where a config does not have the knob",
    "cost": "the time of one execution in seconds, infinite if the config failed",
    "seconds": "the time of each repeat, in seconds",
    "failure": "why the config failed, if it did",
    "message": "the failure's message",
    "build_seconds": "the CPU time for building the program",
    "run_seconds": "the elapsed time for checking and timing it",
    "program": "the structural hash of the program, if there is one",
}
"""The columns of a table that matter to other tools, with their meanings."""

_CROISSANT_TYPES = {"int64": "sc:Integer", "double": "sc:Float", "bool": "sc:Boolean"}


def make_dataset_texts(suite: Suite, cards: Sequence[TableCard]) -> dict[str, str]:
    """Return the text of the card and of the Croissant metadata of ``suite``, given the ``cards`` of its tables."""
    headers = [card.table.log.header for card in cards]
    template = Template(
        _read_resource("dataset.md.jinja"), trim_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined
    )
    card_text = template.render(
        spec=suite.spec,
        cards=cards,
        columns=COLUMNS,
        configs=sum(card.info.config_count for card in cards),
        dates=[format_date(card.table.log) for card in cards],
        machines=list(dict.fromkeys(_describe_machine(header) for header in headers)),
    )
    croissant_bytes = msgspec.json.format(msgspec.json.encode(_make_croissant(suite, cards)), indent=2)
    return {README_FILE: card_text, CROISSANT_FILE: croissant_bytes.decode() + "\n"}


def _read_resource(name: str) -> str:
    """Return a file of this package: the card's template, or the context that Croissant's specification prescribes."""
    return (files(__package__ or "") / name).read_text("utf-8")


def _describe_machine(header: Header) -> str:
    attributes = {name: value for name, value in header.host.items() if name != "load"} | header.machine
    return format_values(attributes) or "a machine that the tables do not record"


def _make_croissant(suite: Suite, cards: Sequence[TableCard]) -> dict[str, Any]:
    spec, split_sizes = suite.spec, Counter(card.table.entry.split for card in cards)
    return {
        "@context": msgspec.json.decode(_read_resource("croissant-context.json")),
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": spec.version,
        "description": f"{spec.title}: complete tables of measured configs, {split_sizes['dev']} for development and "
        f"{split_sizes['test']} for testing.",
        "license": f"https://spdx.org/licenses/{spec.licence}",
        "version": "1.0.0",
        "datePublished": max(format_date(card.table.log) for card in cards),
        "citeAs": f"{spec.title}, version {spec.version}; see CITATION.cff",
        "url": ".",
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": f"{card.table.entry.name}.parquet",
                "name": f"{card.table.entry.name}.parquet",
                "contentUrl": f"tables/{card.table.entry.name}.parquet",
                "encodingFormat": "application/x-parquet",
                "contentSize": f"{card.table.expected_path.stat().st_size} B",
                "sha256": card.table.digest,
            }
            for card in cards
        ],
        "recordSet": [_make_record_set(card) for card in cards],
    }


def _make_record_set(card: TableCard) -> dict[str, Any]:
    name = card.table.entry.name
    fields = []
    for column in parquet.read_schema(card.table.expected_path):
        is_list = pa.types.is_list(column.type)
        value_type = str(column.type.value_type if is_list else column.type)
        fields.append(
            {
                "@type": "cr:Field",
                "@id": f"{name}/{column.name}",
                "name": column.name,
                "dataType": _CROISSANT_TYPES.get(value_type, "sc:Text"),
                **({"repeated": True} if is_list else {}),
                "source": {"fileObject": {"@id": f"{name}.parquet"}, "extract": {"column": column.name}},
            }
        )
    return {"@type": "cr:RecordSet", "@id": name, "name": name, "field": fields}
