"""A waterfall as text and as plain data for JSON: the answer first, then the chain, what disagrees, what to do, the notes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ullage.errors import harmless
from ullage.metrics.evidence import GIVEN, REST, Measured
from ullage.render import waterfall_kernels
from ullage.render.json import iso
from ullage.reports.waterfall import Cost, WaterfallReport
from ullage.views.numbers import UNKNOWN, hours, money, part_read, percent
from ullage.views.table import table

WIDE = 1.0  # points: what is less certain is told by its bounds
ADVISED = 2  # steps, the largest, of which the usual remedies are told


def text(report: WaterfallReport) -> str:
    """Return a waterfall as text."""
    parts = [
        headline(report) + "\n" + "\n".join(report.rests_on),
        _chain(report),
        ceiling(report),
        closure(report),
        _disagreements(report),
        waterfall_kernels.text(report.kernels),
        _advice(report),
        "\n".join(f"note: {harmless(note, 1000)}" for note in report.notes),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def headline(report: WaterfallReport) -> str:
    """Return the answer in one line: how much of the peak is left, and what takes the most, or that the numbers contradict one another.

    What the end is when MFU is not known is said: OFU, OFU × tile, what OFU, tile and model allow. An answer from a part says so first.
    """
    return part_read(report.complete, report.read_until) + _answer(report)


def _answer(report: WaterfallReport) -> str:
    chain = report.chain
    value = percent(report.headline.value, 1)
    if report.contradiction is not None:
        return f"{report.contradiction.words}: one of the two is of another step"
    if chain.allowed is not None:
        by = "all else allows" if chain.closure is None else "OFU × tile × model allow"
        return f"MFU {value} of peak, where {by} {percent(chain.allowed.value, 1)}: one of these numbers is wrong"
    if chain.reaches == "what is known":
        answer = f"{value} of peak is left by what is known"
    else:
        answer = f"{chain.reaches} {value} of peak"
    largest = max(report.costs, key=lambda cost: cost.points)
    if largest.points <= 0:
        return f"{answer}: nothing is lost"
    rivals = [cost for cost in report.costs if cost is not largest and _most(cost) > _least(largest)]
    told = f"{answer}: {lost(largest)} points are lost to {largest.step.short}"
    if rivals:
        rival = max(rivals, key=_most)
        return f"{told}, and {rival.step.short} may take more ({lost(rival)})"
    return told + (", the most of any step" if len(report.costs) > 1 else "")


def _least(cost: Cost) -> float:
    return cost.points if cost.points_between is None else cost.points_between[0]


def _most(cost: Cost) -> float:
    return cost.points if cost.points_between is None else cost.points_between[1]


def lost(cost: Cost) -> str:
    """Return the points that a step takes, or between which they lie, where these are a point or more apart."""
    if cost.points_between is None or cost.points_between[1] - cost.points_between[0] < WIDE:
        return points(cost.points)
    return f"{points(max(cost.points_between[0], 0.0))} to {points(cost.points_between[1])}"


def _chain(report: WaterfallReport) -> str:
    timed, priced = report.gpu_hours is not None, report.gpu_hours is not None and report.price is not None
    head = ["step", "by", "factor", "between", "left", "points", *(["GPU-hours"] if timed else []), *(["money"] if priced else [])]
    end = report.chain.end
    used = None if report.gpu_hours is None else report.gpu_hours * end.value
    last = [f"= {report.chain.ends}", "", factor(end.value), bounds(end), percent(end.value, 1), points(end.value * 100)]
    last += [*([hours(used)] if timed else []), *([money(_times(used, report.price))] if priced else [])]
    lines = table(head, [*(_row(cost, timed, priced) for cost in report.costs), last], left=2).split("\n")
    owners = ["whose", *("several" if len(cost.step.names) > 2 else cost.whose for cost in report.costs), ""]
    width = max(len(line) for line in lines)
    return "\n".join(f"{line:<{width}}  {owner}".rstrip() for line, owner in zip(lines, owners, strict=True))


def _row(cost: Cost, timed: bool, priced: bool) -> list[str]:
    step = cost.step
    source = "merged" if len(step.names) > 1 and step.factor.source == REST else step.factor.source
    cells = [step.short, source, factor(step.factor.value), bounds(step.factor), percent(step.after.value, 1), change(cost.points)]
    return [*cells, *([signed(cost.gpu_hours, hours)] if timed else []), *([signed(cost.money, money)] if priced else [])]


def _times(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one * other


def of_ceiling(report: WaterfallReport) -> float | None:
    """Return how much of the measured ceiling the headline's value is, None without one."""
    return report.headline.value / report.ceiling_share if report.ceiling_share else None


def factor(value: float) -> str:
    """Return a factor with three digits, so that those of a chain multiply to its end as printed.

    >>> factor(0.9481), factor(0.01234), factor(0.0), factor(1.026)
    ('0.948', '0.0123', '0.000', '1.026')
    """
    return f"{value:.3f}" if value >= 0.1 or value < 1e-6 else f"{value:.3g}"


def points(value: float) -> str:
    """Return percentage points with one digit.

    >>> points(-12.34), points(0.01)
    ('−12.3', '0.0')
    """
    return f"{value:.1f}".replace("-", "−") if abs(value) >= 0.05 else "0.0"


def change(lost: float) -> str:
    """Return the points that a step takes as a change.

    >>> change(12.34), change(-1.0), change(0.01)
    ('−12.3', '+1.0', '0.0')
    """
    return ("+" if lost <= -0.05 else "") + points(-lost)


def signed(lost: float | None, words: Callable[[float], str]) -> str:
    """Return what a step costs as what it takes from the whole.

    >>> signed(1.5, hours), signed(-1.5, hours), signed(None, hours)
    ('−1.50', '+1.50', '–')
    """
    if lost is None:
        return UNKNOWN
    if abs(lost) < 5e-4:
        return "0"
    return ("−" if lost > 0 else "+" if lost < 0 else "") + words(abs(lost))


def bounds(value: Measured) -> str:
    """Return the values between which one lies, with the digits that tell them apart.

    >>> bounds(Measured(0.5, 0.45, 0.55, "")), bounds(Measured.exact(0.5, "")), bounds(Measured(0.5, None, None, ""))
    ('0.45 to 0.55', 'exact', 'not known')
    >>> bounds(Measured.exact(0.5, "given"))
    'as given'
    """
    if value.low is None or value.high is None:
        return "not known"
    if value.high - value.low < 5e-5:
        return "as given" if value.source == GIVEN else "exact"
    digits = 2 if value.high - value.low >= 0.02 else 3 if value.high - value.low >= 0.002 else 4
    return f"{value.low:.{digits}f} to {value.high:.{digits}f}"


def ceiling(report: WaterfallReport) -> str:
    """Return what the measured ceiling is of the peak, and the answer of it; "" without one."""
    if report.ceiling is None:
        return ""
    what = f"measured ceiling {report.ceiling / 1e12:,.1f} TFLOP/s ({report.ceiling_source})"
    if report.ceiling_share is None or report.peak is None:
        return f"{what}; the peak is not known: --gpu says which GPU it is"
    of_it = f"{report.chain.reaches} is {percent(of_ceiling(report), 1)} of the ceiling"
    return f"{what}: {percent(report.ceiling_share, 1)} of the peak of {report.peak / 1e12:,.1f}; {of_it}"


def closure(report: WaterfallReport) -> str:
    """Return whether the chain closes, "" where that can't be told."""
    found = report.chain.closure
    if found is None:
        return ""
    allowed = f"OFU × tile × model allow {percent(found.expected.value, 1)} ({_between(found.expected)})"
    if found.closes:
        return f"the chain closes: {allowed}, and MFU is {percent(found.mfu.value, 1)}"
    return f"the chain does not close: {allowed}, and MFU is {percent(found.mfu.value, 1)}; `ullage audit mfu` looks for the mistake"


def _between(value: Measured) -> str:
    return "error not known" if value.low is None or value.high is None else f"{percent(value.low, 1)} to {percent(value.high, 1)}"


def _disagreements(report: WaterfallReport) -> str:
    rows = [
        [d.what, d.used.source, factor(d.used.value), d.other.source, factor(d.other.value), "agree" if d.agree else "differ"]
        for d in report.chain.disagreements
    ]
    return table(["what two sources say", "by", "", "by", "", ""], rows, left=2) if rows else ""


def _advice(report: WaterfallReport) -> str:
    """Return what is usually done about the steps that cost the most; of merged ones what would tell their factors apart."""
    worst = sorted((cost for cost in report.costs if cost.points > 0.05 or "unexplained" in cost.step.names), key=lambda cost: -cost.points)
    return "\n\n".join(_advised(cost) for cost in worst[:ADVISED])


def _advised(cost: Cost) -> str:
    head = f"{cost.step.short} ({points(cost.points)} points)"
    if len(cost.step.names) > 2:
        return f"{head}, what would tell its factors apart:\n" + "\n".join(f"  {how}" for how in cost.apart)
    return f"{head}, {advice(cost)}:\n" + "\n".join(f"  {remedy.what}\n    {remedy.source}" for remedy in cost.remedies)


def advice(cost: Cost) -> str:
    """Return what a step's remedies are: those that help the trace's kernels, or the usual ones."""
    return "what helps the kernels of the trace" if cost.by_kernels else "what is usually done"


def record(report: WaterfallReport) -> dict[str, Any]:
    """Return a waterfall as plain data: ratios, percentage points, GPU-hours, FLOP/s; null for what is not known."""
    chain = report.chain
    return {
        "answer": headline(report),
        "complete": report.complete,
        "read_until": None if report.read_until is None else iso(report.read_until),
        "reaches": chain.reaches,
        "value": report.headline.value,
        "allowed": _measured(chain.allowed),
        "contradiction": None if report.contradiction is None else vars(report.contradiction),
        "ends": chain.ends,
        "end": _end(report),
        "ofu": _measured(chain.ofu),
        "mfu": _measured(chain.mfu),
        "steps": [_cost(cost) for cost in report.costs],
        "missing": list(chain.missing),
        "closure": None
        if chain.closure is None
        else {"expected": _measured(chain.closure.expected), "mfu": _measured(chain.closure.mfu), "closes": chain.closure.closes},
        "disagreements": [
            {"what": d.what, "used": _measured(d.used), "other": _measured(d.other), "agree": d.agree} for d in chain.disagreements
        ],
        "gpus": report.gpus,
        "gpu_hours": report.gpu_hours,
        "price": report.price,
        "peak": report.peak,
        "peak_source": report.peak_source,
        "ceiling": report.ceiling,
        "ceiling_source": report.ceiling_source if report.ceiling is not None else None,
        "ceiling_share": report.ceiling_share,
        "of_ceiling": of_ceiling(report),
        "kernels": waterfall_kernels.record(report.kernels),
        "rests_on": list(report.rests_on),
        "notes": list(report.notes),
    }


def _measured(value: Measured | None) -> dict[str, Any] | None:
    return None if value is None else {"value": value.value, "low": value.low, "high": value.high, "source": value.source}


def _end(report: WaterfallReport) -> dict[str, Any]:
    """Return where the chain ends, with what is used there: points, GPU-hours and money."""
    end = report.chain.end
    used = _times(report.gpu_hours, end.value)
    return {**(_measured(end) or {}), "points": end.value * 100, "gpu_hours": used, "money": _times(used, report.price)}


def _cost(cost: Cost) -> dict[str, Any]:
    step = cost.step
    return {
        "name": step.name,
        "label": step.label,
        "stands_for": list(step.names),
        "factor": _measured(step.factor),
        "after": _measured(step.after),
        "points": cost.points,
        "points_between": None if cost.points_between is None else list(cost.points_between),
        "gpu_hours": cost.gpu_hours,
        "money": cost.money,
        "whose": cost.whose,
        "apart": list(cost.apart),
        "advice": advice(cost),
        "remedies": [{"what": remedy.what, "source": remedy.source} for remedy in cost.remedies],
    }
