"""A treemap: an area for each owner, divided among causes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ullage.views.draw import SMALL, WIDE, box, caption, extent, fit, picture, text
from ullage.views.markup import Child, Markup, element
from ullage.views.numbers import hours

COLOURS = {
    "not allocated": "free",
    "held idle": "unknown",
    "load balance": "communication",
    "activity": "offload",
    "SM fill": "collective",
    "tensor issue": "kernel",
    "clock": "memory",
}
TALL, TALLER = 460.0, 560.0  # pixels on a page, and on a phone
NAME = 20.0  # pixels above the parts of an owner, for its name
GAP = 2.0
TINT = 0.35  # of a part's colour: words stay black on white, or white on black
LEGEND = 22.0
BOLD = 1.15  # times as wide as plain letters

Address = Callable[[str, str], str | None]


@dataclass(frozen=True)
class TreemapArea:
    """What one cause takes."""

    cause: str
    size: float


@dataclass(frozen=True)
class TreemapOwner:
    """An owner, what each cause takes of its, and whether its name leads to a page."""

    name: str
    areas: Sequence[TreemapArea]
    leads: bool = True

    @property
    def size(self) -> float:
        """What all causes take together."""
        return sum(one.size for one in self.areas)


@dataclass(frozen=True)
class TreemapTile:
    """A rectangle, in pixels."""

    x: float
    y: float
    width: float
    height: float

    def within(self, edge: float, above: float = 0.0) -> TreemapTile:
        """Return the rectangle without an edge, and without what is `above`."""
        wide, high = self.width - 2 * edge, self.height - 2 * edge - above
        return TreemapTile(self.x + edge, self.y + edge + above, max(wide, 0.0), max(high, 0.0))


def tiles(sizes: Sequence[float], area: TreemapTile) -> list[TreemapTile]:
    """Return a rectangle for each size, in their order, that fill an area in proportion; as near to squares as rows of them come.

    After "Squarified Treemaps" (Bruls, Huizing, van Wijk; 2000). The sizes must fall.

    >>> [(one.x, one.y, one.width, one.height) for one in tiles([3, 1], TreemapTile(0.0, 0.0, 4.0, 1.0))]
    [(0.0, 0.0, 3.0, 1.0), (3.0, 0.0, 1.0, 1.0)]
    """
    found: list[TreemapTile] = []
    left, start = area, 0
    # what is left is added up anew each time: taken away bit by bit, sizes near 0 would be nothing but rounding
    while start < len(sizes) and (rest := float(sum(sizes[start:]))) > 0:
        scale, side = left.width * left.height / rest, min(left.width, left.height)
        end = start + 1
        while end < len(sizes) and _worst(sizes[start : end + 1], scale, side) <= _worst(sizes[start:end], scale, side):
            end += 1
        placed, left = _row(sizes[start:end], sum(sizes[start:end]) / rest, left)
        found += placed
        start = end
    return [*found, *(TreemapTile(left.x, left.y, 0.0, 0.0) for _ in sizes[len(found) :])]


def _worst(row: Sequence[float], scale: float, side: float) -> float:
    """Return how far from a square the worst of a row is: its longer side over its shorter."""
    if side <= 0 or min(row) <= 0:
        return float("inf")
    thick = sum(row) * scale / side
    return max(max(one * scale / thick / thick, thick * thick / (one * scale)) for one in row) if thick > 0 else float("inf")


def _row(row: Sequence[float], share: float, left: TreemapTile) -> tuple[list[TreemapTile], TreemapTile]:
    """Return the rectangles of a row along the shorter side of what is left, and what is left then."""
    total, along, made = float(sum(row)), 0.0, []
    for one in row:
        part = one / total
        if left.width >= left.height:
            made.append(TreemapTile(left.x, left.y + along * left.height, left.width * share, left.height * part))
        else:
            made.append(TreemapTile(left.x + along * left.width, left.y, left.width * part, left.height * share))
        along += part
    if left.width >= left.height:
        return made, TreemapTile(left.x + left.width * share, left.y, left.width * (1 - share), left.height)
    return made, TreemapTile(left.x, left.y + left.height * share, left.width, left.height * (1 - share))


def treemap(
    owners: Sequence[TreemapOwner],
    by: str,
    causes: Sequence[str],
    *,
    width: int = WIDE,
    standalone: bool = True,
    address_of: Address = lambda *_: None,
) -> Markup:
    """Return the picture; the sizes are GPU-hours, and names lead where `address_of` says."""
    tall = TALL if width >= WIDE else TALLER
    shown = [cause for cause in causes if any(one.cause == cause for owner in owners for one in owner.areas)]
    legend, top = _legend(shown, width)
    placed = tiles([one.size for one in owners], TreemapTile(0, top, width, tall))
    drawn = [_owner(one, by, tile, address_of) for one, tile in zip(owners, placed, strict=True)]
    told = "; ".join(f"{one.name} {hours(one.size)}" for one in owners[:5]) or "Nothing falls short"
    empty = caption(0, top + 20, "nothing falls short") if not owners else None
    title = f"GPU-hours that fall short, by {by} and cause"
    # a picture whose parts are links is a group of them, not one image
    linked = any(one.leads and address_of(by, one.name) for one in owners)
    size = (float(width), top + tall if owners else top + 30)
    return picture("treemap", title, f"{told}.", size, legend, drawn, empty, standalone=standalone, **({"role": "group"} if linked else {}))


def _legend(causes: Sequence[str], width: int) -> tuple[list[Child], float]:
    """Return the causes with their colours, in lines, and how high they are."""
    x, y, made = 0.0, 0.0, list[Child]()
    for cause in causes:
        wide = 18 + extent(cause, SMALL) + 14
        if x and x + wide > width:
            x, y = 0.0, y + LEGEND
        made += [_filled(TreemapTile(x, y + 2, 12, 12), cause), caption(x + 18, y + 12, cause)]
        x += wide
    return made, y + LEGEND + 4 if causes else 0.0


def _filled(tile: TreemapTile, cause: str) -> list[Child]:
    colour = COLOURS.get(cause.split(" × ")[0], "unknown")
    edge = box(tile.x, tile.y, min(3.0, tile.width), tile.height, colour)
    return [box(tile.x, tile.y, tile.width, tile.height, colour, fill_opacity=TINT), edge]


def _owner(owner: TreemapOwner, by: str, tile: TreemapTile, address_of: Address) -> Markup:
    named = tile.height > 2 * NAME and tile.width > 3 * NAME
    inner = tile.within(GAP, NAME if named else 0.0)
    address = address_of(by, owner.name) if owner.leads else None
    ordered = sorted(owner.areas, key=lambda one: -one.size)
    parts = [
        _part(owner, one, place, None if address is None else f"{address}#where")
        for one, place in zip(ordered, tiles([one.size for one in ordered], inner), strict=True)
    ]
    said = f"{owner.name}: {hours(owner.size)} GPU-hours"
    words = fit(f"{owner.name} {hours(owner.size)}", (tile.width - 2 * GAP - 4) / BOLD, SMALL) if named else ""
    head: list[Child] = [text(tile.x + GAP + 2, tile.y + GAP + 14, words, size=SMALL, bold=True)] if named else []
    ground = box(tile.x + GAP, tile.y + GAP, tile.width - 2 * GAP, tile.height - 2 * GAP, "full")
    return element("g", _led([element("title", said), ground, *head], address), parts)


def _part(owner: TreemapOwner, area: TreemapArea, tile: TreemapTile, address: str | None) -> Markup:
    edged = tile.within(min(0.5, tile.width / 4, tile.height / 4))
    said = f"{owner.name}, {area.cause}: {hours(area.size)} GPU-hours"
    words: list[Child] = []
    if edged.height > 20 and edged.width > 46:
        words.append(text(edged.x + 7, edged.y + 15, fit(area.cause, edged.width - 10, SMALL), size=SMALL))
    if edged.height > 38 and edged.width > 46:
        words.append(text(edged.x + 7, edged.y + 31, fit(hours(area.size), edged.width - 10, SMALL), size=SMALL))
    return _led([element("title", said), _filled(edged, area.cause), words], address)


def _led(parts: list[Child], address: str | None) -> Markup:
    return element("g", parts) if address is None else element("a", parts, href=address)
