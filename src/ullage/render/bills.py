"""Money of a fleet as a report shows it: columns beside hours, how hours were bought, and what each team pays."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.reports.fleet.fleet import FleetReport
from ullage.views.markup import known
from ullage.views.notation import GPU_HOURS, PERCENT_1, MoneyTerms
from ullage.views.view import Column, Part, Section, Table, Value


def money_column(terms: MoneyTerms, heading: str, key: str) -> Column:
    """Return a column of amounts, which says what they are in."""
    return Column(terms.heading(heading), terms.amounts, key=key)


def money_columns(terms: MoneyTerms) -> list[Column]:
    """Return the columns of what hours cost, the part of it that falls short of full, and where it was paid what they cost at list price.

    A total and its part have names of their own, and both say their currency.
    """
    own = "cost of all hours" if terms.price == "given" else f"cost of all hours {terms.at_which_price}"
    found = [money_column(terms, own, "cost"), money_column(terms, "of it ullage", "ullage_cost")]
    return [*found, money_column(terms, "all hours at list price", "list_cost")] if terms.price == "paid" else found


def bill_sections(report: FleetReport) -> Iterator[Section]:
    """Yield what each team pays, and how the hours were bought, where a file of prices tells of teams and of purchases."""
    if report.money.chargeback:
        yield Section("chargeback", "Who pays", [_chargeback(report)], _CHARGEBACK)
    if report.money.purchases and report.money.terms.price == "paid":
        yield Section("purchases", "How the hours were bought", [_purchases(report)], _PURCHASES)


def _chargeback(report: FleetReport) -> Part:
    terms = report.money.terms
    priced = any(known(bill.cost) is not None for bill in report.money.chargeback)
    hours = [Column("GPU-hours", GPU_HOURS), Column("of them held idle", GPU_HOURS), Column("of them ullage", GPU_HOURS)]
    cost, ullage, *at_list = money_columns(terms)
    money = [cost, money_column(terms, "of it held idle", "held_idle_cost"), ullage, *at_list]
    rows: list[list[Value]] = []
    for bill in report.money.chargeback:
        listed = [bill.list_cost] if at_list else []
        row: list[Value] = [bill.team, bill.gpu_hours, bill.held_idle_hours, bill.ullage]
        rows.append([*row, *([bill.cost, bill.held_idle_cost, bill.ullage_cost, *listed] if priced else [])])
    last: list[Value] = ["= all", *(_added([row[place] for row in rows]) for place in range(1, len(rows[0])))]
    return Table("chargeback", [Column("team"), *hours, *(money if priced else [])], rows, title="By team", last=[last])


def _purchases(report: FleetReport) -> Part:
    terms = report.money.terms
    columns = [
        Column("bought"),
        Column("GPU-hours", GPU_HOURS),
        Column("share", PERCENT_1),
        money_column(terms, "cost", "cost"),
        money_column(terms, "at list price", "list_cost"),
    ]
    whole = sum(one.gpu_hours for one in report.money.purchases)
    rows: list[list[Value]] = [
        [one.kind, one.gpu_hours, one.gpu_hours / whole if whole else None, one.cost, one.list_cost] for one in report.money.purchases
    ]
    last: list[Value] = ["= all that is priced", whole, 1.0, *(_added([row[place] for row in rows]) for place in (3, 4))]
    return Table("purchases", columns, rows, title="By purchase", last=[last])


def _added(values: list[Value]) -> float | None:
    """Return the sum of amounts; None where one is not known."""
    amounts = [value for value in values if isinstance(value, int | float)]
    return sum(amounts) if len(amounts) == len(values) else None


_CHARGEBACK = (
    "Each GPU-hour that was observed is in one row: its user's team, else its namespace's; all rows add up to the cost of all hours. "
    "“Not allocated” are hours that nobody held; “no team” are those of users and namespaces that no team of the file names."
)
_PURCHASES = (
    "A GPU-hour counts as committed or spot where the file has such a price for its GPU, its host and its time, and else at list price. "
    "Prices that change within the window count from the second on at which they change."
)
