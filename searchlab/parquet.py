"""Parquet files for tables and trajectories: small, typed, and open to every tool that reads Parquet.

Files may come from strangers. Only columns with the expected names and types are read, a few rows at a time until their
size exceeds a limit, and nothing in a file is executed.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import SearchlabError, first_line
from .files import check_unpacked

if TYPE_CHECKING:
    import pyarrow as pa

PARQUET = ".parquet"
"""The file-name ending of Parquet files."""

KEY = "searchlab"
"""The key in a file's metadata under which JSON describes its content."""

MAX_ROWS = 10_000_000
"""The maximum number of rows in a file."""

NUMBERS, INTEGERS = "list<element: double>", "list<element: int64>"
"""The types of columns whose values are arrays, in Arrow's notation."""

_BATCH_ROWS = 4096
"""The number of rows to decode at a time."""

_PAGE_BYTES = 1 << 26
"""The size of a page in bytes. A column has few pages, since long ones compress well."""


def make_array(values: Sequence[Any], type_name: str | None = None) -> pa.Array:
    """Return ``values`` as a column of a type in Arrow's notation, by default of the type that Arrow infers."""
    import pyarrow as pa

    list_types: dict[str | None, pa.DataType] = {NUMBERS: pa.list_(pa.float64()), INTEGERS: pa.list_(pa.int64())}
    return pa.array(values, list_types.get(type_name, type_name))


def encode(columns: Mapping[str, pa.Array], metadata: Mapping[str, bytes]) -> bytes:
    """Return a Parquet file with these columns, and with ``metadata`` as its key-value metadata.

    Equal arguments yield equal bytes with the same version of pyarrow.
    """
    import pyarrow as pa
    from pyarrow import parquet

    table, buffer = pa.table(dict(columns)), io.BytesIO()
    with parquet.ParquetWriter(
        buffer,
        table.schema,
        compression="zstd",
        compression_level=19,
        use_dictionary=[field.name for field in table.schema if str(field.type) in ("string", "int64", "bool")],
        column_encoding={
            f"{field.name}.list.element": "BYTE_STREAM_SPLIT"  # the high bytes of small integers are all 0
            for field in table.schema
            if field.type == pa.list_(pa.int64())
        },
        data_page_size=_PAGE_BYTES,
        store_schema=False,
        write_statistics=False,
        write_page_checksum=True,
    ) as writer:
        writer.add_key_value_metadata(dict(metadata))
        writer.write_table(table, row_group_size=max(1, len(table)))
    return buffer.getvalue()


def decode(
    path: Path, file_bytes: bytes, allowed_types: Mapping[str, Collection[str]]
) -> tuple[dict[str, bytes], pa.Table]:
    """Decode the Parquet file whose bytes are ``file_bytes``.

    Args:
        path: The path of the file, for messages.
        file_bytes: The content of the file.
        allowed_types: The columns to read, each with its possible types in Arrow's notation. A name that ends in ``.``
            stands for all names that begin with it.

    Returns:
        The key-value metadata, and those columns in ``allowed_types`` that the file has.

    Raises:
        SearchlabError: If the file is damaged, too large, or has columns of other types.
    """
    import pyarrow as pa
    from pyarrow import parquet

    source = pa.BufferReader(file_bytes)
    try:
        file = parquet.ParquetFile(source)
        metadata = {key.decode(): value for key, value in (file.metadata.metadata or {}).items()}
        fields: dict[str, pa.Field] = {}
        for field in file.schema_arrow:
            allowed_name = field.name if field.name in allowed_types else field.name.partition(".")[0] + "."
            if allowed_name in allowed_types:
                if field.name in fields:
                    raise ValueError(f"it has two columns {field.name!r}")
                if str(field.type) not in allowed_types[allowed_name]:
                    expected_types = " or ".join(allowed_types[allowed_name])
                    raise ValueError(f"its column {field.name!r} is {field.type} instead of {expected_types}")
                fields[field.name] = field
        if (row_count := file.metadata.num_rows) > MAX_ROWS:
            raise ValueError(f"it has {row_count:,} rows, and at most {MAX_ROWS:,} are read")
        if allowed_types and row_count and not fields:
            raise ValueError("it has none of the columns that searchlab writes")
        # A dictionary contains each text once, so texts that are repeated in many rows are not copied unchecked.
        text_columns = [name for name, field in fields.items() if field.type == pa.string()]
        file = parquet.ParquetFile(source, read_dictionary=text_columns, page_checksum_verification=True)
        unpacked_bytes, batches = 0, []
        for batch in file.iter_batches(_BATCH_ROWS, columns=list(fields), use_threads=False) if fields else ():
            batch.validate(full=True)
            unpacked_bytes += batch.nbytes + sum(_count_text_bytes(batch[name]) for name in text_columns)
            check_unpacked(path, len(file_bytes), unpacked_bytes)
            arrays = [batch[name].cast("string") if name in text_columns else batch[name] for name in fields]
            batches.append(pa.RecordBatch.from_arrays(arrays, list(fields)))
        schema = pa.schema([pa.field(name, field.type) for name, field in fields.items()])
        return metadata, pa.Table.from_batches(batches, schema)
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        raise SearchlabError(f"cannot read {path}: it is damaged ({first_line(error)}); download it again") from None


def _count_text_bytes(text_column: pa.DictionaryArray) -> int:
    """Return the number of bytes of all texts in a column."""
    from pyarrow import compute

    return compute.sum(compute.binary_length(text_column.dictionary).take(text_column.indices)).as_py() or 0
