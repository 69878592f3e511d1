"""Measured ceilings, bursts beside what was sustained and what the maker states, as text, as HTML and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from ullage.errors import harmless
from ullage.gpus.chip import Chip
from ullage.gpus.measured import Ceiling, Ceilings, conditions
from ullage.gpus.precision import PRECISIONS
from ullage.metrics.metric import ratio
from ullage.reports.roofline import LEVELS
from ullage.views.markup import Markup, element
from ullage.views.numbers import UNKNOWN, percent
from ullage.views.table import table

HEADS = ("", "burst", "sustained", "", "of burst", "of stated")
SCALE = 1e12  # T


@dataclass(frozen=True)
class _Line:
    """One precision or level: what a burst reached and what was sustained, and what the maker states."""

    name: str
    unit: str
    burst: Ceiling | None
    sustained: Ceiling | None
    stated: float | None

    @property
    def cells(self) -> tuple[str, ...]:
        """What the line shows under `HEADS`; of what is stated the sustained one, where it is known."""
        burst, sustained = (None if one is None else one.value for one in (self.burst, self.sustained))
        of_stated = ratio(burst if sustained is None else sustained, self.stated)
        return self.name, _shown(burst), _shown(sustained), self.unit, percent(ratio(sustained, burst)), percent(of_stated)

    @property
    def conditions(self) -> Iterator[str]:
        """Under what each of its numbers was measured."""
        for kind, one in (("burst", self.burst), ("sustained", self.sustained)):
            if one is not None:
                words = ", ".join(part for part in (one.source, one.date[:10], conditions(one)) if part)
                yield f"{self.name}, {kind}: {harmless(words, 300)}"


def _lines(found: Ceilings, chip: Chip | None) -> list[_Line]:
    products = [
        _Line(name, "TFLOP/s", found.flops.get(name), found.sustained_flops.get(name), _stated(name, chip))
        for name in PRECISIONS
        if name in found.precisions
    ]
    memory = [
        _Line(name, "TB/s", found.bandwidth.get(name), found.sustained_bandwidth.get(name), chip.bandwidth if chip and not place else None)
        for place, name in enumerate(LEVELS)
        if name in found.bandwidth or name in found.sustained_bandwidth
    ]
    return [*products, *memory]


def _stated(precision: str, chip: Chip | None) -> float | None:
    return chip.peak(precision) if chip is not None and precision in chip.precisions else None


def _shown(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    return f"{value / SCALE:,.1f}" if value >= 10 * SCALE else f"{value / SCALE:.2f}"


def text(found: Ceilings, chip: Chip | None) -> str:
    """Return a table of what was measured of a GPU, with shares of what is stated, and below it under what each number was measured."""
    lines = _lines(found, chip)
    head = f"measured on {harmless(found.gpu, 80)} {harmless(found.uuid_hash, 40)}".rstrip()
    driver = f", driver {harmless(found.driver, 40)}" if found.driver else ""
    return "\n".join(
        [f"{head}{driver}", table(HEADS, [line.cells for line in lines], left=1), *(words for line in lines for words in line.conditions)]
    )


def html(found: Ceilings, chip: Chip | None) -> Markup:
    """Return the same as a table for a page; what a number was measured under shows on hovering, and stands below."""
    lines = _lines(found, chip)
    head = element("thead", element("tr", [element("th", name, scope="col") for name in HEADS]))
    rows = [
        element("tr", element("th", line.name, scope="row"), [element("td", cell, title=told) for cell, told in _told(line)])
        for line in lines
    ]
    under = element("ul", [element("li", words) for line in lines for words in line.conditions], class_="notes")
    scroll = element("table", head, element("tbody", rows))
    return element("div", element("div", scroll, class_="scroll", tabindex=0, role="region", aria_label="Measured ceilings"), under)


def _told(line: _Line) -> Iterator[tuple[str, str | None]]:
    """Yield a line's cells behind its name, each with what it was measured under."""
    under = [None if one is None else conditions(one) or None for one in (line.burst, line.sustained)]
    yield from zip(line.cells[1:], [*under, None, None, None], strict=True)


def record(found: Ceilings | None) -> dict[str, Any] | None:
    """Return measured ceilings for JSON (FLOP/s, B/s, Hz, W, °C, s); None where nothing was measured."""
    return None if found is None else asdict(found)
