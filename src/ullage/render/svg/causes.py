"""Why devices idled, as one bar: what the host was doing that should have given them work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ullage.render.svg.stacked import BarLegend, BarPart, bar, columns_of
from ullage.views.draw import SMALL, WIDE, fit
from ullage.views.markup import Markup
from ullage.views.numbers import percent
from ullage.views.times import seconds

COLOURS = {
    "useful": "useful",
    "offload": "offload",
    "sync": "free",
    "communication": "communication",
    "off": "pale",
    "launched": "kernel",
}
_LEGEND = BarLegend(280, 46.0, 10.0, SMALL)


def causes(idle: Mapping[str, int], words: Mapping[str, str], *, width: int = WIDE, standalone: bool = True) -> Markup:
    """Return the picture of idle time in ns by cause, the largest first; `words` says what each is."""
    ranked = sorted(((ns, cause) for cause, ns in idle.items() if ns > 0), reverse=True)
    total = sum(ns for ns, _ in ranked)
    parts = [_part(words.get(cause, cause), ns, ns / total, cause) for ns, cause in ranked]
    room = width / columns_of(parts, _LEGEND, width) - 24
    cut = [replace(part, name=fit(part.name, room, SMALL)) for part in parts]
    told = "; ".join(f"{part.name} {percent(part.size / total, 1)}" for part in parts) or "Devices never idled"
    return bar("causes", "Why devices idled", f"{told}.", cut, _LEGEND, "devices never idled", width=width, standalone=standalone)


def _part(name: str, ns: int, share: float, cause: str) -> BarPart:
    said = f"{percent(share, 1)}, {seconds(ns)}"
    return BarPart(name, ns, (said,), COLOURS.get(cause, "unknown"), cause not in COLOURS, f"{name}: {said}")
