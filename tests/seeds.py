"""How many seeds and examples of a drawn test the quick suite takes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import pytest

long_run = False  # whether the tests marked `full` run too: set before tests are collected


def some(seeds: Iterable[Any], quick: int) -> list[Any]:
    """Return the seeds, those after the first `quick` for the long tests alone, and not even collected in the quick suite."""
    if not long_run:
        return list(itertools.islice(seeds, quick))
    return [seed if number < quick else pytest.param(seed, marks=pytest.mark.full) for number, seed in enumerate(seeds)]


def examples(quick: int, full: int) -> int:
    """Return how many examples Hypothesis draws: so many in the quick suite, and so many where the long tests run too."""
    return full if long_run else quick
