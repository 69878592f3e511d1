"""What a tensor core's accumulators hold product after product, by arithmetic: each sum is rounded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ullage.benches.bench import Arrays
from ullage.benches.operands import FP16_SUM, FP32, FP64_SUM, INT32, Accumulator, expanded
from ullage.benches.ptx_mma import CHAIN, Mma
from ullage.benches.ptx_wgmma import Wgmma

Rounding = Callable[[np.ndarray], np.ndarray]
TYPES = {FP16_SUM: np.float16, FP32: np.float32, FP64_SUM: np.float64, INT32: np.int32}


def products_in_turn(instruction: Mma | Wgmma, arrays: Arrays) -> list[np.ndarray]:
    """Return the products A·B that a kernel adds up one after the other, again and again: of sets of A, or of slices of both."""
    a, b = (instruction.operand.decode(array) for array in arrays[:2])
    if instruction.sparse:
        a = expanded(a, int(arrays[2][0]), instruction.operand.bits)
    parts = CHAIN.sets if isinstance(instruction, Mma) else instruction.slices
    pieces = [b] * parts if isinstance(instruction, Mma) else np.split(b, parts, axis=1)
    return [left @ right.T for left, right in zip(np.split(a, parts, axis=1), pieces, strict=True)]


def nearest(accumulator: Accumulator) -> Rounding:
    """Return how an accumulator of this type rounds an exact sum; INT32 wraps around."""
    kind = TYPES[accumulator]
    return lambda exact: exact.astype(np.int64).astype(np.int32) if kind is np.int32 else exact.astype(kind)


def truncated(bits: int) -> Rounding:
    """Return the rounding towards zero to so many bits of significand."""

    def rounding(exact: np.ndarray) -> np.ndarray:
        fraction, exponent = np.frexp(exact)
        return np.ldexp(np.trunc(fraction * 2.0**bits) / 2.0**bits, exponent)

    return rounding


def accumulated(products: Sequence[np.ndarray], rounding: Rounding, rounds: int) -> Iterator[np.ndarray]:
    """Yield the sums after each product of so many rounds through all of them."""
    sums = rounding(np.zeros(products[0].shape))
    for _ in range(rounds):
        for product in products:
            sums = rounding(sums.astype(np.float64) + product)
            yield sums


def lasting_round(products: Sequence[np.ndarray], rounding: Rounding, most: int = 20_000) -> list[np.ndarray]:
    """Return the sums before and after each product of a round that ends as the round before it: so it goes on for ever."""
    before, sums = np.zeros(0), [rounding(np.zeros(products[0].shape))]
    for one in accumulated(products, rounding, most):
        sums.append(one)
        if len(sums) > len(products):
            if np.array_equal(before, one):
                return sums
            before, sums = one, [one]
    raise AssertionError(f"no round ends as the one before it within {most} rounds")
