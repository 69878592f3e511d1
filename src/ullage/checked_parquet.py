"""Parquet files whose pages carry checksums: written with them, and held against them whenever they are read.

A bit that flips on a disk makes another number of a reading, and Parquet's readers do not notice unless they are asked to. A file that
somebody wrote without checksums is read all the same.
"""

from __future__ import annotations

from pathlib import Path
from typing import IO, Any

import pyarrow as pa


def write_table(table: pa.Table, where: str | Path | IO[bytes], **options: Any) -> None:
    """Write a table as a Parquet file; `options` are those of `pyarrow.parquet.write_table`."""
    import pyarrow.parquet as pq

    pq.write_table(table, where, write_page_checksum=True, **options)


def writer(where: str | Path | IO[bytes], schema: pa.Schema, **options: Any) -> Any:
    """Return a writer of a Parquet file that grows; `options` are those of `pyarrow.parquet.ParquetWriter`."""
    import pyarrow.parquet as pq

    return pq.ParquetWriter(where, schema, write_page_checksum=True, **options)


def opened(source: str | Path | IO[bytes] | pa.NativeFile, **options: Any) -> Any:
    """Return an open Parquet file (`pyarrow.parquet.ParquetFile`); reading a page that is not as it was written raises OSError."""
    import pyarrow.parquet as pq

    return pq.ParquetFile(source, page_checksum_verification=True, **options)


def verify(path: Path) -> None:
    """Read all pages of a file that has checksums; raises OSError or pyarrow.ArrowException for one that is not as it was written.

    For readers that do not look at checksums themselves, as DuckDB.
    """
    with opened(path) as file:
        groups = range(file.metadata.num_row_groups)
        if any(_checksummed(path, file.metadata.row_group(group).column(0)) for group in groups):
            for group in groups:
                file.read_row_group(group)


def _checksummed(path: Path, chunk: Any) -> bool:
    """Return whether the first page of a column has a checksum: the fourth field of its header, behind three numbers (Thrift, compact)."""
    with path.open("rb") as file:
        starts = [at for at in (chunk.dictionary_page_offset, chunk.data_page_offset) if at]
        file.seek(min(starts))
        header = file.read(64)
    at = 0
    for _ in range(3):  # kind, size unpacked, size: each a field header and a number of several bytes
        at += 1
        while at < len(header) and header[at] & 0x80:
            at += 1
        at += 1
    return header[at : at + 1] == b"\x15"  # the next field, an int32
