"""Polynomials through counted points: exact rational coefficients, or the word that there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import prod

Point = tuple[int, ...]


@dataclass(frozen=True)
class Polynomial:
    """FLOPs as a polynomial of `variables`; `coefficients` are by the powers of each variable.

    >>> Polynomial(("batch", "seq"), {(1, 1): Fraction(6), (1, 2): Fraction(4)})(2, 10)
    920
    """

    variables: tuple[str, ...]
    coefficients: Mapping[Point, Fraction]

    def __call__(self, *values: int) -> int:
        """Return the value at whole numbers; raises ValueError where it would be no whole number."""
        if len(values) != len(self.variables):
            raise ValueError(f"{len(self.variables)} values are expected: {', '.join(self.variables)}")
        exact = sum((c * prod(v**p for v, p in zip(values, powers, strict=True)) for powers, c in self.coefficients.items()), Fraction(0))
        if exact.denominator != 1:
            raise ValueError(f"the polynomial is {exact} at {values}, which is not a number of FLOPs")
        return exact.numerator

    def __str__(self) -> str:
        return " + ".join(_term(self.variables, powers, c) for powers, c in self.coefficients.items()) or "0"


def _term(variables: Sequence[str], powers: Point, coefficient: Fraction) -> str:
    factors = [name if power == 1 else f"{name}^{power}" for name, power in zip(variables, powers, strict=True) if power]
    number = f"{coefficient.numerator:,}" + (f"/{coefficient.denominator:,}" if coefficient.denominator != 1 else "")
    return "·".join([number, *factors])


def grid(axes: Sequence[Sequence[int]]) -> list[Point]:
    """Return every combination of the values of each variable: degree + 1 values each are enough to fix a polynomial.

    >>> grid([(1, 2), (5, 7, 9)])[:3]
    [(1, 5), (1, 7), (1, 9)]
    """
    return list(product(*axes))


def through(variables: Sequence[str], axes: Sequence[Sequence[int]], values: Mapping[Point, int]) -> Polynomial:
    """Return the one polynomial that has these values on the grid of `axes`, of degree len(axis) − 1 in each variable.

    5 + 3·b·s + 2·b·s² from six points:

    >>> axes = [(1, 2), (5, 7, 9)]
    >>> str(through(("b", "s"), axes, {(b, s): 5 + 3 * b * s + 2 * b * s**2 for b, s in grid(axes)}))
    '5 + 3·b·s + 2·b·s^2'
    """
    sums: dict[Point, Fraction] = {}
    bases = [[_basis(axis, i) for i in range(len(axis))] for axis in axes]
    for indices in grid([range(len(axis)) for axis in axes]):
        value = values[tuple(axis[i] for axis, i in zip(axes, indices, strict=True))]
        chosen = [base[i] for base, i in zip(bases, indices, strict=True)]
        for powers in grid([range(len(axis)) for axis in axes]):
            share = value * prod((c[p] for c, p in zip(chosen, powers, strict=True)), start=Fraction(1))
            sums[powers] = sums.get(powers, Fraction(0)) + share
    return Polynomial(tuple(variables), {powers: c for powers, c in sums.items() if c})


def _basis(axis: Sequence[int], chosen: int) -> list[Fraction]:
    """Return the coefficients of Lagrange's polynomial that is 1 at one value of the axis and 0 at the others, by rising power."""
    coefficients = [Fraction(1)]
    for i, other in enumerate(axis):
        if i != chosen:
            scale = Fraction(1, axis[chosen] - other)
            raised, kept = [Fraction(0), *coefficients], [*coefficients, Fraction(0)]
            coefficients = [scale * (r - other * k) for r, k in zip(raised, kept, strict=True)]
    return coefficients
