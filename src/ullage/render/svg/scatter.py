"""What jobs report of themselves against what was measured: MFU over OFU, and the jobs that lie furthest apart."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ullage.reports.fleet.agreement import Agreement, Comparison
from ullage.views.draw import SIZE, SMALL, WIDE, Scale, caption, fit, line, picture, text
from ullage.views.markup import Markup, element, known, number
from ullage.views.numbers import counted, percent

NAMED = 5
DRAWN = 1_000
HEAD = 30.0  # above the plot
BAND = 0.10  # ratio: OFU and MFU that agree to 10 points


def scatter(agreement: Agreement, *, width: int = WIDE, standalone: bool = True) -> Markup:
    """Return the picture of reported MFU over measured OFU: a circle a job, its area the GPUs, the line where both agree.

    The shaded band is 10 points to either side. The five jobs that diverge most are numbered and named. Of more than
    1,000 jobs, evenly chosen ones (by divergence) are drawn; a job beyond the axes is drawn at their end, as a ring.
    """
    jobs = [job for job in agreement.jobs if known(job.mfu) is not None and known(job.ofu) is not None]
    named, drawn = jobs[:NAMED], _chosen(jobs)
    beside = width > 600
    side = 400.0 if beside else width - 62.0
    top = _end(jobs)
    across, up = Scale(0.0, top, 44.0, 44.0 + side), Scale(0.0, top, HEAD + side, HEAD)
    most = max((job.gpus for job in drawn), default=1)
    largest = 15.0 if beside else 10.0
    where = (44.0 + side + 44, HEAD + 4) if beside else (0.0, HEAD + side + 72)
    key, end = _key(named, _remarks(jobs, drawn, top), where, width - where[0])
    circles = sorted(drawn, key=lambda job: (-job.gpus, job.job))
    return picture(
        "scatter",
        "Reported MFU against measured OFU",
        _described(agreement, len(jobs)),
        (width, max(HEAD + side + 48, end)),
        _band(across, up, top),
        _axes(across, up, top),
        [_circle(job, across, up, top, _radius(job, most, largest), standout=job in named) for job in circles],
        _numbers(named, across, up, most, largest),
        key,
        None if jobs else text(44 + side / 2, HEAD + side / 2, "no job reported an MFU", anchor="middle", colour="muted"),
        standalone=standalone,
    )


def _chosen(jobs: Sequence[Comparison]) -> list[Comparison]:
    if len(jobs) <= DRAWN:
        return list(jobs)
    stride = (len(jobs) - NAMED) / (DRAWN - NAMED)
    return [*jobs[:NAMED], *(jobs[NAMED + int(n * stride)] for n in range(DRAWN - NAMED))]


def _end(jobs: Sequence[Comparison]) -> float:
    """Return where the axes end: the next ten per cent above every job, at least 20 %, at most 100 %."""
    highest = max((max(job.mfu, job.ofu) for job in jobs), default=1.0)
    return min(1.0, max(0.2, math.ceil(highest * 10 - 1e-9) / 10))


def _band(across: Scale, up: Scale, top: float) -> Markup:
    corners = ((0, 0), (BAND, 0), (top, top - BAND), (top, top), (top - BAND, top), (0, BAND))
    points = " ".join(f"{number(across(x))},{number(up(y))}" for x, y in corners)
    return element("polygon", points=points, class_="f-full", fill_opacity=0.75)


def _axes(across: Scale, up: Scale, top: float) -> list[Markup]:
    step = 0.1 if top <= 0.5 else 0.2
    marks = []
    for tick in range(round(top / step) + 1):
        value = tick * step
        if value > top + 1e-9:
            break
        x, y = across(value), up(value)
        marks += [line(across.start, y, across.end, y), line(x, up.start, x, up.end)]
        marks.append(caption(across.start - 8, y + 4, percent(value), "end"))
        marks.append(caption(x, up.start + 18, percent(value), "middle"))
    marks += [line(across.start, up.start, across.end, up.start, "muted"), line(across.start, up.start, across.start, up.end, "muted")]
    marks.append(line(across(0.0), up(0.0), across(top), up(top), "ink", stroke_width=1.2))
    marks.append(text(across.end, up.start + 40, "OFU measured →", anchor="end"))
    marks.append(text(0, 14, "↑ MFU reported"))
    return marks


def _radius(job: Comparison, most: int, largest: float) -> float:
    return max(2.5, largest * math.sqrt(max(job.gpus, 0) / max(most, 1)))


def _circle(job: Comparison, across: Scale, up: Scale, top: float, radius: float, *, standout: bool) -> Markup:
    beyond = _beyond(job, top)
    colour = "loss" if standout else "ofu"
    shape = (
        {"fill": "none", "class_": f"s-{colour}", "stroke_width": 2.0}
        if beyond
        else {"class_": f"f-{colour} s-paper", "fill_opacity": 0.7, "stroke_width": 1.0}
    )
    told = f"{fit(job.job, 400)}: MFU {percent(job.mfu, 1)}, OFU {percent(job.ofu, 1)}, {counted(job.gpus, 'GPU')}"
    return element("circle", element("title", told), cx=across(job.ofu), cy=up(job.mfu), r=radius, **shape)


def _numbers(named: Sequence[Comparison], across: Scale, up: Scale, most: int, largest: float) -> list[Markup]:
    """Return the outliers' numbers, each beside its circle where no other number is yet."""
    marks: list[Markup] = []
    taken: list[tuple[float, float]] = []
    for count, job in enumerate(named, 1):
        away = _radius(job, most, largest) + 9
        x, y = across(job.ofu), up(job.mfu)
        turns = [(math.cos(angle), math.sin(angle)) for angle in (-0.8, 0.8, 2.35, -2.35, 0.0, 3.14, -1.57, 1.57)]
        spots = [(x + far * c, y + far * s) for far in (away, away + 14) for c, s in turns]
        inside = [spot for spot in spots if across.start + 5 < spot[0] < across.end - 5 and up.end + 6 < spot[1] < up.start - 5]
        free = [spot for spot in inside if all(math.dist(spot, other) > 14 for other in taken)]
        spot = (free or inside or spots)[0]
        taken.append(spot)
        marks.append(text(spot[0], spot[1] + 4, str(count), anchor="middle", bold=True, colour="loss", size=SMALL))
    return marks


def _key(named: Sequence[Comparison], remarks: Sequence[str], where: tuple[float, float], room: float) -> tuple[list[Markup], float]:
    x, y = where
    marks = [text(x, y, "Furthest apart", bold=True)] if named else []
    for count, job in enumerate(named, 1):
        y += 26
        marks += [text(x, y, str(count), bold=True, colour="loss"), text(x + 18, y, fit(job.job, room - 20), size=SIZE)]
        y += 17
        told = f"MFU {percent(job.mfu, 1)}, OFU {percent(job.ofu, 1)}, {counted(job.gpus, 'GPU')}"
        marks.append(caption(x + 18, y, told))
    y += 14
    for remark in remarks:
        y += 18
        marks.append(caption(x, y, remark))
    return marks, y + 10


def _remarks(jobs: Sequence[Comparison], drawn: Sequence[Comparison], top: float) -> list[str]:
    remarks = [f"largest circle: {counted(max(job.gpus for job in drawn), 'GPU')}"] if drawn else []
    beyond = sum(_beyond(job, top) for job in drawn)
    if beyond:
        remarks.append(f"{beyond:,} beyond the axes, drawn as rings at their end")
    if len(drawn) < len(jobs):
        remarks.append(f"{len(drawn):,} of {len(jobs):,} jobs drawn")
    return remarks


def _beyond(job: Comparison, top: float) -> bool:
    return not (0 <= job.mfu <= top and 0 <= job.ofu <= top)


def _described(agreement: Agreement, count: int) -> str:
    together = "" if known(agreement.pearson) is None else f", correlation {agreement.pearson:.2f}"
    near, far = percent(known(agreement.within_10)), percent(known(agreement.above_20))
    return f"{count:,} jobs{together}; {near} within 10 points of the line, {far} more than 20 points away."
