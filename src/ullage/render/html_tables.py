"""Tables of an HTML report: words to the left, numbers to the right, and beside each number its plain value to sort by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ullage.errors import harmless
from ullage.metrics.telemetry import LABELS, Tree
from ullage.render.markup import Child, Markup, element, known
from ullage.render.numbers import UNKNOWN, factor, hours, money, percent
from ullage.reports.agreement import Agreement, Comparison
from ullage.reports.fleet import FleetReport
from ullage.reports.groups import Group

ROWS = 500
FINDINGS = 50
FURTHEST = 20


@dataclass(frozen=True)
class Cell:
    """A cell: what a person reads, the number to sort by (None: words, or unknown), and a class for its looks."""

    shown: str | Markup
    value: float | None = None
    look: str | None = None


def table(caption: str, head: Sequence[str], rows: Sequence[Sequence[Cell]], *, words: int = 1, sorts: bool = False) -> Markup:
    """Return a table in a container of its own that scrolls. The first `words` columns are words; the first cell heads its row."""
    look = ["words" if number < words else None for number in range(len(head))]
    titles = [element("th", title, scope="col", class_=look[number]) for number, title in enumerate(head)]
    body = [
        element(
            "tr",
            _cell("th", row[0], look[0], scope="row"),
            [_cell("td", cell, column) for cell, column in zip(row[1:], look[1:], strict=True)],
        )
        for row in rows
    ]
    classes = " ".join(name for name, wanted in (("sorts", sorts), ("numbers", not words)) if wanted) or None
    whole = element("table", element("thead", element("tr", titles)), element("tbody", body), class_=classes, aria_label=caption)
    return element("div", whole, class_="scroll", tabindex="0", role="region", aria_label=caption)


def _cell(name: str, cell: Cell, look: str | None, **more: object) -> Markup:
    classes = " ".join(word for word in (look, cell.look) if word) or None
    value = known(cell.value)
    return element(name, cell.shown, data_v=None if value is None else f"{value:.6g}", class_=classes, **more)


def groups(report: FleetReport, rows: Sequence[Group], by: str) -> Markup:
    """Return the table of groups: the first 500, a column for each factor of the tree that any of them has."""
    shown = rows[:ROWS]
    columns = _columns(shown)
    doubted = any(group.trusted_share < 1 for group in shown)
    priced = any(group.cost is not None for group in shown)
    head = [
        by,
        "GPUs",
        "GPU-hours",
        *(["trusted"] if doubted else []),
        *(label for _, label in columns),
        "OFU",
        "ullage, GPU-hours",
        *(["cost"] if priced else []),
    ]
    body = [_group(group, [name for name, _ in columns], doubted, priced) for group in shown]
    mixed = len({group.method for group in shown}) > 1 or (shown and shown[0].method != report.method)
    exact = element("p", "OFU marked * is exact: it comes from cycle counters, not from clock samples.", class_="more") if mixed else None
    found = table(f"by {by}", head, body, sorts=True)
    return Markup(found + (exact or "") + (more(len(rows) - ROWS) or ""))


def _columns(rows: Sequence[Group]) -> list[tuple[str, str]]:
    """Return (name, label) of the factors that at least one group has, merged ones among them, in the order of the chain."""
    seen = {f.name: (f.label, f.stands_for) for row in rows for f in row.tree.factors if known(f.value) is not None}
    order = list(LABELS)
    place = {name: (order.index(stands_for[0]), len(stands_for)) for name, (_, stands_for) in seen.items()}
    return [(name, seen[name][0]) for name in sorted(seen, key=place.__getitem__)]


def _group(group: Group, columns: Sequence[str], doubted: bool, priced: bool) -> list[Cell]:
    ofu, ullage = known(group.ofu), known(group.ullage)
    cells = [Cell(harmless(group.key)), Cell(f"{group.gpus:,}", group.gpus), Cell(hours(known(group.gpu_hours)), group.gpu_hours)]
    if doubted:
        cells.append(Cell(percent(group.trusted_share, 1), group.trusted_share, "doubt" if group.trusted_share < 1 else None))
    cells += [Cell(factor(value), value) for value in (_value(group.tree, name) for name in columns)]
    cells += [
        Cell(percent(ofu, 1) + ("*" if group.method != "sampled" else ""), ofu, "strong"),
        Cell(hours(ullage).replace("-", "−"), ullage),
    ]
    return [*cells, Cell(money(known(group.cost)), group.cost)] if priced else cells


def _value(tree: Tree, name: str) -> float | None:
    return known(next((f.value for f in tree.factors if f.name == name), None))


def findings(report: FleetReport) -> Markup | None:
    """Return the table of what trust found, the first 50; None when there is nothing."""
    if not report.findings:
        return None
    body = [
        [
            Cell(harmless(found.gpu)),
            Cell(harmless(found.place)),
            Cell(found.verdict, look=None if found.trusted else "doubt"),
            Cell("counted" if found.trusted else "left out"),
            Cell(harmless(found.evidence, 400)),
            Cell(hours(known(found.gpu_hours)), found.gpu_hours),
        ]
        for found in report.findings[:FINDINGS]
    ]
    found = table("findings", ["GPU", "host", "verdict", "in OFU", "evidence", "GPU-hours"], body, words=5, sorts=True)
    return Markup(found + (more(len(report.findings) - FINDINGS) or ""))


def sizes(found: Agreement) -> Markup:
    """Return table III of the OFU paper: by the number of GPUs, reported MFU and its distance from OFU, each ± its standard deviation."""
    body = [
        [
            Cell(f"{row.gpus:,}", row.gpus),
            Cell(f"{row.jobs:,}", row.jobs),
            Cell(_spread(row.mfu, row.mfu_deviation), row.mfu),
            Cell(_spread(row.error, row.error_deviation), row.error),
        ]
        for row in found.rows
    ]
    return table("agreement by number of GPUs", ["GPUs", "jobs", "MFU, %", "|MFU − OFU|, points"], body, words=0, sorts=True)


def _spread(mean: float, deviation: float | None) -> str:
    if known(mean) is None:
        return UNKNOWN
    return f"{mean * 100:.1f}" if deviation is None else f"{mean * 100:.1f} ± {deviation * 100:.1f}"  # one job has no spread


def furthest(found: Agreement) -> Markup:
    """Return the table of the 20 jobs whose MFU lies furthest from their OFU."""
    body = [_comparison(job) for job in found.jobs[:FURTHEST]]
    listed = table("jobs furthest apart", ["job", "GPUs", "MFU", "OFU", "(MFU − OFU) / OFU"], body, sorts=True)
    return Markup(listed + (more(len(found.jobs) - FURTHEST) or ""))


def _comparison(job: Comparison) -> list[Cell]:
    mfu, ofu, apart = known(job.mfu), known(job.ofu), known(job.relative_error)
    sign = "" if apart is None else "+" if apart > 0 else "−" if apart < 0 else ""
    relative = UNKNOWN if apart is None else f"{sign}{percent(abs(apart))}"
    return [
        Cell(harmless(job.job)),
        Cell(f"{job.gpus:,}", job.gpus),
        Cell(percent(mfu, 1), mfu),
        Cell(percent(ofu, 1), ofu),
        Cell(relative, apart),
    ]


def noise(report: FleetReport) -> Markup | None:
    """Return table I of the OFU paper for this fleet: what sampling the clock at longer intervals does to OFU; None when not measured."""
    if not report.noise:
        return None
    body = [
        [
            Cell(f"{row.interval:,.4g} s", row.interval),
            Cell(f"{row.phases:,}", row.phases),
            Cell(_points(row.mean_deviation), row.mean_deviation),
            Cell(_points(row.bound), row.bound),
        ]
        for row in report.noise
    ]
    return table("sampling noise", ["clock sampled every", "phases", "mean deviation, points", "95 % stay below, points"], body, words=0)


def _points(value: float) -> str:
    return UNKNOWN if known(value) is None else f"{value * 100:.3f}"


def more(count: int) -> Markup | None:
    """Return a line that says how many rows are not shown, or None when all are."""
    return element("p", f"… {count:,} more", class_="more") if count > 0 else None


def listed(items: Sequence[Child]) -> Markup:
    """Return a list of notes."""
    return element("ul", [element("li", item) for item in items], class_="notes")
