"""Measured ceilings: bursts beside what was sustained and what the maker states."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from ullage.errors import harmless
from ullage.gpus.chip import Chip
from ullage.gpus.measured import Ceilings, MeasuredCeiling, conditions
from ullage.gpus.precision import PRECISIONS
from ullage.metrics.metric import ratio
from ullage.reports.bench.roofline import LEVELS
from ullage.views.notation import PERCENT, Notation
from ullage.views.view import Cell, Column, Item, ItemList, Paragraph, Section, Table, Value

SCALE = 1e12  # T
TERA = Notation("", lambda value: f"{value / SCALE:,.{1 if value >= 10 * SCALE else 2}f}")


def section(found: Ceilings, chip: Chip | None) -> Section:
    """Return what was measured of a GPU, with shares of what is stated (of the sustained, where it is known), and under what."""
    about = f"Measured on {harmless(found.gpu, 80)} {harmless(found.uuid_hash, 40)}".rstrip()
    driver = f", driver {harmless(found.driver, 40)}" if found.driver else ""
    columns = [Column(""), Column("burst", TERA), Column("sustained", TERA), Column("")]
    columns += [Column("of burst", PERCENT), Column("of stated", PERCENT)]
    lines = [*_products(found, chip), *_memory(found, chip)]
    under = [*(Item(words) for name, _, burst, sustained, _ in lines for words in _conditions(name, burst, sustained))]
    table = Table("ceilings", columns, [_row(*line) for line in lines])
    return Section(
        "ceilings", "Ceilings", [Paragraph(f"{about}{driver}"), table, ItemList(under, "Measured under")], _CEILINGS, headed=True
    )


Line = tuple[str, str, MeasuredCeiling | None, MeasuredCeiling | None, float | None]  # name, unit, burst, sustained, stated


def _products(found: Ceilings, chip: Chip | None) -> Iterator[Line]:
    for name in PRECISIONS:
        if name in found.precisions:
            stated = chip.peak(name) if chip is not None and name in chip.precisions else None
            yield name, "FLOP/s", found.flops.get(name), found.sustained_flops.get(name), stated


def _memory(found: Ceilings, chip: Chip | None) -> Iterator[Line]:
    for place, name in enumerate(LEVELS):
        if name in found.bandwidth or name in found.sustained_bandwidth:
            stated = chip.bandwidth if chip and not place else None
            yield name, "B/s", found.bandwidth.get(name), found.sustained_bandwidth.get(name), stated


def _row(
    name: str, unit: str, burst: MeasuredCeiling | None, sustained: MeasuredCeiling | None, stated: float | None
) -> list[Value | Cell]:
    values = [None if one is None else one.value for one in (burst, sustained)]
    numbers = [Cell(value, tip="" if one is None else conditions(one)) for value, one in zip(values, (burst, sustained), strict=True)]
    of_stated = ratio(values[0] if values[1] is None else values[1], stated)
    return [name, *numbers, Cell(unit, f"T{unit}"), ratio(values[1], values[0]), of_stated]


def _conditions(name: str, burst: MeasuredCeiling | None, sustained: MeasuredCeiling | None) -> Iterator[str]:
    """Yield under what each of a line's numbers was measured."""
    for kind, one in (("burst", burst), ("sustained", sustained)):
        if one is not None:
            words = ", ".join(part for part in (one.source, one.date[:10], conditions(one)) if part)
            yield f"{name}, {kind}: {harmless(words, 300)}"


def record(found: Ceilings | None) -> dict[str, Any] | None:
    """Return measured ceilings for JSON (FLOP/s, B/s, Hz, W, °C, s); None where nothing was measured."""
    return None if found is None else asdict(found)


_CEILINGS = (
    "The highest of each kind on random data. A burst lasts a fraction of a second; what is sustained was measured over seconds, after the "
    "clock had settled, and is what a job of hours is held against."
)
