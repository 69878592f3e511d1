"""How far two recordings of one sequence are shifted against each other, when one begins or ends earlier than the other.

Two ranks do the same collectives in the same order, but a recorder may have started later on one of them. If nothing numbers
the collectives, the shift is where the two sequences of signatures agree in full. In a training loop they agree at every
whole number of steps: then the right shift is told by the ends, whose difference between two ranks is the difference of
their clocks, the same for all, while steps never last equally long.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ullage.sums.lanes.collectives.alignment import line
from ullage.sums.lanes.spans import Times

Codes = npt.NDArray[np.int64]

FEWEST = 3  # an agreement of fewer is chance
_CANDIDATES = 4096
_COARSE = 128  # ends that are compared for each candidate,
_FINALISTS = 8  # and for the best of them
_SAMPLE = 4096
_CLEARLY = 4.0  # how many times worse the second best must be


def shift(reference: Codes, other: Codes, reference_end: Times, other_end: Times, same_clock: bool) -> int | None:
    """Return by how many places `other` begins after `reference` (negative: before), None where that can't be told.

    `reference` and `other` hold a number for each collective's operation and size; `*_end` are when they ended, in ns.
    `same_clock` says that both clocks count from 1970, so that of several shifts the one that brings the ends nearest is right.
    """
    if len(reference) == len(other) and np.array_equal(reference, other):
        return 0
    found = _agreements(reference, other)
    if len(found) < 2:
        return found[0] if found else None
    return _clearest(found, reference_end, other_end, same_clock)


def _agreements(reference: Codes, other: Codes) -> list[int]:
    """Return all shifts at which the sequences agree wherever they overlap, those with the longest overlap first.

    A number that stands for a signature becomes a random direction in the plane: where the sequences agree, the product of
    one with the other's conjugate is 1. So the sum over the overlap, for all shifts at once by Fourier transform, is the
    overlap's length exactly where they agree; that is then checked place by place.
    """
    n, m = len(reference), len(other)
    need = max(FEWEST, -(-min(n, m) // 2))
    if min(n, m) < need:
        return []
    used, codes = np.unique(np.concatenate((reference, other)), return_inverse=True)
    direction = np.exp(2j * np.pi * np.random.default_rng(0).random(len(used)))[codes]
    size = 1 << (n + m - 1).bit_length()
    product = np.fft.ifft(np.fft.fft(direction[:n], size) * np.conj(np.fft.fft(direction[n:], size))).real
    lags = np.arange(-(m - 1), n)
    overlap = np.minimum(n, lags + m) - np.maximum(0, lags)
    agree = (product[lags % size] > overlap - 1e-3) & (overlap >= need)
    lags, overlap = lags[agree], overlap[agree]
    longest = lags[np.argsort(-overlap, kind="stable")][:_CANDIDATES]
    return [int(lag) for lag in longest if _same(reference, other, int(lag))]


def _slices(n: int, m: int, lag: int) -> tuple[slice, slice]:
    low, high = max(0, lag), min(n, lag + m)
    return slice(low, high), slice(low - lag, high - lag)


def _same(reference: Codes, other: Codes, lag: int) -> bool:
    mine, its = _slices(len(reference), len(other), lag)
    return np.array_equal(reference[mine], other[its])


def _clearest(found: list[int], reference_end: Times, other_end: Times, same_clock: bool) -> int | None:
    """Return the shift at which the difference of the ends is by far the most constant, or by far the smallest."""
    base = int(other_end[0] - reference_end[0])  # taken out, or clocks with different zeros leave no digits for what matters
    differences = _sampled(np.array(found), reference_end, other_end - base)
    middle = np.median(differences, axis=1)
    coarse = np.median(np.abs(differences - middle[:, None]), axis=1)
    finalists = np.argsort(coarse, kind="stable")[:_FINALISTS]
    spread = np.array([_residual(found[i], reference_end, other_end) for i in finalists])
    best = _by_far(spread)
    if best is not None:
        return found[int(finalists[best])]
    nearest = _by_far(np.abs(middle + base)) if same_clock else None
    return None if nearest is None else found[nearest]


def _sampled(lags: Codes, reference_end: Times, other_end: Times) -> npt.NDArray[np.float64]:
    """Return for each shift the differences of some ends, spread over the overlap, in ns."""
    low, high = np.maximum(0, lags), np.minimum(len(reference_end), lags + len(other_end))
    places = low[:, None] + (np.linspace(0, 1, _COARSE) * (high - low - 1)[:, None]).astype(np.int64)
    differences = other_end[places - lags[:, None]] - reference_end[places]
    return np.asarray(differences, np.float64)


def _residual(lag: int, reference_end: Times, other_end: Times) -> float:
    mine, its = _slices(len(reference_end), len(other_end), lag)
    time, difference = reference_end[mine], other_end[its] - reference_end[mine]
    some = np.unique(np.linspace(0, len(time) - 1, min(len(time), _SAMPLE)).astype(np.int64))
    return line(time[some], difference[some]).residual


def _by_far(cost: npt.NDArray[np.float64]) -> int | None:
    """Return where a cost is so much smaller than all others that it can be no chance."""
    order = np.argsort(cost, kind="stable")
    return int(order[0]) if cost[order[1]] > _CLEARLY * cost[order[0]] else None
