"""How the values of a column or a fact are written: one notation a kind of number, the same in every form."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from ullage.errors import UllageError, harmless
from ullage.views import names, numbers
from ullage.views.numbers import UNKNOWN
from ullage.views.times import seconds


@dataclass(frozen=True)
class Notation:
    """How values of one kind are written: `write` makes words of a value that is known, `unit` is what the value is in JSON and CSV.

    Words stand to the left of their column, numbers to the right; `cut` makes words as short as there is room.
    """

    unit: str
    write: Callable[[Any], str]
    numeric: bool = True
    cut: Callable[[str, int], str] = harmless

    def words(self, value: Any) -> str:
        """Return a value as people read it, "–" for one that is not known (None, not a number, infinite).

        >>> PERCENT.words(0.314), PERCENT.words(None), PERCENT.words(float("nan")), COUNT.words(12345)
        ('31 %', '–', '–', '12,345')
        """
        return UNKNOWN if value is None or (isinstance(value, float) and value - value != 0) else self.write(value)


BAR_CELLS = 20
LONGEST_CURRENCY = 12  # characters of its name
LONGEST_WORDS = 400  # characters of a cell: what is longer is nobody's name

WORDS = Notation("", lambda value: harmless(str(value), LONGEST_WORDS), numeric=False)
UNCUT = Notation("", WORDS.write, numeric=False, cut=lambda words, _: words)  # names that are of no use without their end
FIGURES = Notation("", WORDS.write)  # words made of numbers ("8 steps of 64"): they stand where numbers do
PATH = Notation("", WORDS.write, numeric=False, cut=names.innermost)  # of code or modules: the innermost tells most
KERNEL = Notation("", lambda value: names.kernel(harmless(str(value), LONGEST_WORDS)), numeric=False)
COUNT = Notation("1", lambda value: f"{value:,}")
GPUS = Notation("1", lambda value: f"{round(value, 2):,.10g}")  # a slice is a part of one
PERCENT = Notation("ratio", numbers.percent)
PERCENT_1 = Notation("ratio", lambda value: numbers.percent(value, 1))
PERCENT_2 = Notation("ratio", lambda value: numbers.percent(value, 2))
FACTOR = Notation("ratio", numbers.factor)
FACTOR_4 = Notation("ratio", lambda value: f"{value:.4f}")  # of tiles: near 1
FACTOR_3 = Notation("ratio", numbers.factor_of_chain)
BAR = Notation("ratio", lambda value: "█" * _cells(value) + "·" * (BAR_CELLS - _cells(value)), numeric=False)
POINTS = Notation("ratio", lambda value: numbers.fixed(value * 100, 1))
POINTS_2 = Notation("ratio", lambda value: numbers.fixed(value * 100, 2))
FINE_POINTS = Notation("ratio", lambda value: numbers.fixed(value * 100, 3))
PERCENTAGE_POINTS = Notation("points", lambda value: numbers.fixed(value, 1))
GPU_HOURS = Notation("GPU-hours", numbers.hours)
MONEY = Notation("money", numbers.money)
TIME = Notation("ns", seconds)
SECONDS = Notation("s", lambda value: f"{value:,.4g} s")
WATTS = Notation("W", lambda value: f"{value:,.0f} W")
FLOPS = Notation("FLOP", numbers.flops)
BYTES = Notation("B", lambda value: numbers.flops(value, "B"))
BYTE_RATE = Notation("B/s", lambda value: numbers.flops(round(value), "B/s"))
THREE_DIGITS = Notation("1", lambda value: f"{value:,.3g}")
QUANTITY = Notation("1", lambda value: f"{value if abs(value) >= 1e-9 else 0.0:,.4g}")  # under a heading that has the unit
TERAFLOPS = Notation("FLOP/s", lambda value: f"{value / 1e12:,.1f}")  # under a heading that says TFLOP/s
FLOP_RATE = Notation("FLOP/s", lambda value: f"{value / 1e12:,.1f} TFLOP/s")


def change(notation: Notation) -> Notation:
    """Return the notation of a change: with its sign, unless it is shown as nothing.

    >>> change(GPU_HOURS).words(-1.5), change(PERCENTAGE_POINTS).words(12.34), change(PERCENTAGE_POINTS).words(-0.01)
    ('−1.50', '+12.3', '0.0')
    """
    return Notation(notation.unit, lambda value: numbers.signed(value, notation.write), notation.numeric)


@dataclass(frozen=True)
class MoneyTerms:
    """What amounts of money are in: a `currency` ("": nobody named it), and at which price of a GPU-hour they stand.

    The price is the one `given` for all, the `list` price, or what was `paid`: committed and spot prices where there are any.
    """

    currency: str = ""
    price: Literal["given", "list", "paid"] = "given"

    @property
    def notation(self) -> Notation:
        """How amounts are written: with their currency before them.

        >>> MoneyTerms("EUR").notation.words(1234.5), MoneyTerms().notation.words(12)
        ('EUR 1,234', '12.00')
        """
        return Notation(self.currency, lambda value: f"{self.currency} {numbers.money(value)}") if self.currency else MONEY

    @property
    def amounts(self) -> Notation:
        """How amounts are written under a heading that names their currency."""
        return Notation(self.currency, numbers.money) if self.currency else MONEY

    @property
    def at_which_price(self) -> str:
        """At which price of a GPU-hour amounts stand, in words."""
        return {"given": "at the price given", "list": "at list price", "paid": "at the prices paid"}[self.price]

    def words(self, value: float | None) -> str:
        """Return an amount with its currency and its price.

        >>> MoneyTerms("EUR", "list").words(312)
        'EUR 312.00 at list price'
        """
        return f"{self.notation.words(value)} {self.at_which_price}"

    def heading(self, text: str) -> str:
        """Return a heading of a column of amounts, which says what they are in.

        >>> MoneyTerms("EUR").heading("of it ullage"), MoneyTerms().heading("of it ullage")
        ('of it ullage, EUR', 'of it ullage')
        """
        return f"{text}, {self.currency}" if self.currency else text

    def heading_with_price(self, text: str) -> str:
        """Return such a heading that says at which price of a GPU-hour the amounts stand as well.

        >>> MoneyTerms("EUR").heading_with_price("money"), MoneyTerms(price="list").heading_with_price("money")
        ('money at the price given, EUR', 'money at list price')
        """
        return self.heading(f"{text} {self.at_which_price}")


AS_GIVEN = MoneyTerms()


def currency_name(text: str) -> str:
    """Return the name of a currency: EUR, USD, or a site's own such as credits. Raises UllageError for what is none.

    >>> currency_name(" EUR ")
    'EUR'
    """
    name = text.strip()
    if name and (len(name) > LONGEST_CURRENCY or not name.isprintable() or re.search(r"[\s\d.,;|<>&'\"-]", name)):
        raise UllageError(
            f"'{harmless(text, 40)}' can't be the name of a currency",
            f"write EUR, USD, or one word such as credits, of {LONGEST_CURRENCY} letters at most",
        )
    return name


def _cells(value: float) -> int:
    return max(0, min(BAR_CELLS, round(value * BAR_CELLS)))
