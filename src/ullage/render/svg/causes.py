"""Why devices idled, as one bar: what the host was doing that should have given them work."""

from __future__ import annotations

from collections.abc import Mapping

from ullage.views.draw import SMALL, WIDE, box, fit, hatch, picture, text
from ullage.views.markup import Markup, element
from ullage.views.numbers import percent
from ullage.views.times import seconds

BAR, ENTRY = 34.0, 46.0
COLOURS = {
    "useful": "useful",
    "offload": "offload",
    "sync": "free",
    "communication": "communication",
    "off": "pale",
    "launched": "kernel",
}


def causes(idle: Mapping[str, int], words: Mapping[str, str], *, width: int = WIDE, standalone: bool = True) -> Markup:
    """Return the picture of idle time in ns by cause, the largest first; `words` says what each is."""
    ranked = sorted(((ns, cause) for cause, ns in idle.items() if ns > 0), reverse=True)
    total = sum(ns for ns, _ in ranked)
    key = f"causes-{width}-unknown"
    columns = max(1, min(len(ranked), width // 280))
    marks, x = [], 0.0
    for ns, cause in ranked:
        long = width * ns / total
        told = element("title", f"{words.get(cause, cause)}: {percent(ns / total, 1)}, {seconds(ns)}")
        marks.append(element("g", told, _filled(cause, key, x, 0, max(long - 1.5, 1.0), BAR)))
        x += long
    rows = -(-len(ranked) // columns)
    told_all = "; ".join(f"{words.get(cause, cause)} {percent(ns / total, 1)}" for ns, cause in ranked) or "Devices never idled"
    return picture(
        "causes",
        "Why devices idled",
        f"{told_all}.",
        (width, BAR + 10 + max(rows, 1) * ENTRY),
        element("defs", hatch(key, "unknown")),
        box(0, 0, width, BAR, "full"),
        marks,
        [
            _entry(ns, cause, total, words, width / columns, n % columns, BAR + 10 + ENTRY * (n // columns), key)
            for n, (ns, cause) in enumerate(ranked)
        ],
        None if ranked else text(0, BAR + 26, "devices never idled", colour="muted"),
        standalone=standalone,
    )


def _entry(ns: int, cause: str, total: int, words: Mapping[str, str], wide: float, place: int, y: float, key: str) -> Markup:
    x = wide * place
    return element(
        "g",
        _filled(cause, key, x, y + 4, 12, 12),
        text(x + 19, y + 14, fit(words.get(cause, cause), wide - 24, SMALL), size=SMALL),
        text(x + 19, y + 31, f"{percent(ns / total, 1)}, {seconds(ns)}", colour="muted", size=SMALL),
    )


def _filled(cause: str, key: str, x: float, y: float, width: float, height: float) -> Markup:
    colour = COLOURS.get(cause)
    if colour is None:
        return element("rect", x=x, y=y, width=width, height=height, fill=f"url(#{key})")
    return box(x, y, width, height, colour)
