"""Tables of an HTML report: words to the left, numbers to the right, and beside each number its plain value to sort by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ullage.views.markup import Child, Markup, element, known


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


def more(count: int) -> Markup | None:
    """Return a line that says how many rows are not shown, or None when all are."""
    return element("p", f"… {count:,} more", class_="more") if count > 0 else None


def listed(items: Sequence[Child]) -> Markup:
    """Return a list of notes."""
    return element("ul", [element("li", item) for item in items], class_="notes")
