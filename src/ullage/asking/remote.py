"""Questions asked by another program: which words it may say, as JSON Schemas, and how the values that it sends become what is asked."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ullage.askable import Askable
from ullage.asking.question import RegisteredQuestion
from ullage.errors import UllageError, did_you_mean, harmless


def reading_fields(question: RegisteredQuestion[Any, Any]) -> list[Askable]:
    """Return what a program of the user's own may ask: nothing that does more than read, and no secret."""
    return [field for field in question.fields if not (field.acts or field.secret)]


def public_fields(question: RegisteredQuestion[Any, Any]) -> list[Askable]:
    """Return what anybody may ask over a network: of the above, nothing that says what is read on this machine, or how."""
    return [field for field in reading_fields(question) if not field.local]


def field_schema(field: Askable) -> dict[str, Any]:
    """Return the JSON Schema of a field: its help, its kind, its bounds, its default."""
    kind = "string" if field.read is not None else {bool: "boolean", int: "integer", float: "number"}.get(field.kind, "string")
    one: dict[str, Any] = {"type": kind}
    if field.choices:
        one["enum"] = list(field.choices)
    bounds = {"minimum": field.least, "exclusiveMinimum": field.above, "maximum": field.most}
    if kind != "string":
        one |= {name: bound for name, bound in bounds.items() if bound is not None}
    whole = {"type": "array", "items": one} if field.repeated else one
    default = f" Default: {field.shown}." if field.shown else ""
    known = {"default": field.default} if kind != "string" or field.choices else {}
    defaults = {} if field.repeated else {name: value for name, value in known.items() if value is not None}
    return whole | {"description": field.help + default} | defaults


def words_of_fields(noun: str, fields: Sequence[Askable], words: Mapping[str, Any], listed_by: str) -> dict[str, Any]:
    """Return JSON values by the names of fields as a question takes them; None is no value.

    Raises UllageError for a word that none of the fields is, and for a value that is of no use there.
    """
    known = {field.name: field for field in fields}
    for word in words:
        if word not in known:
            raise UllageError(f"{noun} has no '{harmless(word, 60)}'", did_you_mean(word, known, listed_by))
    return {word: _value(known[word], value) for word, value in words.items() if value is not None}


def _value(field: Askable, value: Any) -> Any:
    """Return a JSON value as the question takes it; raises UllageError for one that is of no use there."""
    if field.repeated and isinstance(value, list):
        return tuple(_scalar(field, one) for one in value)
    one = _scalar(field, value)
    return (one,) if field.repeated else one


def _scalar(field: Askable, value: Any) -> Any:
    if isinstance(value, list | dict) or isinstance(value, bool) != (field.kind is bool):
        raise UllageError(f"{field.name} can't be {harmless(json.dumps(value), 60)}", field.help)
    return value if field.read is None and field.kind is not str else str(value)
