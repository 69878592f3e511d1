"""The published JSON Schemas: docs/schemas/, a file a kind and number, printed from the types that declare the documents."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path

from ullage.render.documents import KINDS, broken_promises, schema
from ullage.views.document import schema_name
from ullage.views.json_text import json_text

FOLDER = Path(__file__).parent


def schema_file(kind: str) -> str:
    """Return the name of the file with the schema of a kind: "schemas/ullage.fleet-1.json"."""
    return f"schemas/{schema_name(kind).replace('/', '-')}.json"


def schema_page(kind: str) -> str:
    """Return the schema of a kind. Raises SystemExit where it breaks what the published one of that number promises."""
    made, published = schema(kind), FOLDER / schema_file(kind)
    if published.exists() and (broken := broken_promises(json.loads(published.read_text(encoding="utf-8")), made)):
        raise SystemExit(f"{schema_name(kind)} would break readers ({'; '.join(broken)}): raise its number in ullage/views/document.py")
    return json_text(made) + "\n"


def schema_pages() -> dict[str, Callable[[], str]]:
    """Return what prints each schema, by its file."""
    return {schema_file(kind): functools.partial(schema_page, kind) for kind in KINDS}
