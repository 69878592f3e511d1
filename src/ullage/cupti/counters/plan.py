"""In how many passes metrics are collected, which make it so, and how to do with fewer. No GPU is needed.

A pass is one run of the same work: a GPU has few counters, and what doesn't fit them together is collected by running again. Over ranges
CUPTI replays each kernel by itself (kernel replay) or the program replays (user replay; times the nesting levels that are profiled).
PM sampling can't replay: what needs more than one pass it doesn't collect at all, and many counters of ranges it doesn't have.

Source: guide 2.7.1 (multi-pass collection); `cupti_profiler_host.h`; for the nesting levels NVPW_RawMetricsConfig_GetNumPasses_V2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Literal

from ullage.cupti.counters import host, perfworks
from ullage.cupti.counters.catalogue import Catalogue
from ullage.cupti.counters.host import Host, NotCollected, Unserved, Use
from ullage.cupti.library import Library
from ullage.cupti.metric_names.dictionary import base
from ullage.errors import UllageError

Mode = Literal["range", "pm"]
MODES: tuple[Mode, ...] = ("range", "pm")
Passes = Callable[[Sequence[str]], int]
_USE = {"range": Use.RANGES, "pm": Use.SAMPLING}


@dataclass(frozen=True)
class CollectionWay:
    """How metrics are collected in one mode.

    `passes` is for all of them together, without those that are `refused`, which this mode doesn't have: None where the rest can't be
    collected together, 0 where nothing is left. `alone` is what each needs by itself. `kept` are those that one pass holds, the earliest
    asked first. `groups`, if they were asked for, fit one pass each, first fit in the order asked; a metric that needs several passes by
    itself stands alone. `most` is how many counters of the hardware fit a pass at best, None where it can't be asked.
    """

    mode: Mode
    passes: int | None
    alone: Mapping[str, int]
    refused: tuple[str, ...]
    kept: tuple[str, ...]
    most: int | None = None
    groups: tuple[tuple[str, ...], ...] = ()

    @property
    def dropped(self) -> tuple[str, ...]:
        """What must be left out for a single pass."""
        return tuple(name for name in self.alone if name not in self.kept)


@dataclass(frozen=True)
class Cheaper:
    """The same quantities under other names, in fewer passes (or collected at all): old name → new name."""

    renamed: Mapping[str, str]
    way: CollectionWay


@dataclass(frozen=True)
class CollectionPlan:
    """The answer: `ways` and `cheaper` by mode; `unknown` says of a mode why it could not be asked."""

    chip: str
    metrics: tuple[str, ...]
    ways: Mapping[Mode, CollectionWay]
    cheaper: Mapping[Mode, Cheaper]
    unknown: Mapping[Mode, str] = field(default_factory=dict)


def plan(
    library: Library, chip: str, metrics: Sequence[str], known: Catalogue, modes: Iterable[Mode] = MODES, grouped: bool = False
) -> CollectionPlan:  # fmt: skip
    """Return in how many passes these metrics (complete names) are collected on a chip, in each mode that can be asked.

    With `grouped` also which of them go together, which takes longer.
    Raises UllageError for a name that the chip doesn't have, and when no mode can be asked.
    """
    ways: dict[Mode, CollectionWay] = {}
    cheaper: dict[Mode, Cheaper] = {}
    unknown: dict[Mode, str] = {}
    reason, twins = host.refusal(library), twin_names(known)
    with ExitStack() as stack:
        for mode in modes:
            if reason and mode == "pm":
                unknown[mode] = reason
                continue
            count = _counter(stack, library, chip, mode, not reason)
            most = None if reason else host.most(library, chip, _USE[mode])
            ways[mode] = way(mode, metrics, count, most, grouped)
            found = cheaper_way(ways[mode], metrics, twins, count) if mode == "pm" else None  # ranges can be replayed
            if found is not None:
                cheaper[mode] = found
    if not ways:
        raise UllageError(reason, host.WHICH)
    return CollectionPlan(chip, tuple(metrics), ways, cheaper, unknown)


def _counter(stack: ExitStack, library: Library, chip: str, mode: Mode, hosted: bool) -> Passes:
    """Ask the profiler host, or for ranges Perfworks where that can't be asked: both give the same number."""
    try:
        if hosted:
            return stack.enter_context(Host(library, chip, _USE[mode])).passes
    except Unserved as unserved:
        if mode == "pm":  # Volta has none
            return _refusing(unserved)
    return stack.enter_context(perfworks.Evaluator(library, chip)).passes


def _refusing(unserved: Unserved) -> Passes:
    def none(names: Sequence[str]) -> int:
        raise NotCollected(names, unserved.chip, unserved.use)

    return none


def way(mode: Mode, metrics: Sequence[str], count: Passes, most: int | None = None, grouped: bool = False) -> CollectionWay:
    """Return how metrics are collected, by whoever counts passes.

    >>> found = way("pm", ["a", "b", "c"], lambda names: len(set(names) & {"a", "b"}) or 1, grouped=True)
    >>> found.passes, found.kept, found.groups
    (2, ('a', 'c'), (('a', 'c'), ('b',)))
    """
    needed = {name: _together([name], count) for name in metrics}
    alone = {name: passes for name, passes in needed.items() if passes is not None}
    total = _together(list(alone), count)
    refused = tuple(name for name, passes in needed.items() if passes is None)
    single = [name for name, passes in alone.items() if passes == 1]
    kept = tuple(alone) if total == 1 else _fitting(single, count)
    groups = (kept,) if total == 1 else _groups(alone, kept, count) if grouped else ()
    return CollectionWay(mode, total, alone, refused, kept, most, groups)


def _together(names: Sequence[str], count: Passes) -> int | None:
    """The passes of these metrics: 0 for none of them, None where they can't be collected together."""
    try:
        return count(names) if names else 0
    except NotCollected:
        return None


def _fitting(names: Sequence[str], count: Passes) -> tuple[str, ...]:
    """Take one after the other into a pass, as long as it stays one. The library's own schedule may do better: it splits metrics."""
    kept: list[str] = []
    for name in names:
        if _together([*kept, name], count) == 1:
            kept.append(name)
    return tuple(kept)


def _groups(alone: Mapping[str, int], kept: Sequence[str], count: Passes) -> tuple[tuple[str, ...], ...]:
    groups = [tuple(kept)] if kept else []
    left = [name for name, passes in alone.items() if passes == 1 and name not in kept]
    while left:
        groups.append(_fitting(left, count))
        left = [name for name in left if name not in groups[-1]]
    return (*groups, *((name,) for name, passes in alone.items() if passes > 1))


def cheaper_way(found: CollectionWay, metrics: Sequence[str], twins: Mapping[str, str], count: Passes) -> Cheaper | None:
    """Return other names for the same quantities that need fewer passes, or that the mode has; None where there are none.

    `twins` are those of `twin_names`. As few names as possible are changed.
    """
    if found.passes == 1 and not found.refused:
        return None
    renamed = {name: other for name in metrics if (other := _twin(name, found, twins, count))}
    best = _worse(_with(metrics, renamed), count)
    if best >= _worse(metrics, count):
        return None
    for name in list(renamed):
        fewer = {old: new for old, new in renamed.items() if old != name}
        if _worse(_with(metrics, fewer), count) <= best:
            renamed = fewer
    return Cheaper(renamed, way(found.mode, _with(metrics, renamed), count, found.most))


def _twin(name: str, found: CollectionWay, twins: Mapping[str, str], count: Passes) -> str:
    """A metric's name in a family, "" where it has none that the mode collects in no more passes."""
    if base(name) not in twins:
        return ""
    other = twins[base(name)] + name[len(base(name)) :]
    needed = _together([other], count)
    return other if needed is not None and needed <= found.alone.get(name, needed) else ""


def _with(metrics: Sequence[str], renamed: Mapping[str, str]) -> list[str]:
    return [renamed.get(name, name) for name in metrics]


def _worse(metrics: Sequence[str], count: Passes) -> tuple[int, float]:
    """How bad a choice is: first what can't be collected at all, then the passes."""
    total = _together(metrics, count)
    if total is not None:
        return 0, total
    possible = [name for name in metrics if _together([name], count) is not None]
    total = _together(possible, count)
    return len(metrics) - len(possible), math.inf if total is None else total


def twin_names(known: Catalogue) -> dict[str, str]:
    """Return the metrics that a chip also has in a family made for one pass (`TPC.TriageCompute.…`) or in real time (`…_realtime`).

    A twin has the same unit and the same kind: it counts the same thing, by counters that fit together.
    """
    twins: dict[str, str] = {}
    for metric in known.metrics:
        if metric.kind == "throughput":  # the share of a family's throughput is taken over fewer parts
            continue
        core = metric.name.rpartition(".")[2]
        stem = core.removesuffix("_realtime")
        plain = known.by_name.get(stem)
        if plain is None or stem == metric.name or (plain.kind, plain.unit) != (metric.kind, metric.unit):
            continue
        if stem not in twins or "TriageCompute" in metric.name:
            twins[stem] = metric.name
    return twins
