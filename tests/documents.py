"""Whether documents follow their published schemas."""

from __future__ import annotations

import functools
from typing import Any

from jsonschema import Draft202012Validator

from ullage.render.documents import schema

OPEN = {"reading", "run", "top"}  # beside the declared keys these have others, as their schemas say


def breaches(found: dict[str, Any]) -> list[str]:
    """Return where a document does not follow the schema that it names; a key that is not declared counts, too."""
    kind = found["schema"].removeprefix("ullage.").partition("/")[0]
    return [f"{error.json_path}: {error.message[:200]}" for error in _validator(kind).iter_errors(found)]


@functools.cache
def _validator(kind: str) -> Draft202012Validator:
    made = schema(kind)
    return Draft202012Validator(made if kind in OPEN else closed(made))


def closed(made: Any) -> Any:
    """Return a schema that refuses keys which it does not describe."""
    if isinstance(made, list):
        return [closed(one) for one in made]
    if not isinstance(made, dict):
        return made
    inner = {key: closed(value) for key, value in made.items()}
    return inner | {"additionalProperties": False} if isinstance(inner.get("properties"), dict) and "required" in inner else inner
