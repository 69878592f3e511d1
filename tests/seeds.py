"""Which seeds of a drawn test the quick suite takes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def some(seeds: Iterable[int], quick: int) -> list[Any]:
    """Return the seeds, those after the first `quick` for the long tests alone."""
    return [seed if number < quick else pytest.param(seed, marks=pytest.mark.full) for number, seed in enumerate(seeds)]
