"""What can be counted on a chip, as text for a terminal and as JSON for programs."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from ullage.cupti.counters.host import WHICH
from ullage.cupti.counters.plan import Way
from ullage.errors import did_you_mean, harmless
from ullage.reports.counters import Chips, Described, Listing, Planned

_BY = {"range": "by ranges", "pm": "by PM sampling"}
_SUBMETRIC = re.compile(r"\.(avg|max|min|sum)(\..*)?")
_WIDE = 110  # columns of what is wrapped
_LONGEST_NAME = 70  # columns that names may take; a longer one pushes its own line
Style = Callable[[str], str]


def chips_text(found: Chips) -> str:
    """Return a line a chip, with its GPUs."""
    lines = [f"{len(found.gpus)} chips can be counted on, {found.told}", "", f"{'chip':<7} GPUs that `ullage gpus` knows"]
    for chip, gpus in found.gpus.items():
        lines += textwrap.wrap(f"{chip:<7} {', '.join(gpus) or '-'}", _WIDE, subsequent_indent=" " * 8, break_on_hyphens=False)
    if found.others:
        told = f"note: metrics of {', '.join(found.others)} are known too, as other releases of CUPTI have them"
        lines += ["", *textwrap.wrap(told, _WIDE, subsequent_indent="  ")]
    return "\n".join(lines)


def chips_record(found: Chips) -> dict[str, Any]:
    """Return the chips for JSON."""
    chips = [{"chip": chip, "gpus": list(gpus)} for chip, gpus in found.gpus.items()]
    return {"source": found.told, "chips": chips, "others": list(found.others)}


def listing_text(found: Listing, limit: int, dim: Style = str) -> str:
    """Return the metrics in lines, `limit` of them at most (0: all); `dim` styles what is said beside a name."""
    counts = ", ".join(f"{count:,} {kind}{'s' * (count != 1)}" for kind, count in found.counts.items())
    match = f": {len(found.found):,} match '{harmless(found.pattern, 60)}'" if found.pattern else ""
    shown = found.found[:limit] if limit else found.found
    width = min(max((len(metric.name) for metric in shown), default=0), _LONGEST_NAME)
    lines = [f"{found.catalogue.chip} has {counts}{match}", ""]
    lines += [f"{metric.name:<{width}}  {metric.kind:<10} {_said(metric, dim)}".rstrip() for metric in shown]
    if len(shown) < len(found.found):
        lines.append(f"… and {len(found.found) - len(shown):,} more: give a pattern, or --limit 0")
    if not found.found:
        lines.append(did_you_mean(found.pattern, found.catalogue.by_name, f"ullage cupti metrics {found.catalogue.chip}"))
    return "\n".join([*lines, "", f"note: {found.catalogue.told}"])


def _said(metric: Any, dim: Style) -> str:
    words = f"{metric.unit}: {harmless(metric.description)}" if metric.description else metric.unit
    return dim(words)


def listing_record(found: Listing, limit: int) -> dict[str, Any]:
    """Return the metrics for JSON."""
    shown = found.found[:limit] if limit else found.found
    head = {"chip": found.catalogue.chip, "source": found.catalogue.told, "counts": dict(found.counts), "matching": len(found.found)}
    return {**head, "metrics": [asdict(metric) for metric in shown]}


def described_text(chip: str, notes: Sequence[str], found: Sequence[Described]) -> str:
    """Return a paragraph a metric, then the notes."""
    return "\n\n".join([*(_paragraph(chip, each) for each in found), "\n".join(f"note: {note}" for note in notes)])


def _paragraph(chip: str, found: Described) -> str:
    metric = found.metric
    unit = {"1": "without a unit", "unknown": "of a unit that isn't told"}.get(metric.unit, f"in {metric.unit}")
    lines = [f"{metric.name}: a {metric.kind} of {chip}, counted by {metric.hardware}, {unit}"]
    if metric.description:
        lines.append(f"  NVIDIA says  {harmless(metric.description, 400)}")
    if found.passes:
        told = [f"{_passes(count)} {_BY[mode]}" if count else f"not {_BY[mode]}" for mode, count in found.passes.items()]
        lines.append(f"  collected in {', '.join(told)}")
    if found.endings:
        lines += textwrap.wrap(endings(found.endings), _WIDE, initial_indent="  as           ", subsequent_indent=" " * 15)
    if found.twin is not None:
        scale = f" × {found.twin.factor:g}" if found.twin.factor != 1 else ""
        lines.append(f"  in DCGM      field {found.twin.dcgm} ({found.twin.field}) = {found.twin.metric}{scale}, {found.twin.status}")
    return "\n".join(lines)


def endings(found: Sequence[str]) -> str:
    """Return what may follow a name, said shortly.

    >>> endings([".avg", ".avg.per_second", ".sum", ".sum.per_second"])
    '.avg .sum, each alone or with .per_second'
    >>> endings([".max_rate", ".pct", ".ratio"])
    '.max_rate .pct .ratio'
    """
    parts = [match.groups("") for text in found if (match := _SUBMETRIC.fullmatch(text))]
    if not parts:
        return " ".join(found)
    rollups = list(dict.fromkeys(rollup for rollup, _ in parts))
    more = list(dict.fromkeys(rest for _, rest in parts if rest))
    alone = "each alone or with" if ("avg", "") in parts or ("sum", "") in parts else "each with"
    return " ".join(f".{rollup}" for rollup in rollups) + (f", {alone} {' '.join(more)}" if more else "")


def described_record(chip: str, told: str, found: Sequence[Described]) -> dict[str, Any]:
    """Return the metrics for JSON."""
    return {"chip": chip, "source": told, "metrics": [_described_record(each) for each in found]}


def _described_record(found: Described) -> dict[str, Any]:
    twin = asdict(found.twin) if found.twin is not None else None
    return {**asdict(found.metric), "submetrics": list(found.endings), "passes": dict(found.passes), "dcgm": twin}


def plan_text(found: Planned) -> str:
    """Return the answer in a line, then what makes it so, then a cheaper choice."""
    made = found.plan
    answers = [_answer(way, named=not index) for index, way in enumerate(made.ways.values())]
    answers += [f"{_BY[mode]} not known here" for mode in made.unknown]
    head = f"{len(made.metrics)} metric{'s' * (len(made.metrics) != 1)} on {made.chip}: {', '.join(answers)}"
    lines = [line for way in made.ways.values() for line in _single(way)]
    for cheaper in made.cheaper.values():
        lines += [f"cheaper under other names for the same: {_answer(cheaper.way)}"]
        lines += [f"  {old} → {new}" for old, new in cheaper.renamed.items()]
    notes = [f"{name} was taken as {full}" for name, full in found.completed.items()]
    notes += [f"{_BY[mode]}: {reason}; {WHICH}" for mode, reason in made.unknown.items()]
    most = [f"{way.most} {_BY[way.mode]}" for way in made.ways.values() if way.most]
    notes += [f"at most this many of the hardware's counters fit a pass: {', '.join(most)}"] if most else []
    told = [f"note: {note}" for note in [*notes, *found.notes, found.told]]
    return "\n".join([head, "", *_table(found), "", *([*lines, ""] if lines else []), *told])


def _answer(way: Way, named: bool = True) -> str:
    """Say the passes; `named` with the word, which stands once in a line."""
    without = f" without {_listed(way.refused)}, which it doesn't have" if way.refused and way.alone else ""
    if not way.alone:
        return f"not to be had {_BY[way.mode]}"
    if way.passes is None:
        return f"not together {_BY[way.mode]}{without}"
    return f"{_passes(way.passes) if named else f'{way.passes:,}'} {_BY[way.mode]}{without}"


def _passes(count: int) -> str:
    return f"{count:,} pass{'es' * (count != 1)}"


def _listed(metrics: Sequence[str], most: int = 3) -> str:
    return ", ".join(metrics[:most]) + (f" and {len(metrics) - most} more" if len(metrics) > most else "")


def _table(found: Planned) -> list[str]:
    ways = list(found.plan.ways.values())
    width = max(len(name) for name in found.plan.metrics)
    lines = [f"{'passes of each alone':<{width}}" + "".join(f"  {_BY[way.mode]:>14}" for way in ways)]
    for name in found.plan.metrics:
        lines.append(f"{name:<{width}}" + "".join(f"  {way.alone.get(name, '-'):>14}" for way in ways))
    return lines


def _single(way: Way) -> list[str]:
    """Say what one pass holds, where it doesn't hold all."""
    if way.passes == 1 or not way.alone:
        return []
    lines = [f"a single pass {_BY[way.mode]} holds {len(way.kept)} of them, without {_listed(way.dropped)}"]
    if not way.kept:
        lines = [f"no single pass {_BY[way.mode]} holds {'any of them' if len(way.alone) > 1 else 'it'}"]
    return lines + [f"  together {_BY[way.mode]}: {', '.join(group)}" for group in way.groups]


def plan_record(found: Planned) -> dict[str, Any]:
    """Return the plan for JSON."""
    made = found.plan
    return {
        "chip": made.chip,
        "source": found.told,
        "metrics": list(made.metrics),
        "completed": dict(found.completed),
        "modes": {mode: _way_record(way) for mode, way in made.ways.items()},
        "cheaper": {mode: {"renamed": dict(each.renamed), **_way_record(each.way)} for mode, each in made.cheaper.items()},
        "unknown": dict(made.unknown),
    }


def _way_record(way: Way) -> dict[str, Any]:
    return {
        "passes": way.passes,
        "alone": dict(way.alone),
        "not_collected": list(way.refused),
        "groups": [list(group) for group in way.groups],
        "single_pass": list(way.kept),
        "left_out": list(way.dropped),
        "most_counters_per_pass": way.most,
    }
