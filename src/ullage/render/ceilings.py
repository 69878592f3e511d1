"""Measured ceilings beside what the maker states, as text and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ullage.errors import harmless
from ullage.gpus.chip import Chip
from ullage.gpus.measured import Ceiling, Ceilings
from ullage.gpus.precision import PRECISIONS
from ullage.metrics.metric import ratio
from ullage.render.numbers import UNKNOWN, percent
from ullage.render.table import table
from ullage.reports.roofline import LEVELS


def text(found: Ceilings, chip: Chip) -> str:
    """Return a table of what was measured of a GPU, each with its share of what is stated, and under what it was measured."""
    rows = [_row(name, found.flops[name], 1e12, "TFLOP/s", _stated(name, chip)) for name in PRECISIONS if name in found.flops]
    levels = [name for name in LEVELS if name in found.bandwidth]
    rows += [_row(name, found.bandwidth[name], 1e12, "TB/s", chip.bandwidth if name == LEVELS[0] else None) for name in levels]
    head = f"measured on {harmless(found.gpu, 80)} {harmless(found.uuid_hash, 40)}".rstrip()
    driver = f", driver {harmless(found.driver, 40)}" if found.driver else ""
    columns = table(["", "measured", "", "of stated", "SM clock", "power"], [row[:-1] for row in rows], left=1).splitlines()
    return "\n".join([f"{head}{driver}", columns[0], *(f"{line}  {row[-1]}" for line, row in zip(columns[1:], rows, strict=True))])


def _stated(precision: str, chip: Chip) -> float | None:
    return chip.peak(precision) if precision in chip.precisions else None


def _row(name: str, one: Ceiling, scale: float, unit: str, stated: float | None) -> list[str]:
    clock = UNKNOWN if one.sm_clock is None else f"{one.sm_clock / 1e6:,.0f} MHz"
    power = UNKNOWN if one.power is None else f"{one.power:,.0f} W"
    source = harmless(", ".join(part for part in (one.source, one.date[:10]) if part), 160)
    value = one.value / scale
    return [name, f"{value:,.1f}" if value >= 10 else f"{value:.2f}", unit, percent(ratio(one.value, stated)), clock, power, source]


def record(found: Ceilings | None) -> dict[str, Any] | None:
    """Return measured ceilings for JSON (FLOP/s, B/s, Hz, W); None where nothing was measured."""
    return None if found is None else asdict(found)
