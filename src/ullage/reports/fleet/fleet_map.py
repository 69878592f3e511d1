"""The fleet at a glance: OFU of every GPU where it stands, and the ullage by whose it is and by cause."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from ullage.metrics.metric import ratio
from ullage.metrics.telemetry import LABELS
from ullage.reports.fleet.bills import FleetMoney, fleet_money, unpriced_note
from ullage.reports.fleet.groups import counted_hours, gpu_hours, groups_of
from ullage.reports.fleet.judged import JudgedFleet
from ullage.reports.fleet.prices import RowPrices, row_prices
from ullage.reports.fleet.rated import Rated, weighted_mean
from ullage.units import HOUR_MS
from ullage.views.shown import ShownByView

TEAMS = ("namespace", "user", "job")  # whose hours they are: the first of these that is named
STRIP = 16  # GPUs that stand side by side; a host that has more goes on in a further row
Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class MappedGpu:
    """A GPU on its host: OFU over trusted time (None: not known), GPU-hours, and the label of the step that loses most of them.

    `trusted_share` is the part of its GPU-hours that can be believed.
    """

    gpu: str
    ofu: float | None
    gpu_hours: float
    trusted_share: float
    most_lost: str


@dataclass(frozen=True)
class MappedHost:
    """A host, or `STRIP` of its places: the GPU at each place from `first` on, None where there is none; `ullage` in GPU-hours."""

    cluster: str | None
    host: str | None
    first: int
    gpus: Sequence[MappedGpu | None]
    ullage: float


@dataclass(frozen=True)
class OwnerLosses:
    """What is whose: GPU-hours, those that fall short, and what each step of the chain takes of them, by its label (below 0: a gain).

    `ullage_cost` is what those that fall short cost (None: not known).
    """

    key: str
    gpu_hours: float
    ullage: float
    losses: dict[str, float]
    ullage_cost: float | None = None


@dataclass(frozen=True)
class FleetMap(ShownByView, view="ullage.render.fleet_map"):
    """The answer to `ullage fleet-map`. Hosts stand in order of their names; owners by what falls short, the most first.

    The losses of all owners add up to `ullage`, and so do the hosts' (GPU-hours). `several_clusters`: hosts are told apart by them.
    """

    window: tuple[int, int]
    ofu: float | None
    gpus: int
    gpu_hours: float
    ullage: float | None
    by: str
    hosts: list[MappedHost]
    owners: list[OwnerLosses]
    money: FleetMoney = field(default_factory=FleetMoney)
    command: str = ""
    notes: list[str] = field(default_factory=list)
    complete: bool = True
    read_until: int | None = None
    partial_because: str = ""

    @property
    def several_clusters(self) -> bool:
        """Whether hosts stand in more than one cluster."""
        return len({one.cluster for one in self.hosts}) > 1


def fleet_map(judged: JudgedFleet, by: str | None, command: str, notes: list[str]) -> FleetMap:
    """Return the map of a judged fleet, or of a part of it; `by` says whose the ullage is (None: the first of `TEAMS` that is named)."""
    good, hosts, prices = judged.good, hosts_of(judged), row_prices(judged.rated, judged.prices)
    ofu, by = weighted_mean(good.ofu_part, good.ofu_time, good.weight), by or named_owners(judged.rated)
    return FleetMap(
        window=judged.window,
        ofu=ofu,
        gpus=judged.rated.codes("gpu")[1],
        gpu_hours=gpu_hours(judged.rated),
        ullage=None if ofu is None else counted_hours(good) * (1 - ofu),
        by=by,
        hosts=hosts,
        owners=[*_owners(judged, by, prices)],
        money=fleet_money(judged.rated, judged.trusted, prices, judged.prices),
        command=command,
        notes=[*notes, *unpriced_note(judged.rated, prices, judged.prices)],
    )


def named_owners(rated: Rated) -> str:
    """Return what says whose the hours are: the first of namespace, user and job that any row names, else the host."""
    named = (key for key in TEAMS if any(rated.words(key)))
    return next(named, "host")


def _owners(judged: JudgedFleet, by: str, prices: RowPrices) -> Iterator[OwnerLosses]:
    for group in groups_of(judged.rated, judged.trusted, judged.lost, by, prices):
        losses = {factor.label: lost for factor, lost in group.tree.losses(group.counted_hours)}
        yield OwnerLosses(group.key, group.gpu_hours, group.ullage or 0.0, losses, group.ullage_cost)


def hosts_of(judged: JudgedFleet) -> list[MappedHost]:
    """Return the hosts with their GPUs; a GPU that moved stands on each of its hosts."""
    rows = sorted(_placed(judged), key=lambda one: (one.cluster or "", natural_order(one.host or "~"), one.place))
    found = []
    for (cluster, host, strip), own in groupby(rows, key=lambda one: (one.cluster, one.host, one.place // STRIP)):
        there = {one.place % STRIP: one for one in own}
        cells = [there[place].gpu if place in there else None for place in range(max(there) + 1)]
        found.append(MappedHost(cluster, host, strip * STRIP, cells, sum(one.ullage for one in there.values())))
    return found


@dataclass(frozen=True)
class _PlacedGpu:
    cluster: str | None
    host: str | None
    place: int
    gpu: MappedGpu
    ullage: float


def _placed(judged: JudgedFleet) -> Iterator[_PlacedGpu]:
    rated, trusted = judged.rated, judged.trusted
    codes, firsts = rated.alike("cluster", "host", "gpu")
    count, good, believed = len(firsts), judged.good, codes[trusted]
    hours, weight = rated.column("span_ms") * rated.weight / HOUR_MS, good.weight
    whole, sure = np.bincount(codes, hours, count), np.bincount(believed, hours[trusted], count)
    known = (good.ofu_time > 0) & ~np.isnan(good.ofu_part)
    time = np.bincount(believed[known], (good.ofu_time * weight)[known], count)
    kept = np.bincount(believed[known], (good.ofu_part * weight)[known], count)
    ofu, most = ratio(kept, time), _most_lost(judged, believed, count)
    names = {name: rated.sums[name].take(firsts).to_pylist() for name in ("cluster", "host", "gpu", "index")}
    places = places_of([*zip(names["cluster"], names["host"], strict=True)], names["index"], names["gpu"])
    for code in range(count):
        share = float(ratio(sure[code], whole[code]) or 0.0)
        cell = MappedGpu(names["gpu"][code], _known(ofu[code]), float(whole[code]), share, most[code])
        short = float(time[code] - kept[code]) / HOUR_MS
        yield _PlacedGpu(names["cluster"][code], names["host"][code], places[code], cell, short)


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _most_lost(judged: JudgedFleet, codes: npt.NDArray[np.int64], count: int) -> list[str]:
    """Return, for each GPU, the label of the step that loses most; "" where nothing is lost."""
    names = list(judged.lost)
    if not names:
        return [""] * count
    added = np.array([np.bincount(codes, np.nan_to_num(judged.lost[name]), count) for name in names])
    labels = [label_of(name) for name in names]
    return [labels[row] if added[row, code] > 0 else "" for code, row in enumerate(added.argmax(axis=0))]


def label_of(name: str) -> str:
    """Return the label of a step; of steps that could not be told apart those of all of them.

    >>> label_of("clock"), label_of("activity_x_sm_fill")
    ('clock', 'activity × SM fill')
    """
    return " × ".join(LABELS[step] for step in name.split("_x_"))


def places_of(hosts: Sequence[Any], indices: Sequence[int | None], gpus: Sequence[str]) -> list[int]:
    """Return each GPU's place on its host: its index, or where one has none, or two have the same, its rank by index and name.

    >>> places_of(["a", "a", "b", "b"], [3, 0, 1, 1], ["x", "y", "z", "w"]), places_of(["a", "a"], [None, None], ["y", "x"])
    ([3, 0, 1, 0], [1, 0])
    """
    own: dict[Any, list[int]] = {}
    for row, host in enumerate(hosts):
        own.setdefault(host, []).append(row)
    places = [0] * len(hosts)
    for rows in own.values():
        told = [index for row in rows if (index := indices[row]) is not None]
        fits = len(told) == len(rows) == len(set(told)) and max(told) < len(rows) + STRIP
        ranked = sorted(rows, key=lambda row: (indices[row] is None, indices[row] or 0, gpus[row]))
        for rank, row in enumerate(ranked):
            places[row] = int(indices[row] or 0) if fits else rank
    return places


def natural_order(name: str) -> tuple[tuple[int, int, str], ...]:
    """Return a key by which names stand as people count: node-2 before node-10.

    >>> sorted(["node-10", "node-2", "9", "a"], key=natural_order)
    ['9', 'a', 'node-2', 'node-10']
    """
    parts, word = [], ""
    for digits, group in groupby(name, key=lambda sign: sign.isascii() and sign.isdigit()):
        word = "".join(group)
        parts.append((0, int(word[:400]), word) if digits else (1, 0, word))
    return tuple(parts)
