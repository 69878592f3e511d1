"""Variables in this process' environment for a moment."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Have variables in the environment within a `with`; afterwards they are as they were before.

    >>> with environment({"ULLAGE_EXAMPLE": "1"}):
    ...     os.environ["ULLAGE_EXAMPLE"]
    '1'
    >>> "ULLAGE_EXAMPLE" in os.environ
    False
    """
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
