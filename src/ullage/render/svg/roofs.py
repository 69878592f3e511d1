"""Jobs by roof: OFU across, bandwidth utilization up, a circle a job; what reaches half of either roof is bound by it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ullage.reports.fleet.groups import Group
from ullage.reports.fleet.roofs import NEAR
from ullage.views.draw import SMALL, WIDE, Scale, box, fit, line, picture, text
from ullage.views.markup import Markup, element
from ullage.views.numbers import hours, percent

DRAWN = 1_000
NAMED = 6  # circles that are bound by a roof have their name beside them
HEAD, LEFT, RIGHT, BELOW, LARGEST = 54.0, 44.0, 22.0, 44.0, 14.0
COLOURS = {"tensor": "ofu", "memory": "memory", "other pipe": "gain", "network": "collective", "host": "shared", None: "loss"}
WORDS = {"tensor": "tensor", "memory": "memory", "other pipe": "other pipe", "network": "NVLink", "host": "PCIe", None: "far from all"}


def roofs(groups: Sequence[Group], by: str, *, width: int = WIDE, standalone: bool = True) -> Markup:
    """Return the picture of groups that did anything and whose OFU and bandwidth utilization are known, both over what is reachable.

    A circle's area is its GPU-hours, its colour the roof by which it is bound. Of more than 1,000 groups the largest are drawn.
    """
    known = [group for group in groups if group.roofs.nearest is not None and not group.roofs.at_rest]
    drawn = sorted(known, key=lambda group: (-group.gpu_hours, group.key))[:DRAWN]
    side = min(420.0, width - LEFT - RIGHT)
    across, up = Scale(0.0, 1.0, LEFT, LEFT + side), Scale(0.0, 1.0, HEAD + side, HEAD)
    most = max((group.gpu_hours for group in drawn), default=1.0)
    told = "; ".join(f"{fit(group.key, 200)}: {_told(group)}" for group in drawn[:20])
    return picture(
        "roofs",
        f"OFU against bandwidth utilization, by {by}",
        f"{len(known):,} of {len(groups):,} are drawn. {told}",
        (width, HEAD + side + BELOW),
        *_legend(drawn),
        *_plane(across, up),
        [_circle(group, across, up, _radius(group, most)) for group in drawn],
        *_names(drawn, across, up, most),
        standalone=standalone,
    )


def _plane(across: Scale, up: Scale) -> list[Markup]:
    """Return the axes, and the region that is far from both roofs."""
    marks = [box(across.start, up(NEAR), across(NEAR) - across.start, up.start - up(NEAR), "full")]
    for tick in range(0, 101, 20):
        x, y = across(tick / 100), up(tick / 100)
        marks += [line(across.start, y, across.end, y), line(x, up.start, x, up.end)]
        marks.append(text(across.start - 8, y + 4, percent(tick / 100), anchor="end", colour="muted", size=SMALL))
        marks.append(text(x, up.start + 18, percent(tick / 100), anchor="middle", colour="muted", size=SMALL))
    marks += [line(across.start, up.start, across.end, up.start, "muted"), line(across.start, up.start, across.start, up.end, "muted")]
    marks.append(text(across.end, up.start + 38, "OFU of reachable →", anchor="end"))
    marks.append(text(0, HEAD - 18, "↑ bandwidth of reachable"))
    return marks


def _radius(group: Group, most: float) -> float:
    return max(2.5, LARGEST * math.sqrt(group.gpu_hours / most if most else 0.0))


def _place(group: Group, across: Scale, up: Scale) -> tuple[float, float]:
    tensor, memory = (group.roofs.level(name) for name in ("tensor", "memory"))
    x, y = ((0.0 if level is None else min(1.0, level.height or 0.0)) for level in (tensor, memory))
    return across(x), up(y)


def _circle(group: Group, across: Scale, up: Scale, radius: float) -> Markup:
    title = element("title", f"{fit(group.key, 400)}: {_told(group)}")
    x, y = _place(group, across, up)
    colour = COLOURS[group.roofs.bound]
    return element("circle", title, cx=x, cy=y, r=radius, class_=f"f-{colour} s-paper", fill_opacity=0.75, stroke_width=1.0)


def _names(drawn: Sequence[Group], across: Scale, up: Scale, most: float) -> list[Markup]:
    """Return the names of the largest groups that are bound by a roof, where there is room for them."""
    marks: list[Markup] = []
    taken: list[tuple[float, float]] = []
    for group in [one for one in drawn if one.roofs.bound is not None][:NAMED]:
        x, y = _place(group, across, up)
        left, radius = x > across(0.6), _radius(group, most)
        if all(abs(y - other) > SMALL or abs(x - beside) > 120 for beside, other in taken):
            taken.append((x, y))
            end = "end" if left else "start"
            marks.append(text(x - radius - 5 if left else x + radius + 5, y + 4, fit(group.key, 110), anchor=end, size=SMALL))
    return marks


def _told(group: Group) -> str:
    parts = [f"{level.label} {percent(level.height, 1)}" for level in group.roofs.levels if level.height is not None]
    return f"{', '.join(parts)}, {hours(group.gpu_hours)} GPU-hours"


def _legend(drawn: Sequence[Group]) -> list[Markup]:
    """Return what the colours mean, as far as they occur."""
    x, marks = 0.0, []
    present = {group.roofs.bound for group in drawn}
    for kind, colour in COLOURS.items():
        if kind in present:
            marks += [element("circle", cx=x + 5, cy=8, r=5, class_=f"f-{colour}"), text(x + 14, 12, WORDS[kind], size=SMALL)]
            x += 26 + 7.2 * len(WORDS[kind])
    return marks
