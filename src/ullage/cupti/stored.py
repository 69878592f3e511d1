"""Facts about CUPTI that lie beside the code: compressed JSON, written by `tools/cupti_layouts.py` from the headers of each release."""

from __future__ import annotations

import json
import lzma
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def stored(name: str) -> Any:
    """Return what `name`.json.xz holds; it is read once (some ms) and shared, so that nobody may change it.

    `layouts` has the structs and which of them each release has, `names` the names of each enumeration of CUPTI by value: of results,
    kinds, callbacks, fields, attributes.

    >>> stored("names")["CUptiResult"]["39"]
    'CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED'
    """
    return json.loads(lzma.decompress(files("ullage.cupti").joinpath("data", f"{name}.json.xz").read_bytes()))
