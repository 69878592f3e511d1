"""Roofs and energy of a fleet's report: sections, columns and key figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ullage.metrics.metric import ratio
from ullage.render.bills import money_column
from ullage.render.svg.roofs import roofs as picture
from ullage.reports.fleet.energy import KWH, Energy
from ullage.reports.fleet.fleet import FleetReport
from ullage.reports.fleet.groups import Group
from ullage.reports.fleet.roofs import CLASSES, NEAR, RoofHeights
from ullage.sums.ledger import OWNERS
from ullage.views.notation import COUNT, GPU_HOURS, PERCENT_1, WATTS, Notation
from ullage.views.numbers import hours, percent
from ullage.views.view import Cell, Column, Fact, Paragraph, Part, Picture, Section, Table, Value

KILOWATT_HOURS = Notation("kWh", hours)
_BOUND = {
    kind: f"bound by {words}" for kind, words in zip(CLASSES, ("tensor pipes", "memory", "another pipe", "NVLink", "PCIe"), strict=True)
}
_FAR, _REST, _UNKNOWN = "far from every roof", "nothing ran", "not known"

NEARLY_ALL = 0.995  # of the energy: it is written as 100 %, and there is a rest


# --- columns of the groups ---


def group_columns(groups: Sequence[Group]) -> list[Column]:
    """Return the columns that groups have of roofs and energy: none where no gauge tells any."""
    near = [Column("nearest roof")] if any(group.roofs.nearest for group in groups) else []
    return near + ([Column("kWh", KILOWATT_HOURS)] if any(group.energy.joules is not None for group in groups) else [])


def group_cells(group: Group, columns: Sequence[Column]) -> list[Value | Cell]:
    """Return a group's values under those columns."""
    cells: dict[str, Value | Cell] = {"nearest roof": roof_words(group.roofs), "kWh": group.energy.kwh}
    return [cells[column.heading] for column in columns if column.heading in cells]


def roof_words(roofs: RoofHeights) -> str | None:
    """Return the nearest roof and how high under it; None where it is not known, or nothing ran."""
    near = roofs.nearest
    return None if near is None or roofs.at_rest else f"{near.label} {percent(near.height, 0)}"


# --- sections ---


def roof_sections(report: FleetReport) -> Iterator[Section]:
    """Yield the picture of all groups by roof and what each class holds, where any gauge tells the memory's."""
    if not any(group.roofs.nearest for group in report.groups):
        return
    rows: list[list[Value | Cell]] = []
    for label, members in _classes(report.groups):
        time = sum(group.gpu_hours for group in members)
        rows.append([label, len(members), time, _mean(members, "tensor"), _mean(members, "memory")])
    columns = [Column("roof"), Column(f"{report.by}s", COUNT), Column("GPU-hours", GPU_HOURS)]
    columns += [Column("OFU of reachable", PERCENT_1), Column("bandwidth of reachable", PERCENT_1)]
    parts: list[Part] = [
        Picture(lambda w: picture(report.groups, report.by, width=w, standalone=False)),
        Table("roofs", columns, rows),
        Paragraph(_ceiling_words(report.roofs)),
    ]
    yield Section("roofs", "Which roof", parts, _ROOFS)


def _classes(groups: Sequence[Group]) -> Iterator[tuple[str, list[Group]]]:
    for kind, label in _BOUND.items():
        if members := [group for group in groups if group.roofs.bound == kind]:
            yield label, members
    rest = [group for group in groups if group.roofs.at_rest]
    far = [group for group in groups if group.roofs.nearest is not None and group.roofs.bound is None and not group.roofs.at_rest]
    unknown = [group for group in groups if group.roofs.nearest is None]
    yield from ((label, members) for label, members in ((_FAR, far), (_REST, rest), (_UNKNOWN, unknown)) if members)


def _mean(groups: Sequence[Group], name: str) -> float | None:
    levels = [level for group in groups if (level := group.roofs.level(name)) is not None]
    result: float | None = ratio(sum((level.height or 0.0) * level.hours for level in levels), sum(level.hours for level in levels))
    return result


def _ceiling_words(roofs: RoofHeights) -> str:
    """Return what heights are over, and which roofs nobody exports the gauges of."""
    measured = [level.label for level in roofs.levels if level.measured]
    unknown = [level.label for level in roofs.levels if level.height is None]
    over = f"Over the measured ceiling: {', '.join(measured)}; the others over the stated peak." if measured else "Over the stated peaks."
    return f"{over} Not known, since no gauge tells: {', '.join(unknown)}." if unknown else over


def energy_facts(report: FleetReport) -> Iterator[Fact]:
    """Yield how much energy the meters saw, and what was lost while held and idle."""
    energy = report.energy
    if energy.kwh is None:
        return
    yield Fact("Energy", energy.kwh, KILOWATT_HOURS, f"kWh, ± {hours((energy.error or 0.0) / KWH)}; accelerators only")
    if energy.idle:
        yield Fact("Held idle", energy.idle / KWH, KILOWATT_HOURS, f"kWh spent while held and idle, {WATTS.words(energy.idle_power)} a GPU")


def energy_sections(report: FleetReport) -> Iterator[Section]:
    """Yield whose the energy was, where any meter told."""
    energy = report.energy
    if energy.joules is None:
        return
    rows: list[list[Value | Cell]] = []
    for owner in OWNERS:
        own = report.energy_ledger[owner]
        if own.joules is not None:
            share = ratio(own.joules, energy.joules)
            rows.append([owner.replace("_", " "), own.kwh, (own.error or 0.0) / KWH, share, own.power, *_priced(own, report)])
    total = ["= all meters", energy.kwh, (energy.error or 0.0) / KWH, 1.0, energy.power, *_priced(energy, report)]
    columns = [Column("whose energy"), Column("kWh", KILOWATT_HOURS), Column("±", KILOWATT_HOURS)]
    columns += [Column("share", PERCENT_1), Column("a GPU", WATTS)]
    columns += [Column("kg CO₂", KILOWATT_HOURS)] if report.carbon is not None else []
    columns += [] if report.kwh_price is None else [money_column(report.money.terms, "cost of energy", "energy_cost")]
    yield Section("energy", "Energy", [Table("energy", columns, rows, last=[total]), Paragraph(_meter_words(energy))], _ENERGY)


def _priced(energy: Energy, report: FleetReport) -> list[Value | Cell]:
    kilograms = [] if report.carbon is None else [None if energy.kwh is None else energy.kwh * report.carbon / 1000]
    cost = [] if report.kwh_price is None else [None if energy.kwh is None else energy.kwh * report.kwh_price]
    return [*kilograms, *cost]


def by_which_meter(counted: float) -> str:
    """Return by what energy was told of which the energy counter told so much; a rest is named where there is one to be seen.

    >>> by_which_meter(1.0), by_which_meter(0.25), by_which_meter(0.0)
    ('All of it by the energy counter.', '25 % by the energy counter, the rest by samples of power.', 'All of it by samples of power.')
    """
    if counted <= 0 or counted >= 1:
        return f"All of it by {'samples of power' if counted <= 0 else 'the energy counter'}."
    share = "Nearly all of it" if counted >= NEARLY_ALL else percent(counted)
    return f"{share} by the energy counter, the rest by samples of power."


def _meter_words(energy: Energy) -> str:
    said = by_which_meter(ratio(energy.counted, energy.joules) or 0.0)
    if energy.dark_hours > 0:
        said += f" No meter told of {hours(energy.dark_hours)} GPU-hours."
    if energy.flops_per_joule is not None and energy.best is not None:
        said += f" {energy.flops_per_joule / 1e9:,.0f} GFLOP a joule, taken for BF16; the chip's best is {energy.best / 1e9:,.0f}."
    return said


_ROOFS = (
    "A GPU has more roofs than its tensor pipes: work that moves more bytes than it multiplies is bound by memory, and its low OFU is no "
    f"fault of it. A circle is bound by a roof when it reaches {percent(NEAR)} of what is reachable there; in the shaded corner it "
    "waits for something else."
)
_ENERGY = (
    "Each joule that a meter saw has one owner. The boundary is the accelerator's board: host, network and cooling are not in it. "
    "The error (95 %) is the sensor's 5 %, and what differing samples of power leave open: A100 and H100 look at their power a quarter "
    "of the time."
)
