"""How much a series moves by itself: what the search for changes is measured against, robust to the very changes that it looks for."""

from __future__ import annotations

import numpy as np

from ullage.courses.course import Array

NORMAL = 1.4826  # the standard deviation of a normal series over its median absolute deviation
BLOCKS = (1, 2, 4, 8, 16)  # lengths over which values are averaged: noise with a memory does not average out as fast
LEAST_BLOCKS = 16  # differences of fewer say little of a spread


def noise_of(values: Array) -> float:
    """Return the standard deviation that white noise with the same spread of long means would have; 0 for a series that stands still.

    It is estimated from differences of neighbours, so that neither a step nor a slope counts for noise; and from differences of means of
    neighbouring blocks, of which the noisiest counts, so that noise with a memory is not taken for less than it is.

    >>> step = np.repeat([0.0, 100.0], 500) + np.random.default_rng(1).normal(0, 2, 1000)
    >>> 1.8 < noise_of(step) < 2.6
    True
    """
    found = 0.0
    for length in BLOCKS:
        blocks = len(values) // length
        if blocks < LEAST_BLOCKS and length > 1:
            break
        means = values[: blocks * length].reshape(blocks, length).mean(axis=1)
        steps = np.diff(means)
        if len(steps):
            found = max(found, NORMAL * float(np.median(np.abs(steps - np.median(steps)))) * float(np.sqrt(length / 2)))
    return found
