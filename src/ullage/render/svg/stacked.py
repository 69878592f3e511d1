"""One bar in parts, with a legend that says each part's GPU-hours: the ledger, and the verdicts of trust."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ullage.audit.trust import UNTRUSTED
from ullage.render.svg.kit import filled
from ullage.views.draw import SMALL, WIDE, box, caption, hatch, picture, text
from ullage.views.markup import Markup, element, known
from ullage.views.numbers import counted, hours, percent

BAR, ENTRY = 34.0, 60.0

# what a person reads, its colour, and whether it is hatched too
OWNERS = {
    "job": ("working for a job", "ofu", False),
    "shared": ("shared by several jobs", "shared", False),
    "held_idle": ("held by a job, idle", "loss", False),
    "free": ("free", "free", True),
    "not_sliced": ("not sliced", "doubt", True),
    "unknown": ("unknown", "unknown", True),
}


@dataclass(frozen=True)
class BarPart:
    """A part of the bar: what it is, how large, what its legend says below its name, its colour and whether it is hatched."""

    name: str
    size: float
    lines: tuple[str, ...]
    colour: str
    hatched: bool
    told: str


@dataclass(frozen=True)
class BarLegend:
    """How the legend below the bar is laid out: the least width of a column, the height of an entry, the gap above, the name's size."""

    column: int
    entry: float
    gap: float
    size: int


_OF_HOURS = BarLegend(170, ENTRY, 14.0, SMALL + 1)


def ledger(by_owner: Mapping[str, float], *, width: int = WIDE, standalone: bool = True) -> Markup:
    """Return the picture of who had the GPU-hours: job, shared, held idle, free, unknown; together all there were."""
    found = [(OWNERS.get(owner, (owner, "unknown", True)), known(value) or 0.0) for owner, value in _shown(by_owner)]
    total = sum(spent for _, spent in found)
    parts = [_part(name, spent, _share(spent, total), colour, hatched) for (name, colour, hatched), spent in found]
    return _of_hours("ledger", "Who had the GPU-hours", parts, width, standalone)


def _shown(by_owner: Mapping[str, float]) -> list[tuple[str, float]]:
    """Leave out the total, and what few fleets have where this one hasn't."""
    return [(owner, value) for owner, value in by_owner.items() if owner != "total" and (value or owner != "not_sliced")]


def trust(verdicts: Mapping[str, tuple[int, float]], *, width: int = WIDE, standalone: bool = True) -> Markup:
    """Return the picture of the verdicts: how many GPUs' series deserve which, by GPU-hours. Hatched ones are left out of OFU."""
    parts = []
    for name in sorted(verdicts, key=lambda name: name != "ok"):  # ok first; the others stay worst first
        devices, spent = verdicts[name]
        colour = "ofu" if name == "ok" else "doubt" if name in UNTRUSTED else "shared"
        parts.append(_part(name, known(spent) or 0.0, counted(devices, "GPU"), colour, name in UNTRUSTED))
    return _of_hours("trust", "What the telemetry is worth", parts, width, standalone)


def _share(spent: float, total: float) -> str:
    return percent(spent / total, 1) if total > 0 else percent(None)


def _part(name: str, spent: float, note: str, colour: str, hatched: bool) -> BarPart:
    told = f"{name}: {hours(spent)} GPU-hours, {note}"
    return BarPart(name, spent, (f"{hours(spent)} GPU-hours", note), colour, hatched, told)


def _of_hours(name: str, title: str, parts: Sequence[BarPart], width: int, standalone: bool) -> Markup:
    told = "; ".join(part.told for part in parts) or "Nothing was measured"
    return bar(name, title, f"{told}.", parts, _OF_HOURS, "nothing was measured", width=width, standalone=standalone)


def bar(
    name: str, title: str, told: str, parts: Sequence[BarPart], layout: BarLegend, nothing: str, *, width: int, standalone: bool
) -> Markup:
    """Return one bar in parts, as long as they are large, and below it what each is; without any it says that there is `nothing`."""
    columns = columns_of(parts, layout, width)
    rows = -(-len(parts) // columns)
    keys = {part.colour: f"{name}-{width}-{part.colour}" for part in parts if part.hatched}
    top = BAR + layout.gap
    return picture(
        name,
        title,
        told,
        (width, top + max(rows, 1) * layout.entry),
        element("defs", [hatch(key, colour) for colour, key in keys.items()]) if keys else None,
        box(0, 0, width, BAR, "full"),
        _segments(parts, width, keys),
        [_entry(part, width / columns * (n % columns), top + layout.entry * (n // columns), keys, layout) for n, part in enumerate(parts)],
        None if parts else text(0, top + 14, nothing, colour="muted"),
        standalone=standalone,
    )


def columns_of(parts: Sequence[BarPart], layout: BarLegend, width: int) -> int:
    """Return in how many columns the legend stands."""
    return max(1, min(len(parts), width // layout.column))


def _segments(parts: Sequence[BarPart], width: int, keys: Mapping[str, str]) -> list[Markup]:
    total = sum(max(part.size, 0.0) for part in parts)
    marks, x = [], 0.0
    for part in parts if total > 0 else ():
        if part.size <= 0:
            continue
        length = width * part.size / total
        # a hair of paper between neighbours; a part too thin for it is still seen
        marks.append(element("g", element("title", part.told), _drawn(part, x, 0, max(length - 1.5, 1.0), BAR, keys)))
        x += length
    return marks


def _drawn(part: BarPart, x: float, y: float, width: float, height: float, keys: Mapping[str, str]) -> Markup:
    return filled(x, y, width, height, part.colour, keys[part.colour] if part.hatched else "")


def _entry(part: BarPart, x: float, y: float, keys: Mapping[str, str], layout: BarLegend) -> Markup:
    below = [caption(x + 19, y + 31 + 16 * place, words) for place, words in enumerate(part.lines)]
    return element("g", _drawn(part, x, y + 4, 12, 12, keys), text(x + 19, y + 14, part.name, size=layout.size), *below)
