"""What GPU-hours cost, in decimals, a second after another: the slow reference for prices that change within a window."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

PURCHASES = ("list", "committed", "spot")


@dataclass(frozen=True)
class ObservedSpan:
    """A GPU that was observed from a second until another, with whose hours these were and how much of them was useful (OFU)."""

    gpu: str
    model: str
    host: str
    job: str
    user: str
    start: int
    end: int
    ofu: Decimal


def price_of(span: ObservedSpan, second: int, table: dict[str, Any], kinds: tuple[str, ...]) -> tuple[str, Decimal] | None:
    """Return the first price of some kinds that fits a second of a GPU."""
    for one in table["prices"]:
        hosts = table["node_sets"].get(one.get("nodes", ""), ())
        fits = (
            one["kind"] in kinds
            and one.get("gpu", span.model) == span.model
            and (not hosts or any(fnmatch.fnmatchcase(span.host, host) for host in hosts))
            and one.get("since", second) <= second < one.get("until", second + 1)
        )
        if fits:
            return one["kind"], Decimal(one["amount"])
    return None


def seconds_priced(span: ObservedSpan, table: dict[str, Any]) -> Iterator[tuple[str, Decimal, Decimal]]:
    """Yield of every second how it was bought, what it cost, and what at list price."""
    for second in range(span.start, span.end):
        listed = price_of(span, second, table, ("list",))
        bought = price_of(span, second, table, ("committed", "spot")) or listed
        assert bought is not None and listed is not None, "the reference's tables end with a list price for everything"
        yield bought[0], bought[1] / 3600, listed[1] / 3600


def team_of(user: str, table: dict[str, Any]) -> str:
    """Return the first team that names a user."""
    return next((name for name, users in table["teams"].items() if any(fnmatch.fnmatchcase(user, one) for one in users)), "no team")


def money_by(spans: list[ObservedSpan], table: dict[str, Any]) -> dict[tuple[str, str], dict[str, Decimal]]:
    """Return cost, list cost and the cost of what falls short of full, by ("job", name), ("team", name), ("bought", kind), ("all", "")."""
    found: dict[tuple[str, str], dict[str, Decimal]] = {}
    for span in spans:
        for kind, cost, listed in seconds_priced(span, table):
            for key in (("job", span.job), ("team", team_of(span.user, table)), ("bought", kind), ("all", "")):
                own = found.setdefault(key, {"cost": Decimal(0), "list_cost": Decimal(0), "ullage_cost": Decimal(0)})
                own["cost"] += cost
                own["list_cost"] += listed
                own["ullage_cost"] += cost * (1 - span.ofu)
    return found
