"""Where the level of a series changes: the segmentation that costs least, by ruptures' kernel search in C."""

from __future__ import annotations

import numpy as np

from ullage.courses.course import Array
from ullage.errors import UllageError


def segment_ends(values: Array, penalty: float, least: int) -> list[int]:
    """Return where the segments of a series end (the last one at its length): those whose squares and penalties add up to least.

    A segmentation costs the squared deviations of all values from the means of their segments, and `penalty` for each segment but one;
    a segment has at least so many values. The library's pruning does not mind that: very rarely another segmentation costs a little
    less. Raises UllageError where ruptures is not installed.

    >>> segment_ends(np.repeat([1.0, 5.0], 10), penalty=3.0, least=3)
    [10, 20]
    """
    if len(values) < 2 * least:
        return [len(values)]
    try:
        from ruptures import KernelCPD
    except ImportError as error:
        raise UllageError("the search for changes needs ruptures", "pip install 'ullage[watch]'") from error
    # around its middle: the library adds up squares, which must not swallow what they differ by
    centred = (values - np.median(values)).reshape(-1, 1)
    return [int(end) for end in KernelCPD(kernel="linear", min_size=least).fit(centred).predict(pen=penalty)]
