"""One bar in parts, with a legend that says each part's GPU-hours: the ledger, and the verdicts of trust."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ullage.audit.trust import UNTRUSTED
from ullage.views.draw import SMALL, WIDE, box, hatch, picture, text
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
    """A part of the bar: what it is, its GPU-hours, what stands beside them, its colour and whether it is hatched."""

    name: str
    hours: float
    note: str
    colour: str
    hatched: bool


def ledger(by_owner: Mapping[str, float], *, width: int = WIDE, standalone: bool = True) -> Markup:
    """Return the picture of who had the GPU-hours: job, shared, held idle, free, unknown; together all there were."""
    found = [(OWNERS.get(owner, (owner, "unknown", True)), known(value) or 0.0) for owner, value in _shown(by_owner)]
    total = sum(spent for _, spent in found)
    parts = [BarPart(name, spent, _share(spent, total), colour, hatched) for (name, colour, hatched), spent in found]
    return _stacked("ledger", "Who had the GPU-hours", parts, width, standalone)


def _shown(by_owner: Mapping[str, float]) -> list[tuple[str, float]]:
    """Leave out the total, and what few fleets have where this one hasn't."""
    return [(owner, value) for owner, value in by_owner.items() if owner != "total" and (value or owner != "not_sliced")]


def trust(verdicts: Mapping[str, tuple[int, float]], *, width: int = WIDE, standalone: bool = True) -> Markup:
    """Return the picture of the verdicts: how many GPUs' series deserve which, by GPU-hours. Hatched ones are left out of OFU."""
    parts = []
    for name in sorted(verdicts, key=lambda name: name != "ok"):  # ok first; the others stay worst first
        devices, spent = verdicts[name]
        colour = "ofu" if name == "ok" else "doubt" if name in UNTRUSTED else "shared"
        parts.append(BarPart(name, known(spent) or 0.0, counted(devices, "GPU"), colour, name in UNTRUSTED))
    return _stacked("trust", "What the telemetry is worth", parts, width, standalone)


def _share(spent: float, total: float) -> str:
    return percent(spent / total, 1) if total > 0 else percent(None)


def _stacked(name: str, title: str, parts: Sequence[BarPart], width: int, standalone: bool) -> Markup:
    total = sum(max(part.hours, 0.0) for part in parts)
    columns = min(len(parts), max(1, width // 170)) or 1
    rows = -(-len(parts) // columns)
    told = "; ".join(f"{part.name}: {hours(part.hours)} GPU-hours, {part.note}" for part in parts) or "Nothing was measured"
    keys = {part.colour: f"{name}-{width}-{part.colour}" for part in parts if part.hatched}
    return picture(
        name,
        title,
        f"{told}.",
        (width, BAR + 14 + max(rows, 1) * ENTRY),
        element("defs", [hatch(key, colour) for colour, key in keys.items()]) if keys else None,
        box(0, 0, width, BAR, "full"),
        _segments(parts, total, width, keys),
        [_entry(part, width / columns * (n % columns), BAR + 14 + ENTRY * (n // columns), keys) for n, part in enumerate(parts)],
        None if parts else text(0, BAR + 28, "nothing was measured", colour="muted"),
        standalone=standalone,
    )


def _segments(parts: Sequence[BarPart], total: float, width: int, keys: Mapping[str, str]) -> list[Markup]:
    marks, x = [], 0.0
    for part in parts:
        if total <= 0 or part.hours <= 0:
            continue
        length = width * part.hours / total
        # a hair of paper between neighbours; a part too thin for it is still seen
        marks.append(
            element(
                "g",
                element("title", f"{part.name}: {hours(part.hours)} GPU-hours, {part.note}"),
                _filled(part, x, 0, max(length - 1.5, 1.0), BAR, keys),
            )
        )
        x += length
    return marks


def _filled(part: BarPart, x: float, y: float, width: float, height: float, keys: Mapping[str, str]) -> Markup:
    if part.hatched:
        return element("rect", x=x, y=y, width=width, height=height, fill=f"url(#{keys[part.colour]})")
    return box(x, y, width, height, part.colour)


def _entry(part: BarPart, x: float, y: float, keys: Mapping[str, str]) -> Markup:
    return element(
        "g",
        _filled(part, x, y + 4, 12, 12, keys),
        text(x + 19, y + 14, part.name, size=SMALL + 1),
        text(x + 19, y + 31, f"{hours(part.hours)} GPU-hours", colour="muted", size=SMALL),
        text(x + 19, y + 47, part.note, colour="muted", size=SMALL),
    )
