"""What a GPU-hour costs: list, committed and spot prices by GPU, place and date, and which team pays.

A GPU-hour is paid at the first committed or spot price that fits it, and where there is none at its list price: the first that fits.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec
import numpy as np
import numpy.typing as npt

from ullage.job_names import plain_name, separate_names
from ullage.reports.fleet.rated import Array, Rated
from ullage.views.notation import AS_GIVEN, MoneyTerms

PURCHASES = ("list", "committed", "spot")
NO_TEAM, SHARED_BY_TEAMS, NOBODY = "no team", "several teams", "not allocated"  # rows of a report that are no team's


class Team(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Whose hours a team pays: those of users and of namespaces, in whose names * stands for any characters."""

    users: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()


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
    """All prices, in the order in which they are looked up; what amounts are in (`terms`); the teams by name; and what a kWh costs."""

    prices: tuple[Price, ...] = ()
    terms: MoneyTerms = AS_GIVEN
    teams: Mapping[str, Team] = field(default_factory=dict)
    kwh_price: float | None = None

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


def _fits(name: str | None, patterns: Iterable[str]) -> bool:
    """Return whether a name fits any pattern, in which * alone stands for other characters.

    >>> _fits("bob[1]", ["bob[*"]), _fits("", ["*"])
    (True, False)
    """
    return bool(name) and any(re.fullmatch(".*".join(map(re.escape, one.split("*"))), name or "", re.DOTALL) for one in patterns)
