"""Answers as JSON documents: whichever door they leave by, they say first what they are and who made them."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from ullage.views.json_text import json_text

NUMBERS: dict[str, int] = {"watch": 2}  # of kinds whose documents changed so that their readers must change, too; all others are at 1


def schema_name(kind: str) -> str:
    """Return the name of the schema that documents of a kind follow.

    >>> schema_name("fleet")
    'ullage.fleet/1'
    """
    return f"ullage.{kind}/{NUMBERS.get(kind, 1)}"


def document(kind: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return an answer's data as a document: its schema and the version of Ullage, then its own keys."""
    version = import_module("ullage").__version__  # by name: the package's own module imports from above this room
    head = {"schema": schema_name(kind), "version": version}
    if head.keys() & data.keys():
        raise ValueError(f"data of {kind} have keys of the document's own: {', '.join(head.keys() & data.keys())}")
    return {**head, **data}


def document_text(kind: str, data: Mapping[str, Any]) -> str:
    """Return an answer's data as a document in JSON."""
    return json_text(document(kind, data))
