"""Plain data as JSON text that is as harmless on a terminal as in a program."""

from __future__ import annotations

import json
import re
from typing import Any

# Everything that may be more than a letter on a screen stands outside of ASCII or below the space.
_PERHAPS = re.compile(r"[^\x20-\x7e\n]")


def json_text(data: Any) -> str:
    r"""Return data as JSON, one key a line; control characters and direction overrides are escaped, letters of any script stay.

    Raises ValueError for NaN and infinities, which JSON does not have.

    >>> print(json_text({"job": "näht \x9b31m \u202e"}))
    {
      "job": "näht \u009b31m \u202e"
    }
    """
    return _PERHAPS.sub(_escaped, json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False))


def _escaped(found: re.Match[str]) -> str:
    return found[0] if found[0].isprintable() else json.dumps(found[0])[1:-1]
