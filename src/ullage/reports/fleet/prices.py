"""What a GPU-hour costs: a table of list, committed and spot prices by GPU, place and date, and which team pays.

    currency = "EUR"

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

A GPU-hour is paid at the first committed or spot price that fits it, and where there is none at its list price: the first that fits.
"""

from __future__ import annotations

import datetime
import math
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from ullage.errors import UllageError, did_you_mean, harmless
from ullage.gpus.chip import find
from ullage.job_names import plain_name, separate_names
from ullage.reports.fleet.rated import Array, Rated
from ullage.sources.jobs.hostlist import expand
from ullage.views.notation import AS_GIVEN, MoneyTerms, currency_name
from ullage.written_values import expanded_path

PURCHASES = ("list", "committed", "spot")
SECTION = "money"  # of a file that says other things as well
NO_TEAM, SHARED_BY_TEAMS, NOBODY = "no team", "several teams", "not allocated"  # rows of a report that are no team's


class WrittenPrice(msgspec.Struct, forbid_unknown_fields=True):
    """A price as a file writes it: the amount for a GPU-hour, how the hour was bought, and what it is for ("": for everything)."""

    amount: float
    kind: Literal["list", "committed", "spot"] = "list"
    gpu: str = ""
    cluster: str = ""
    nodes: str = ""
    since: Any = None
    until: Any = None


class Team(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Whose hours a team pays: those of users and of namespaces, in whose names * stands for any characters."""

    users: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()


class WrittenTable(msgspec.Struct, forbid_unknown_fields=True):
    """A table of prices as a file writes it."""

    currency: str = ""
    prices: tuple[WrittenPrice, ...] = ()
    node_sets: dict[str, tuple[str, ...]] = {}
    teams: dict[str, Team] = {}


@dataclass(frozen=True)
class Price:
    """A price for a GPU-hour: of a chip ("": of every one), in a cluster, from a time until another (ms); on some `hosts`, or on those
    whose names fit `patterns`, where either is given."""

    amount: float
    kind: str = "list"
    chip: str = ""
    cluster: str = ""
    hosts: frozenset[str] = frozenset()
    patterns: tuple[str, ...] = ()
    since: int | None = None
    until: int | None = None

    def fits(self, chip: str | None, cluster: str | None, host: str | None, time: int) -> bool:
        """Return whether this is a price of a GPU at a time (ms)."""
        return (
            (not self.chip or self.chip == chip)
            and (not self.cluster or self.cluster == cluster)
            and (not (self.hosts or self.patterns) or host in self.hosts or _fits(host, self.patterns))
            and (self.since is None or time >= self.since)
            and (self.until is None or time < self.until)
        )


@dataclass(frozen=True)
class PriceTable:
    """All prices, in the order in which they are looked up; what amounts are in (`terms`); and the teams by name."""

    prices: tuple[Price, ...] = ()
    terms: MoneyTerms = AS_GIVEN
    teams: Mapping[str, Team] = field(default_factory=dict)

    def edges(self, window: tuple[int, int]) -> list[int]:
        """Return the times (ms) inside a window at which a price begins or ends."""
        times = {time for price in self.prices for time in (price.since, price.until) if time is not None}
        return sorted(time for time in times if window[0] < time < window[1])

    def listed(self, chip: str | None, cluster: str | None, host: str | None, time: int) -> float | None:
        """Return the list price of a GPU-hour; None where the table has none."""
        return next((one.amount for one in self.prices if one.kind == "list" and one.fits(chip, cluster, host, time)), None)

    def paid(self, chip: str | None, cluster: str | None, host: str | None, time: int) -> tuple[float, str] | None:
        """Return what a GPU-hour is paid at, and how it was bought; None where the table has no price."""
        bought = (one for one in self.prices if one.kind != "list" and one.fits(chip, cluster, host, time))
        if (first := next(bought, None)) is not None:
            return first.amount, first.kind
        listed = self.listed(chip, cluster, host, time)
        return None if listed is None else (listed, "list")

    def team_of(self, user: str | None, namespace: str | None) -> str | None:
        """Return the team that pays for the hours of a user in a namespace: by the user first; None where no team has either.

        >>> PriceTable(teams={"a": Team(users=("ann",)), "b": Team(namespaces=("b-*",))}).team_of("ann,bob", "b-1")
        'several teams'
        """
        for kind, word in (("users", user), ("namespaces", namespace)):
            found = {self._team(kind, plain_name(name)) for name in separate_names(word or "")}
            if found - {None}:
                return SHARED_BY_TEAMS if len(found) > 1 else found.pop()
        return None

    def _team(self, kind: str, name: str) -> str | None:
        return next((team for team, own in self.teams.items() if _fits(name, getattr(own, kind))), None)


@dataclass(frozen=True)
class RowPrices:
    """What a GPU-hour of each row of sums costs (NaN: no price): as it was `paid` and at its `listed` price.

    `bought` is how, as the place in `PURCHASES`; -1: there is no price.
    """

    paid: Array
    listed: Array
    bought: npt.NDArray[np.int64]

    def take(self, rows: npt.NDArray[np.bool_]) -> RowPrices:
        """Return the prices of some rows."""
        return RowPrices(self.paid[rows], self.listed[rows], self.bought[rows])


def row_prices(rated: Rated, table: PriceTable) -> RowPrices:
    """Return what each row of sums costs. No price begins or ends inside a row: see `PriceTable.edges`."""
    if not table.prices:
        unknown = np.full(len(rated), np.nan)
        return RowPrices(unknown, unknown, np.full(len(rated), -1, np.int64))
    times = rated.column("start_ms").astype(np.int64) if len(rated) else np.zeros(0, np.int64)
    epochs = np.searchsorted(np.array(table.edges((-(2**62), 2**62)), np.int64), times, side="right")
    places, firsts = rated.alike("cluster", "host")
    words = rated.sums.select(["cluster", "host"]).take(firsts).to_pylist() if len(rated) else []
    keys = np.stack([places, rated.chip, epochs], axis=1) if len(rated) else np.zeros((0, 3), np.int64)
    distinct, first, codes = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    found = [
        _row_price(table, rated.chips[chip].name if chip >= 0 else None, words[place], int(times[row]))
        for (place, chip, _), row in zip(distinct.tolist(), first.tolist(), strict=True)
    ]
    paid, listed, bought = (np.array(column) for column in zip(*found, strict=True)) if found else (np.zeros(0),) * 3
    codes = codes.reshape(-1)
    return RowPrices(paid[codes], listed[codes], bought.astype(np.int64)[codes])


def _row_price(table: PriceTable, chip: str | None, place: Mapping[str, str | None], time: int) -> tuple[float, float, int]:
    paid = table.paid(chip, place["cluster"], place["host"], time)
    listed = table.listed(chip, place["cluster"], place["host"], time)
    none = math.nan
    return (none if paid is None else paid[0], none if listed is None else listed, -1 if paid is None else PURCHASES.index(paid[1]))


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
        raise UllageError(f"{harmless(file)} is in {stated}, and --currency is {harmless(currency, 20)}", "leave one of them out")
    return replace(table, prices=(*table.prices, *given), terms=replace(table.terms, currency=currency_name(currency or stated)))


def read_price_table(name: str) -> PriceTable:
    """Return the prices and teams of a TOML file: all of it, or its section `money`. Raises UllageError that names what is wrong."""
    path, place = expanded_path(name), harmless(name, 200)
    try:
        said = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UllageError(f"the prices {place} can't be read: {error.strerror}", "name a TOML file with [[prices]]") from error
    except ValueError as error:
        raise UllageError(f"{place} is not TOML: {harmless(str(error), 120)}", _HINT) from error
    try:
        table = msgspec.convert(said.get(SECTION, said), WrittenTable)
    except msgspec.ValidationError as error:
        raise UllageError(f"{place}: {harmless(str(error), 200)}", _HINT) from error
    for team in table.teams:
        _refuse_name(team, place)
    made = tuple(_price(one, number, table.node_sets, place) for number, one in enumerate(table.prices, 1))
    return PriceTable(made, MoneyTerms(currency_name(table.currency), _which_price(made)), table.teams)


_HINT = 'write [[prices]] with amount = 2.40, and beside it gpu = "H100", kind = "committed", nodes, cluster, since or until'


def _refuse_name(team: str, place: str) -> None:
    if not team.strip():
        raise UllageError(f"{place}: the team '{harmless(team, 60)}' has no name", "write [teams.vision] with the name of the team")
    if team.strip().casefold() in (NO_TEAM, SHARED_BY_TEAMS, NOBODY):
        problem = f"{place}: the team '{harmless(team, 60)}' has the name of a row of the report, which is of no team"
        raise UllageError(problem, "give the team another name")


def _which_price(prices: Iterable[Price]) -> Literal["list", "paid"]:
    return "paid" if any(one.kind != "list" for one in prices) else "list"


def _price(one: WrittenPrice, number: int, node_sets: Mapping[str, Sequence[str]], place: str) -> Price:
    where = f"price {number} of {place}"
    if not 0 <= one.amount < math.inf:
        raise UllageError(f"{where} is {one.amount:g}", "a price is an amount from 0 on")
    if one.nodes and one.nodes not in node_sets:
        hint = did_you_mean(one.nodes, node_sets, "[node_sets]") if node_sets else 'write [node_sets] with train = ["node[001-128]"]'
        raise UllageError(f"{where} names the nodes '{harmless(one.nodes, 60)}', and no set of nodes is called so", hint)
    since, until = _time(one.since, where), _time(one.until, where)
    if since is not None and until is not None and since >= until:
        raise UllageError(f"{where} ends before it begins", "since comes before until")
    named = node_sets.get(one.nodes, ())
    return Price(
        amount=one.amount,
        kind=one.kind,
        chip=find(one.gpu).name if one.gpu else "",
        cluster=one.cluster,
        hosts=frozenset(host for text in named if "*" not in text for host in expand(text)),
        patterns=tuple(text for text in named if "*" in text),
        since=since,
        until=until,
    )


def _time(value: Any, where: str) -> int | None:
    """Return a date or a time of TOML in ms since 1970; UTC where it says no zone.

    >>> _time(datetime.date(2026, 8, 10), "")
    1786320000000
    """
    if value is None:
        return None
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        value = datetime.datetime(value.year, value.month, value.day, tzinfo=datetime.UTC)
    if not isinstance(value, datetime.datetime):
        raise UllageError(f"{where} has the time '{harmless(str(value), 40)}'", "write since = 2026-08-01, without quotes")
    aware = value if value.tzinfo is not None else value.replace(tzinfo=datetime.UTC)
    return round(aware.timestamp() * 1000)


def _fits(name: str | None, patterns: Iterable[str]) -> bool:
    """Return whether a name fits any pattern, in which * alone stands for other characters.

    >>> _fits("bob[1]", ["bob[*"]), _fits("", ["*"])
    (True, False)
    """
    return bool(name) and any(re.fullmatch(".*".join(map(re.escape, one.split("*"))), name or "", re.DOTALL) for one in patterns)
