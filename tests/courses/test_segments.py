"""The search for changes beside every segmentation that there is, by dynamic programming over plain sums."""

from __future__ import annotations

import sys
from itertools import pairwise

import numpy as np
import pytest

from tests.seeds import some
from ullage.courses.changes import segment_ends
from ullage.errors import UllageError


def cost(values: np.ndarray, ends: list[int], penalty: float) -> float:
    """What a segmentation costs: squares around the means of its segments, and a penalty for each but one."""
    starts = [0, *ends[:-1]]
    squares = sum(float(((values[a:b] - values[a:b].mean()) ** 2).sum()) for a, b in zip(starts, ends, strict=True))
    return squares + penalty * (len(ends) - 1)


def best(values: np.ndarray, penalty: float, least: int) -> float:
    """The least that any segmentation costs: the best of each beginning, from those of all shorter ones."""
    found = [0.0] + [np.inf] * len(values)
    for end in range(least, len(values) + 1):
        for start in range(end - least + 1):
            if np.isfinite(found[start]):
                segment = values[start:end]
                own = float(((segment - segment.mean()) ** 2).sum()) + (penalty if start else 0.0)
                found[end] = min(found[end], found[start] + own)
    return found[-1]


def drawn(seed: int) -> tuple[np.ndarray, float, int]:
    random = np.random.default_rng(seed)
    values = random.normal(random.choice([0.0, 1e4]), 1.0, int(random.integers(2, 70)))
    for place in random.integers(0, len(values), int(random.integers(0, 4))):
        values[place:] += random.normal(0, 12)
    return values, float(random.uniform(18, 40)), int(random.integers(2, 7))


@pytest.mark.parametrize("seed", some(range(5000), 150))
def test_no_segmentation_costs_noticeably_less(seed: int) -> None:
    # the library prunes as if a segment could have any length: of 5,000 drawn series two cost up to 2 % more than the best
    values, penalty, least = drawn(seed)
    ends = segment_ends(values, penalty, least)
    assert ends[-1] == len(values)
    assert all(later - earlier >= least for earlier, later in pairwise([0, *ends])) or ends == [len(values)]
    if len(values) >= 2 * least:
        found, lowest = cost(values, ends, penalty), best(values, penalty, least)
        assert lowest - 1e-6 <= found <= lowest * 1.03 + 1e-6


def test_nearly_always_it_is_the_best_there_is() -> None:
    found = [(cost(values, segment_ends(values, *rest), rest[0]), best(values, *rest)) for values, *rest in map(drawn, range(100))]
    known = [(own, lowest) for own, lowest in found if lowest < float("inf")]
    assert sum(own == pytest.approx(lowest, abs=1e-6) for own, lowest in known) == len(known) > 90


def test_without_the_library_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ruptures", None)
    with pytest.raises(UllageError, match="needs ruptures") as refused:
        segment_ends(np.arange(20.0), 1.0, 2)
    assert "ullage[watch]" in refused.value.hint
