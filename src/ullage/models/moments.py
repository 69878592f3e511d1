"""Sums over samples with two lengths, latents and prompt, in a few microseconds: by their moments."""

from __future__ import annotations

from collections.abc import Callable
from operator import mul

from ullage.errors import UllageError

# Lengths at which a polynomial is tried: near, on both sides of a usual prompt, past every usual window, and beyond any
_TRIED = ((4, 7), (9, 4), (129, 512), (130, 513), (4097, 131_073), (131_073, 77), (1 << 34, 1 << 33))


def by_moments(flops: Callable[[int, int], int]) -> Callable[[list[int], list[int]], int]:
    """Return the sum of `flops` over samples: by ΣI, ΣP, ΣI², ΣIP and ΣP² where it is a polynomial of degree 2, else one by one.

    >>> by_moments(lambda i, p: 5 + 2 * i + (i + p) ** 2)([10, 20], [1, 2])
    675
    """

    def one_by_one(latents: list[int], prompts: list[int]) -> int:
        return sum(map(flops, latents, prompts))

    def moments(latents: list[int], prompts: list[int]) -> int:
        if 0 in latents or 0 in prompts:  # where a stream is missing, a model may do other work
            return one_by_one(latents, prompts)
        linear = constant * len(latents) + line_i * sum(latents) + line_p * sum(prompts)
        squares = square_i * sum(map(mul, latents, latents)) + square_p * sum(map(mul, prompts, prompts))
        return int(linear + squares + 2 * cross * sum(map(mul, latents, prompts))) // 2

    try:
        origin, right, up = flops(1, 1), flops(2, 1), flops(1, 2)
        cross = flops(2, 2) - right - up + origin
        square_i, square_p = flops(3, 1) - 2 * right + origin, flops(1, 3) - 2 * up + origin  # twice, as the coefficients below
        line_i, line_p = 2 * (right - origin - cross) - 3 * square_i, 2 * (up - origin - cross) - 3 * square_p
        constant = 2 * (origin - cross) - line_i - line_p - square_i - square_p
        fits = all(flops(i, p) == moments([i], [p]) for i, p in _TRIED)
    except UllageError:  # a model whose latents come in certain numbers only
        return one_by_one
    return moments if fits else one_by_one
