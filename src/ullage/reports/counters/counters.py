"""What can be counted on a chip, and in how many passes: the answers of `ullage cupti chips`, `metrics`, `describe` and `plan`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from ullage.cupti.counters import catalogue as catalogues
from ullage.cupti.counters import host, names, perfworks, plan, wanted
from ullage.cupti.counters.catalogue import Catalogue, CounterSource
from ullage.cupti.counters.chips import code
from ullage.cupti.counters.names import CounterMetric
from ullage.cupti.metric_names import dcgm_equivalents as twins
from ullage.cupti.metric_names import dictionary
from ullage.cupti.metric_names.dictionary import base
from ullage.errors import UllageError, did_you_mean, harmless
from ullage.gpus.chip import CHIPS, Chip, all_names, find
from ullage.gpus.names import fold
from ullage.views.shown import ShownByView

Mode = Literal["both", "range", "pm"]
NO_LIBRARY = "pip install 'ullage[cupti]', or name the library with --cupti"
WITHOUT = f"what NVIDIA says of a metric, its endings and its passes come from libcupti: {NO_LIBRARY}"


@dataclass(frozen=True)
class Chips(ShownByView, view="ullage.render.counters:chips"):
    """The chips that can be counted on, with the GPUs of `ullage gpus` that have each; `told` says who answers.

    `others` are chips that it doesn't know, and the dictionary of all releases does.
    """

    gpus: Mapping[str, tuple[str, ...]]
    told: str
    others: tuple[str, ...] = ()


@dataclass(frozen=True)
class Listing(ShownByView, view="ullage.render.counters:listing"):
    """The metrics of a chip that were asked for, and how many it has of each kind; `limit` of them are wanted (0: all; None: as fits)."""

    catalogue: Catalogue
    found: tuple[CounterMetric, ...]
    counts: Mapping[str, int]
    pattern: str
    limit: int | None = None


@dataclass(frozen=True)
class DescribedMetric:
    """One metric: what may follow its name, the passes it needs, its twin in DCGM; what nobody can tell here is empty."""

    metric: CounterMetric
    endings: tuple[str, ...]
    passes: Mapping[str, int | None]
    twin: twins.Twin | None


@dataclass(frozen=True)
class DescribedMetrics(ShownByView, view="ullage.render.counters:described"):
    """All that is known of some metrics of a chip; `told` says who answers, and `notes` what nobody could tell."""

    chip: str
    told: str
    metrics: tuple[DescribedMetric, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Planned(ShownByView, view="ullage.render.counters:plan"):
    """A plan, with the name that each metric was asked by where it was completed, and who answered."""

    plan: plan.CollectionPlan
    completed: Mapping[str, str]
    told: str
    notes: tuple[str, ...] = field(default=())


def chip_code(name: str) -> str:
    """Return CUPTI's name of a chip, from that or from a GPU's name in any form that `ullage gpus` knows.

    Raises UllageError for what is neither, and for a GPU whose chip CUPTI doesn't serve.

    >>> chip_code("gh100"), chip_code("h200"), chip_code("V100"), chip_code("L4")
    ('GH100', 'GH100', 'GV100', 'AD104')
    """
    folded = {chip.casefold(): chip for chip in dictionary.chips()}
    if name.casefold() in folded:
        return folded[name.casefold()]
    gpus = _gpus(name)
    if not gpus:
        hint = did_you_mean(name, [*folded.values(), *all_names()], "ullage cupti chips")
        raise UllageError(f"no chip and no GPU is called '{harmless(name, 80)}'", hint)
    found = {code(gpu.name, gpu.compute_capability) for gpu in gpus}
    if len(found) > 1 or not all(found):
        raise UllageError(f"CUPTI doesn't count on the {gpus[0].name}", "it is NVIDIA's; `ullage cupti chips` lists its chips")
    return found.pop()


def _gpus(name: str) -> list[Chip]:
    """The GPUs of that name: several for one such as "V100", whose boards differ in their peaks but not in their chip."""
    try:
        return [find(name)]
    except UllageError:
        words = fold(name)
        return [gpu for gpu in CHIPS.values() if words in map(fold, gpu.shared_names)]


def chips(source: CounterSource) -> Chips:
    """Return every chip that the source knows, with its GPUs."""
    CHIPS.load()
    gpus: dict[str, list[str]] = {chip: [] for chip in catalogues.chips(source)}
    for gpu in CHIPS.values():
        found = code(gpu.name, gpu.compute_capability)
        if found in gpus:
            gpus[found].append(gpu.name)
    others = tuple(chip for chip in dictionary.chips() if chip not in gpus)
    return Chips({chip: tuple(found) for chip, found in gpus.items()}, source.told, others)


def listing(source: CounterSource, chip: str, pattern: str, kind: str, limit: int | None = None) -> Listing:
    """Return the metrics of a chip that match; `limit` of them are wanted, as in `Listing`."""
    known = catalogues.catalogue(chip_code(chip), source)
    counts: dict[str, int] = {each: sum(1 for metric in known.metrics if metric.kind == each) for each in names.KINDS}
    found = sorted(names.matching(known.metrics, pattern, kind), key=_plain_first)
    return Listing(known, tuple(found), counts, pattern, limit)


def _plain_first(metric: CounterMetric) -> tuple[bool, str]:
    """Families of single passes ("TPC.TriageCompute.…") come after the names that people use."""
    return "." in metric.name, metric.name


def described(source: CounterSource, chip: str, asked: Sequence[str]) -> DescribedMetrics:
    """Return all that is known of some metrics of a chip. Raises UllageError for one that it doesn't have."""
    known = catalogues.catalogue(chip_code(chip), source)
    complete = names.resolved(asked, known.metrics, known.chip)
    found = [_described(source, known, name) for name in dict.fromkeys(base(name) for name in complete)]
    return DescribedMetrics(known.chip, known.told, tuple(found), () if source.library else (WITHOUT,))


def _described(source: CounterSource, known: Catalogue, name: str) -> DescribedMetric:
    metric = known.by_name[name]
    own = [twin for twin in twins.twins(known.chip) if base(twin.metric) == name] if known.chip in dictionary.chips() else []
    endings: tuple[str, ...] = ()
    passes: dict[str, int | None] = {}
    if source.library is not None and not host.refusal(source.library) and known.chip in host.chips(source.library):
        full = names.complete(name, metric.kind)
        with suppress(host.Unserved), host.Host(source.library, known.chip, host.Use.RANGES) as opened:
            endings = tuple(opened.submetrics(name, names.KINDS.index(metric.kind)))
        found = plan.plan(source.library, known.chip, [full], known)
        passes = {mode: way.alone.get(full) for mode, way in found.ways.items()}
    return DescribedMetric(metric, endings, passes, own[0] if own else None)


def planned(source: CounterSource, chip: str, asked: Sequence[str], which: str = "", mode: Mode = "both", grouped: bool = False) -> Planned:
    """Return in how many passes metrics are collected; `which` names one of Ullage's own sets (`wanted.SETS`) to plan as well.
    `grouped` asks which go together.

    Raises UllageError for a metric that the chip doesn't have, and where there is no library that can be asked.
    """
    found = chip_code(chip)
    if source.library is None:
        raise UllageError(f"passes are counted by NVIDIA's library, and {source.reason}", NO_LIBRARY)
    known = catalogues.catalogue(found, source)
    if found not in catalogues.chips(source):
        raise UllageError(f"this CUPTI doesn't know the chip {found} any more, or not yet", f"passes need it: {source.told}")
    own = list(wanted.wanted(which, known.by_name).values()) if which else []
    complete = names.resolved([*own, *asked], known.metrics, found)
    if not complete:
        raise UllageError("there is nothing to plan", "name metrics, or one of Ullage's sets with --set")
    with perfworks.Evaluator(source.library, found) as evaluator:
        evaluator.check(complete)
    modes = plan.MODES if mode == "both" else (mode,)
    made = plan.plan(source.library, found, complete, known, modes, grouped)
    completed = {name: full for name in asked if base(name) == name for full in complete if base(full) == name}
    return Planned(made, completed, source.told)
