"""What devices did step by step: a column a step, its shares stacked, so that a step unlike the others stands out."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from ullage.render.svg.kit import legend, square
from ullage.render.svg.strips import WORDS, stacked
from ullage.reports.trace.part import RunPart
from ullage.views.draw import SMALL, WIDE, caption, fit, line, picture
from ullage.views.markup import Markup
from ullage.views.numbers import percent

PLOT, LEFT = 130.0, 44.0
_STATES = ("kernel", "collective", "memory", "idle")
_UNIT = 1_000_000  # a share of 1


def steps(views: Sequence[RunPart], *, width: int = WIDE, standalone: bool = True) -> Markup:
    """Return the picture of the devices' time in each step: kernels from below, then collectives, memory operations, idle.

    Of more steps than there are pixels, neighbours are averaged.
    """
    found = [view for view in views if view.device_totals is not None and view.elapsed > 0]
    table = np.array([_shares(view) for view in found], np.float64).reshape(len(found), len(_STATES))
    columns = min(len(found), int(width - LEFT))
    if columns and len(found) > columns:
        edges = np.linspace(0, len(found), columns + 1).astype(int)
        table = np.array([table[a:b].mean(axis=0) for a, b in itertools.pairwise(edges)])
    covered = {state: (table[:, n] * _UNIT).astype(np.int64) for n, state in enumerate(_STATES)} if columns else {}
    shown = [state for state, shares in covered.items() if shares.any()]
    marks, _ = legend(((square(state), WORDS[state]) for state in shown), 8.0, math.inf, left=LEFT, indent=18.0, gap=14.0)
    top = 28.0
    for share in (0.0, 0.5, 1.0):
        y = top + PLOT * (1 - share)
        marks += [line(LEFT - 4, y, width, y), caption(LEFT - 8, y + 4, percent(share), "end")]
    if columns:
        marks += stacked(covered, _UNIT, LEFT, (width - LEFT) / columns, top, PLOT, "")
    ends = _ends(found, width, top)
    return picture("steps", "Devices step by step", _told(found), (width, top + PLOT + 24), marks, ends, standalone=standalone)


def _shares(view: RunPart) -> tuple[float, float, float, float]:
    totals = view.device_totals
    assert totals is not None
    full = max(totals.devices * totals.elapsed, 1)
    kernel, collective, memory = totals.kernel_time / full, totals.collective_time / full, totals.memory_time / full
    return kernel, collective, memory, max(1 - kernel - collective - memory, 0.0)


def _ends(found: Sequence[RunPart], width: int, top: float) -> list[Markup]:
    y, room = top + PLOT + 17, (width - LEFT) / 2 - 10
    if not found:
        return [caption(LEFT, y, "no steps were recorded")]
    first = caption(LEFT, y, fit(found[0].name, room, SMALL))
    last = caption(width, y, fit(found[-1].name, room, SMALL), "end")
    return [first, last] if len(found) > 1 else [first]


def _told(found: Sequence[RunPart]) -> str:
    values = [(view.device.value, view.name) for view in found if view.device is not None and view.device.value is not None]
    if not values:
        return "No steps were recorded."
    low, high = min(values), max(values)
    return f"{len(found):,} steps; device parallel efficiency from {percent(low[0])} ({low[1]}) to {percent(high[0])} ({high[1]})."
