"""Who pays for a fleet, and for what: money by how hours were bought, and by team. Parts add up to the cost of all hours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ullage.errors import harmless
from ullage.reports.fleet.prices import NO_TEAM, NOBODY, PURCHASES, PriceTable, RowPrices
from ullage.reports.fleet.rated import NOT_ALLOCATED, Array, Codes, Rated
from ullage.sums.ledger import CODES
from ullage.units import HOUR_MS
from ullage.views.notation import AS_GIVEN, MoneyTerms


@dataclass(frozen=True)
class Purchase:
    """GPU-hours that were bought in one way ("list", "committed", "spot"): what they cost, and what at list price (None: not known)."""

    kind: str
    gpu_hours: float
    cost: float
    list_cost: float | None


@dataclass(frozen=True)
class TeamBill:
    """What a team pays for: all its GPU-hours, those of them held and idle, those short of full, and the money of each.

    `list_cost` is what all hours cost at list price. None: some of the hours have no price.
    """

    team: str
    gpu_hours: float
    held_idle_hours: float
    ullage: float
    cost: float | None
    held_idle_cost: float | None
    ullage_cost: float | None
    list_cost: float | None


@dataclass(frozen=True)
class FleetMoney:
    """What hours cost, in what the `terms` say; None: some of them have no price.

    `cost` is of all hours, `ullage_cost` and `idle_cost` are parts of it: of what falls short of full in trusted series, and of idle time,
    whoever held it. `list_cost` is what all hours cost at list price; `purchases` is `cost` by how hours were bought, `chargeback` the same
    by the team that pays.
    """

    cost: float | None = None
    ullage_cost: float | None = None
    idle_cost: float | None = None
    list_cost: float | None = None
    terms: MoneyTerms = AS_GIVEN
    purchases: tuple[Purchase, ...] = ()
    chargeback: tuple[TeamBill, ...] = ()


def fleet_money(rated: Rated, trusted: npt.NDArray[np.bool_], prices: RowPrices, table: PriceTable) -> FleetMoney:
    """Return what the hours of some rows cost; `trusted` says which of them count for what falls short of full."""
    good = rated.take(trusted)
    idle = rated.column("idle_ms") * rated.weight / HOUR_MS
    known = bool((good.ofu_time > 0).any())
    return FleetMoney(
        cost=_total(rated.hours * prices.paid),
        ullage_cost=_total(good.ullage_hours * prices.paid[trusted]) if known else None,
        idle_cost=_total(idle * prices.paid),
        list_cost=_total(rated.hours * prices.listed),
        terms=table.terms,
        purchases=purchases(rated, prices),
        chargeback=chargeback(with_teams(rated, table), trusted, prices) if table.teams else (),
    )


def _total(amounts: Array) -> float | None:
    """Return the sum of the rows' amounts; None where one of them is not known, or there is none."""
    return float(amounts.sum()) if len(amounts) and not np.isnan(amounts).any() else None


def purchases(rated: Rated, prices: RowPrices) -> tuple[Purchase, ...]:
    """Return what hours cost by how they were bought, as far as they have a price."""
    hours = rated.hours
    found = []
    for code, kind in enumerate(PURCHASES):
        own = prices.bought == code
        if own.any():
            listed = float((hours[own] * prices.listed[own]).sum())
            cost = float((hours[own] * prices.paid[own]).sum())
            found.append(Purchase(kind, float(hours[own].sum()), cost, None if np.isnan(listed) else listed))
    return tuple(found)


def with_teams(rated: Rated, table: PriceTable) -> Rated:
    """Return rows of sums with a column `team`: the team that pays for them (null: none is named); unchanged where there are no teams."""
    if not table.teams or not len(rated):
        return rated
    codes, firsts = rated.alike("user", "namespace")
    words = rated.sums.select(["user", "namespace"]).take(pa.array(firsts)).to_pylist()
    teams = np.array([table.team_of(row["user"], row["namespace"]) for row in words], dtype=object)
    return replace(rated, sums=rated.sums.append_column("team", pa.array(teams[codes].tolist(), pa.string())))


def chargeback(rated: Rated, trusted: npt.NDArray[np.bool_], prices: RowPrices) -> tuple[TeamBill, ...]:
    """Return a bill a team, the dearest first, then what no team pays for and what nobody held; all add up to the fleet.

    Where some hours have no price, the team with the most hours is first. `trusted` says which rows count for what falls short of full.
    """
    if not len(rated):
        return ()
    nobody = np.isin(rated.column("owner"), NOT_ALLOCATED)
    labels = [NOBODY if free else team or NO_TEAM for free, team in zip(nobody.tolist(), rated.words("team"), strict=True)]
    names, codes = np.unique(labels, return_inverse=True)
    bills = _bills(rated, trusted, prices, [str(name) for name in names], codes.reshape(-1).astype(np.int64))
    priced = all(one.cost is not None for one in bills)
    return tuple(sorted(bills, key=lambda one: (_LAST.get(one.team, 0), -((one.cost or 0.0) if priced else one.gpu_hours), one.team)))


_LAST = {NO_TEAM: 1, NOBODY: 2}


def _bills(rated: Rated, trusted: npt.NDArray[np.bool_], prices: RowPrices, names: Sequence[str], codes: Codes) -> list[TeamBill]:
    hours = rated.hours
    idle = np.where(rated.column("owner") == CODES["held_idle"], hours, 0.0)
    short = np.where(trusted, rated.ullage_hours, 0.0)

    def added(values: Array) -> list[float]:
        return [float(value) for value in np.bincount(codes, values, len(names))]

    def known(values: Array) -> list[float | None]:
        return [None if value != value else value for value in added(values)]

    columns = (added(hours), added(idle), added(short))
    costs = (known(hours * prices.paid), known(idle * prices.paid), known(short * prices.paid), known(hours * prices.listed))
    return [TeamBill(name, *row) for name, *row in zip(names, *columns, *costs, strict=True)]


def unpriced_note(rated: Rated, prices: RowPrices, table: PriceTable) -> list[str]:
    """Say what has no price, where anything has one: money of it and of all is not known."""
    missing = np.isnan(prices.paid)
    if not table.prices or not missing.any():
        return []
    hours = float(rated.hours[missing].sum())
    chips = sorted({rated.chips[chip].name if chip >= 0 else "GPUs that are not known" for chip in rated.chip[missing].tolist()})
    listed = ", ".join(harmless(name, 60) for name in chips[:3])
    return [f"{hours:,.1f} GPU-hours have no price ({listed}), so the cost of all hours is not known; add a price for them, or --price"]
