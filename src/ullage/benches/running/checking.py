"""Whether a kernel computed what its reference says."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ullage.benches.running.device import POISON


def wrong(found: Sequence[np.ndarray], reference: Sequence[np.ndarray], tolerance: float = 0.0) -> str | None:
    """Return in one clause what is wrong with a kernel's outputs, None when they are right.

    Each output may differ from its reference by `tolerance` times the reference's largest magnitude; 0 is exact. What is not a
    number is wrong unless it should be none. Elements that the kernel never wrote (still poisoned) are named as such.

    >>> wrong([np.array([1, 2, 4])], [np.array([1, 2, 3])])
    'the result is wrong: 1 of 3 elements of output 0 differ, first [2]: 4 instead of 3'
    """
    if len(found) != len(reference):
        return f"the reference gives {len(reference)} arrays for {len(found)} outputs"
    for number, (output, right) in enumerate(zip(found, reference, strict=True)):
        said = _differs(output, np.asarray(right), tolerance)
        if said:
            return f"the result is wrong: {said.format(output=f'output {number}')}"
    return None


def _differs(output: np.ndarray, right: np.ndarray, tolerance: float) -> str | None:
    if output.shape != right.shape:
        return f"{{output}} has the shape {output.shape}, its reference {right.shape}"
    bad = ~_near(output, right, tolerance)
    if not bad.any():
        return None
    silent = int((bad & _poisoned(output)).sum())
    if silent:
        return f"{silent:,} of {output.size:,} elements of {{output}} were never written"
    first = tuple(int(n) for n in np.argwhere(bad)[0])
    differ = f"{int(bad.sum()):,} of {output.size:,} elements of {{output}} differ"
    return f"{differ}, first {list(first)}: {output[first]} instead of {right[first]}"


def _near(output: np.ndarray, right: np.ndarray, tolerance: float) -> np.ndarray:
    if not tolerance:
        return np.asarray((output == right) | ((output != output) & (right != right)))
    truth = right.astype(np.float64)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.abs(output.astype(np.float64) - truth) <= tolerance * np.abs(truth).max(initial=0.0))


def _poisoned(output: np.ndarray) -> np.ndarray:
    bytes_of_each = np.ascontiguousarray(output).view(np.uint8).reshape(*output.shape, output.itemsize)
    return np.asarray((bytes_of_each == POISON).all(axis=-1))
