"""OFU of jobs, users, hosts …: how full each is, and how many GPU-hours that leaves empty."""

from __future__ import annotations

from collections.abc import Sequence

from ullage.errors import harmless
from ullage.reports.fleet.groups import Group
from ullage.views.draw import SMALL, WIDE, Scale, box, caption, extent, fit, picture, text
from ullage.views.markup import Markup, element, known
from ullage.views.numbers import counted, hours, percent

SHOWN = 20


def groups(ranked: Sequence[Group], by: str, *, width: int = WIDE, standalone: bool = True) -> Markup:
    """Return the picture of the first 20 groups in the order of the report: a bar of OFU from 0 to 100 %, and a bar of GPU-hours.

    The hours' bar is full to the group's OFU and empty for its ullage, whose GPU-hours stand beside it. `by` names the key.
    """
    shown, more = list(ranked[:SHOWN]), len(ranked) - SHOWN
    most = max((known(group.gpu_hours) or 0.0 for group in shown), default=0.0)
    rows, height = (_wide if width > 600 else _tall)(shown, most, float(width))
    rest = f"… {more:,} more" if more > 0 else None if shown else "nothing was measured"
    if rest:
        height += 22
        rows.append(text(0, height - 6, rest, colour="muted"))
    title = f"OFU and GPU-hours by {harmless(by, 40)}"
    return picture("groups", title, _described(shown, len(ranked), by), (width, height), *rows, standalone=standalone)


def _wide(shown: Sequence[Group], most: float, width: float) -> tuple[list[Markup], float]:
    names, full = width * 0.26, Scale(0.0, 1.0, width * 0.28, width * 0.55)
    start = width * 0.64
    ending = max((extent(_short(group)) for group in shown), default=0.0) + 10
    length = Scale(0.0, most or 1.0, start, width - ending)
    captions = ((full.start, "OFU"), (start, "GPU-hours, and how many fall short"))
    rows = [caption(x, 12, words) for x, words in captions if shown]
    for number, group in enumerate(shown):
        top = 26.0 + 27 * number
        ofu, spent = known(group.ofu), known(group.gpu_hours) or 0.0
        end = length(spent)
        rows.append(
            element(
                "g",
                element("title", _told(group)),
                text(0, top + 13, fit(group.key, names)),
                box(full.start, top, full.end - full.start, 17, "full"),
                None if ofu is None else box(full.start, top, full(ofu) - full.start, 17, "ofu"),
                text(full.end + 8, top + 13, percent(ofu), bold=True)
                if ofu is not None
                else text(full.end + 8, top + 13, "unknown", colour="muted"),
                box(
                    start,
                    top + 3,
                    max(end - start, 1.5),
                    11,
                    "loss" if ofu is not None else "unknown",
                    fill_opacity=0.5 if ofu is None else 0.85,
                ),
                None if ofu is None else box(start, top + 3, (end - start) * min(max(ofu, 0.0), 1.0), 11, "ofu"),
                text(end + 8, top + 13, _short(group), colour=_hue(group)),
            )
        )
    return rows, (26.0 if shown else 0.0) + 27 * len(shown)


def _tall(shown: Sequence[Group], most: float, width: float) -> tuple[list[Markup], float]:
    full, length = (
        Scale(0.0, 1.0, 0.0, width),
        Scale(0.0, most or 1.0, 0.0, width - max((extent(_short(g), SMALL) for g in shown), default=0.0) - 8),
    )
    rows = []
    for number, group in enumerate(shown):
        top = 58.0 * number
        ofu, end = known(group.ofu), length(known(group.gpu_hours) or 0.0)
        value = percent(ofu) if ofu is not None else "unknown"
        rows.append(
            element(
                "g",
                element("title", _told(group)),
                text(0, top + 13, fit(group.key, width - extent(value) - 16)),
                text(width, top + 13, value, anchor="end", bold=ofu is not None, colour="ink" if ofu is not None else "muted"),
                box(0, top + 20, width, 10, "full"),
                None if ofu is None else box(0, top + 20, full(ofu), 10, "ofu"),
                box(0, top + 35, max(end, 1.5), 7, "loss" if ofu is not None else "unknown", fill_opacity=0.5 if ofu is None else 0.85),
                None if ofu is None else box(0, top + 35, end * min(max(ofu, 0.0), 1.0), 7, "ofu"),
                text(end + 6, top + 43, _short(group), colour=_hue(group), size=SMALL),
            )
        )
    return rows, 58.0 * len(shown)


def _short(group: Group) -> str:
    ullage = known(group.ullage)
    if ullage is None:
        return hours(known(group.gpu_hours))
    return f"{hours(ullage)} short" if ullage >= 0 else f"{hours(-ullage)} over"


def _hue(group: Group) -> str:
    ullage = known(group.ullage)
    return "muted" if ullage is None else "loss" if ullage >= 0 else "gain"


def _told(group: Group) -> str:
    ofu = known(group.ofu)
    told = percent(ofu) if ofu is not None else "unknown"
    return f"{harmless(group.key)}: OFU {told} of {hours(known(group.gpu_hours))} GPU-hours on {counted(group.gpus, 'GPU')}"


def _described(shown: Sequence[Group], total: int, by: str) -> str:
    if not shown:
        return "Nothing was measured."
    return f"{len(shown):,} of {total:,} by {harmless(by, 40)}, in the order of the report. First: {_told(shown[0])}."
