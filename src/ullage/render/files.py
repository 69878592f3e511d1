"""A report written to a file, whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ullage.errors import UllageError, harmless

if TYPE_CHECKING:
    from ullage.reports.fleet import FleetReport


def write(report: FleetReport, path: Path, form: str) -> None:
    """Write a fleet report as `html`, `svg`, `json`, `text` or `parquet` (a row per group); an old file stays until the new is whole."""
    from ullage.render import json as as_json
    from ullage.render import text
    from ullage.render.json_text import json_text

    if form == "parquet":
        content = _parquet(report)
    elif form == "json":
        content = json_text(as_json.fleet(report)).encode()
    elif form == "text":
        content = text.fleet(report, top=10**9).encode("utf-8", "replace")
    elif form == "svg":
        from ullage.render.svg.chain import of_fleet

        content = of_fleet(report).encode("utf-8", "replace")
    else:
        from ullage.render.html import html

        content = html(report).encode("utf-8", "replace")
    replace(path, content)


def replace(path: Path, content: bytes | Iterable[bytes]) -> None:
    """Write a file whole, from bytes or from pieces: an old one of that name stays until the new one is on the disk.

    Raises UllageError for a folder in which nothing can be written.
    """
    try:
        handle, name = tempfile.mkstemp(dir=path.absolute().parent, prefix=f".{path.name}.")
    except OSError as error:
        problem = f"{harmless(str(path), 200)} can't be written: {error.strerror or error}"
        raise UllageError(problem, "name a file in a folder that exists and is yours") from error
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines([content] if isinstance(content, bytes) else content)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _parquet(report: FleetReport) -> bytes:
    import io

    import pyarrow as pa

    from ullage.checked_parquet import write_table
    from ullage.render import json as as_json

    buffer = io.BytesIO()
    rows = [_flat(as_json.group(group)) for group in report.groups]
    columns = list(rows[0]) if rows else ["key"]
    words = {"key", "method"}
    table = pa.table({name: pa.array([row[name] for row in rows], pa.string() if name in words else pa.float64()) for name in columns})
    facts = {"by": report.by, "window": f"{report.window[0]}/{report.window[1]}", "complete": str(report.complete).lower()}
    if report.read_until is not None:
        facts["read_until"] = as_json.iso(report.read_until)
    write_table(table.replace_schema_metadata(facts), buffer)
    return buffer.getvalue()


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = row.pop("tree")
    merged = {factor["name"]: factor["value"] for factor in tree.pop("factors")}
    return tree | merged | row
