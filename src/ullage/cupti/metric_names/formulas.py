"""Formulas of counter metrics: sums, differences, products and quotients of metrics and numbers, and nothing else.

`(lts__t_sectors_op_read.sum + lts__t_sectors_op_write.sum) * 32` is one. A metric is a word with "__" in it and, mostly, sub-metrics
behind dots; "{op}" in one is a place that NVIDIA's guide leaves open.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from ullage.errors import UllageError, harmless

_TOKEN = re.compile(r"\s*(?:(?P<number>\d+(?:\.\d+)?)(?![\w.])|(?P<metric>[A-Za-z](?:[\w.]|\{op\})*)|(?P<sign>[-+*/()]))")
_OPERATIONS: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}
LONGEST, DEEPEST = 4000, 40  # characters and nested parentheses of a formula: what has more is no formula of anybody's


@dataclass(frozen=True)
class FormulaOperation:
    """One of + - * / between two formulas."""

    sign: str
    left: Formula
    right: Formula


Formula = float | str | FormulaOperation  # a number, a metric's name, or an operation


def parse(text: str) -> Formula:
    """Return a formula as a tree, multiplication before addition, from left to right; raises UllageError for what is none.

    >>> parse("a__x.sum + b__x.sum * 2")
    FormulaOperation(sign='+', left='a__x.sum', right=FormulaOperation(sign='*', left='b__x.sum', right=2.0))
    """
    words = _Words(text)
    found = _sum(words, 0)
    if words.now:
        words.refuse()
    return found


def parts(formula: Formula) -> tuple[str, ...]:
    """Return the metrics that a formula needs, each once, in their order.

    >>> parts(parse("(a__x.sum - b__x.sum) / a__x.sum"))
    ('a__x.sum', 'b__x.sum')
    """
    return tuple(dict.fromkeys(_names(formula)))


def value(formula: Formula, values: Mapping[str, float]) -> float | None:
    """Return what a formula gives; None without one of its parts, when it divides by zero, and for what is no finite number.

    >>> value(parse("a__x.sum / b__x.sum * 100"), {"a__x.sum": 1, "b__x.sum": 4})
    25.0
    """
    if isinstance(formula, FormulaOperation):
        left, right = value(formula.left, values), value(formula.right, values)
        if left is None or right is None or (formula.sign == "/" and right == 0):
            return None
        found = _OPERATIONS[formula.sign](left, right)
    else:
        given = values.get(formula) if isinstance(formula, str) else formula
        if given is None:
            return None
        found = float(given)
    return found if math.isfinite(found) else None


def _names(formula: Formula) -> Iterator[str]:
    if isinstance(formula, FormulaOperation):
        yield from _names(formula.left)
        yield from _names(formula.right)
    elif isinstance(formula, str):
        yield formula


class _Words:
    """The words of a formula; `now` is the one to read, "" at the end."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text.strip(), 0
        self.now, self.kind = "", ""
        if len(self._text) > LONGEST:
            self.refuse()
        self.advance()

    def advance(self) -> None:
        """Go to the next word."""
        if self._at == len(self._text):
            self.now, self.kind = "", ""
            return
        found = _TOKEN.match(self._text, self._at)
        if found is None:
            self.refuse()
            return
        self._at, self.kind = found.end(), str(found.lastgroup)
        self.now = found[self.kind]

    def refuse(self) -> None:
        """Say that this is no formula."""
        problem = f"'{harmless(self._text, 80)}' is no formula of metrics"
        raise UllageError(problem, "write metrics and numbers with + - * / and parentheses between them")


def _sum(words: _Words, depth: int) -> Formula:
    found = _product(words, depth)
    while words.now in ("+", "-"):
        sign = words.now
        words.advance()
        found = FormulaOperation(sign, found, _product(words, depth))
    return found


def _product(words: _Words, depth: int) -> Formula:
    found = _operand(words, depth)
    while words.now in ("*", "/"):
        sign = words.now
        words.advance()
        found = FormulaOperation(sign, found, _operand(words, depth))
    return found


def _operand(words: _Words, depth: int) -> Formula:
    now, kind = words.now, words.kind
    if now == "(" and depth < DEEPEST:
        words.advance()
        found = _sum(words, depth + 1)
        if words.now != ")":
            words.refuse()
    elif kind == "number":
        found = float(now)
    else:
        if kind != "metric" or "__" not in now:
            words.refuse()
        found = now
    words.advance()
    return found
