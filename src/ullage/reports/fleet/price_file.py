"""A file of prices and teams, in TOML; it may be the section `money` of a file that says other things as well.

currency = "EUR"
kwh_price = 0.25                # of energy

[node_sets]
train = ["node[001-128]", "dgx-*"]

[[prices]]
gpu = "H100"
kind = "committed"              # list, committed or spot
amount = 2.40                   # for a GPU-hour
nodes = "train"
since = 2026-08-01

[teams.vision]
users = ["ann", "bob"]
namespaces = ["vision-*"]
"""

from __future__ import annotations

import datetime
import math
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import msgspec

from ullage.errors import UllageError, did_you_mean, harmless
from ullage.gpus.chip import find
from ullage.reports.fleet.prices import NO_TEAM, NOBODY, SHARED_BY_TEAMS, Price, PriceTable, Team
from ullage.sources.jobs.hostlist import expand
from ullage.toml_lines import line_of, lines_of_element, syntax_mistake
from ullage.views.notation import MoneyTerms, currency_name
from ullage.written_values import expanded_path

SECTION = "money"  # of a file that says other things as well


class WrittenPrice(msgspec.Struct, forbid_unknown_fields=True):
    """A price as a file writes it: the amount for a GPU-hour, how the hour was bought, and what it is for ("": for everything)."""

    amount: float
    kind: Literal["list", "committed", "spot"] = "list"
    gpu: str = ""
    cluster: str = ""
    nodes: str = ""
    since: Any = None
    until: Any = None


class WrittenTable(msgspec.Struct, forbid_unknown_fields=True):
    """A table of prices as a file writes it; `kwh_price` is what a kWh costs."""

    currency: str = ""
    kwh_price: Annotated[float, msgspec.Meta(ge=0)] | None = None
    prices: tuple[WrittenPrice, ...] = ()
    node_sets: dict[str, tuple[str, ...]] = {}
    teams: dict[str, Team] = {}


class PriceFileError(UllageError):
    """What is wrong in a file of prices; `line` is where (None: that is not known)."""

    def __init__(self, problem: str, hint: str, line: int | None = None) -> None:
        super().__init__(problem, hint)
        self.line = line


@dataclass(frozen=True)
class _PriceFile:
    """A file of prices by the name that it was given, and its text."""

    place: str
    text: str

    def error(self, problem: str, hint: str, *, price: int | None = None, key: str = "", line: int | None = None) -> PriceFileError:
        """Return the error that names the line of a key: of the price of that number, or of the file."""
        within = lines_of_element(self.text, "prices", price) if price else None
        line = line or line_of(self.text, key, within) or (within[0] if within else None)
        where = f"{self.place}{'' if line is None else f' line {line}'}"
        return PriceFileError(f"{where}: {'' if price is None else f'price {price} '}{problem}", hint, line)


def price_table(file: str | None, prices: Mapping[str, float], currency: str | None) -> PriceTable:
    """Return the prices of a file, and behind them those that were given by GPU name ("" for every other).

    Raises UllageError for a file that can't be read, and for a currency beside another one.
    """
    given = tuple(Price(amount, chip=find(name).name if name else "") for name, amount in sorted(prices.items(), reverse=True))
    if file is None:
        return PriceTable(given, MoneyTerms(currency_name(currency or "")))
    table = read_price_table(file)
    stated = table.terms.currency
    if currency and stated and currency != stated:
        problem = f"--currency is {harmless(currency, 20)}, and the prices of {harmless(file)} are in {stated}"
        raise UllageError(problem, f"leave --currency out, or give --prices in {harmless(currency, 20)}")
    return replace(table, prices=(*table.prices, *given), terms=replace(table.terms, currency=currency_name(currency or stated)))


def read_price_table(name: str) -> PriceTable:
    """Return the prices and teams of a TOML file: all of it, or its section `money`. Raises PriceFileError that names what is wrong."""
    place = harmless(name, 200)
    try:
        file = _PriceFile(place, expanded_path(name).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        problem = f"the file of prices {place} can't be read: {getattr(error, 'strerror', None) or 'it is not text'}"
        raise PriceFileError(problem, "name a TOML file with [[prices]] after --prices") from error
    try:
        said = tomllib.loads(file.text)
        table = msgspec.convert(said.get(SECTION, said), WrittenTable)
    except tomllib.TOMLDecodeError as error:
        line, problem = syntax_mistake(error, file.text)
        raise file.error(f"this is not TOML: {harmless(problem, 120)}", _HINT, line=line) from error
    except msgspec.ValidationError as error:
        raise _wrong_value(file, str(error)) from error
    _refuse_names(table.teams, file)
    made = tuple(_price(one, number, table.node_sets, file) for number, one in enumerate(table.prices, 1))
    try:
        currency = currency_name(table.currency)
    except UllageError as error:
        raise file.error(error.problem, error.hint, key="currency") from error
    return PriceTable(made, MoneyTerms(currency, _which_price(made)), table.teams, table.kwh_price)


_HINT = 'write [[prices]] with amount = 2.40, and beside it gpu = "H100", kind = "committed", nodes, cluster, since or until'
_KINDS = {"float": "a number", "int": "a number", "str": "text", "array": "a list", "object": "a table", "bool": "true or false"}


def _wrong_value(file: _PriceFile, message: str) -> PriceFileError:
    """Return the error for what msgspec says of a value: "Expected `float`, got `str` - at `$.prices[0].amount`"."""
    said, _, path = message.partition(" - at `")
    number = re.match(r"\$(?:\.prices\[(\d+)\])?", path)
    price = None if number is None or number[1] is None else int(number[1]) + 1
    field = re.search(r"(?:unknown|required) field `([^`]*)`", said)
    key = field[1] if field else next(iter(re.findall(r"\.(\w+)(?:\[[^]]*\])?`?$", path)), "")
    words = re.sub(r"`(\w+)(?: \| null)?`", lambda found: _KINDS.get(found[1], f"'{found[1]}'"), said[:1].lower() + said[1:])
    problem = f"has a wrong {key}: {words}" if price else f"{key or SECTION}: {words}"
    if field:
        problem = f"has no {key}" if "required" in said else f"{'has' if price else 'there is'} the unknown key '{key}'"
    return file.error(harmless(problem, 200), _HINT, price=price, key=key or SECTION)


def _refuse_names(teams: Iterable[str], file: _PriceFile) -> None:
    for team in teams:
        if not team.strip():
            raise file.error(f"the team '{harmless(team, 60)}' has no name", "write [teams.vision] with the name of the team")
        if team.strip().casefold() in (NO_TEAM, SHARED_BY_TEAMS, NOBODY):
            problem = f"the team '{harmless(team, 60)}' has the name of a row of the report, which is of no team"
            raise file.error(problem, "give the team another name", key=team)


def _which_price(prices: Iterable[Price]) -> Literal["list", "paid"]:
    return "paid" if any(one.kind != "list" for one in prices) else "list"


def _price(one: WrittenPrice, number: int, node_sets: Mapping[str, Sequence[str]], file: _PriceFile) -> Price:
    if not 0 <= one.amount < math.inf:
        hint = "write what a GPU-hour costs, 0 or more: amount = 2.40"
        raise file.error(f"has the amount {one.amount:g}", hint, price=number, key="amount")
    if one.nodes and one.nodes not in node_sets:
        hint = did_you_mean(one.nodes, node_sets, "[node_sets]") if node_sets else 'write [node_sets] with train = ["node[001-128]"]'
        problem = f"is for nodes = '{harmless(one.nodes, 60)}', which [node_sets] does not name"
        raise file.error(problem, hint, price=number, key="nodes")
    since, until = (_time(value, number, name, file) for name, value in (("since", one.since), ("until", one.until)))
    if since is not None and until is not None and since >= until:
        hint = "write a since that is earlier than until, or leave one of them out"
        raise file.error("ends before it begins", hint, price=number, key="until")
    named = node_sets.get(one.nodes, ())
    try:
        chip, hosts = find(one.gpu).name if one.gpu else "", [host for text in named if "*" not in text for host in expand(text)]
    except UllageError as error:
        raise file.error(f"can't be used: {error.problem}", error.hint, price=number, key="gpu") from error
    patterns = tuple(text for text in named if "*" in text)
    return Price(one.amount, one.kind, chip, one.cluster, frozenset(hosts), patterns, since, until)


def _time(value: Any, number: int, key: str, file: _PriceFile) -> int | None:
    """Return a date or a time of TOML in ms since 1970; UTC where it says no zone.

    >>> _time(datetime.date(2026, 8, 10), 1, "since", _PriceFile("", ""))
    1786320000000
    """
    if value is None:
        return None
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        value = datetime.datetime(value.year, value.month, value.day, tzinfo=datetime.UTC)
    if not isinstance(value, datetime.datetime):
        problem = f"has {key} = '{harmless(str(value), 40)}', which is not a date or a time"
        raise file.error(problem, f"write {key} = 2026-08-01 or 2026-08-01T06:00:00Z, without quotes", price=number, key=key)
    aware = value if value.tzinfo is not None else value.replace(tzinfo=datetime.UTC)
    return round(aware.timestamp() * 1000)
