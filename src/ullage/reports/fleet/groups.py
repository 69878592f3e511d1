"""Rows of a report: device sums gathered by job, user, host, hour …, each with its OFU and tree."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ullage.errors import UllageError, harmless
from ullage.gpus.chip import find
from ullage.gpus.mig import mig_share
from ullage.metrics.metric import ratio
from ullage.metrics.telemetry import TelemetryTree
from ullage.reports.fleet.energy import Energy, energies_of
from ullage.reports.fleet.prices import RowPrices
from ullage.reports.fleet.rated import Rated, chains, weighted_mean
from ullage.reports.fleet.roofs import RoofHeights, roofs_of
from ullage.reports.fleet.trusted import ClockMoves
from ullage.store.rollups import COURSE_MS, RolledSums
from ullage.sums.devices import device_sums, from_course_steps, milliseconds_of, time_steps, within
from ullage.sums.exact import negative
from ullage.sums.gauges import device_and_gauge_steps, device_and_gauge_sums, gauge_sums, in_units_of_devices, merged_steps
from ullage.sums.slices import by_slices, sliced_gpus
from ullage.sums.spans import Span, Whose, cut_at_spans, gpus_of, samples_in_spans
from ullage.tables import SETTLED
from ullage.units import HOUR_MS

Mask = npt.NDArray[np.bool_]
Array = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]
JOB_SPANS = pa.schema([("cluster", pa.string()), ("job", pa.string()), ("start", pa.int64()), ("end", pa.int64()), ("ending", pa.string())])
EXACT = 0.99  # share of the time in which cycles were counted, from which on OFU is called exact


@dataclass(frozen=True)
class Group:
    """One row of the answer: a job, a user, a host, an hour …, with its OFU, its GPU-hours and what it falls short by.

    `ofu`, `tree` and `ullage` are over trusted series, `counted_hours` of them whose OFU is known, `exact_share` of it by cycle counters;
    `roofs` are over trusted series too; `gpu_hours`, `gpus`, `cost` and `energy` over all. `tree` says what is left after each step; its
    losses of `counted_hours` add up to `ullage`, and `ullage_cost` is the part of `cost` that this comes to. `list_cost` is what the hours
    cost at list price. `ofu_bounds` are the least and the most that `ofu` may be, where clocks were sampled.
    """

    key: str
    ofu: float | None
    method: str
    gpus: int
    gpu_hours: float
    trusted_share: float
    tree: TelemetryTree
    cost: float | None
    counted_hours: float = 0.0
    exact_share: float = 0.0
    roofs: RoofHeights = field(default_factory=RoofHeights)
    energy: Energy = field(default_factory=Energy)
    ofu_bounds: tuple[float, float] | None = None
    ullage_cost: float | None = None
    list_cost: float | None = None

    @property
    def ullage(self) -> float | None:
        """GPU-hours short of full."""
        return None if self.ofu is None else self.counted_hours * (1 - self.ofu)


def groups_of(
    rated: Rated,
    trusted: Mask,
    lost: Mapping[str, Array],
    by: str,
    prices: RowPrices,
    moves: ClockMoves | None = None,
) -> list[Group]:
    """Return a group per value of the column `by`, the most GPU-hours short of full first; `trusted` says which rows count for OFU.

    `lost` is what each step loses in each trusted row, `prices` what a GPU-hour of each row costs,
    `moves` how far their clocks leave OFU open. Names that stand in several clusters
    are told apart by the cluster.
    """
    rows, firsts = rated.alike(by, "cluster")
    labels = _labels(rated.sums.take(pa.array(firsts)), by)
    keys = sorted(set(labels))
    place = {key: code for code, key in enumerate(keys)}
    codes = np.array([place[label] for label in labels], dtype=np.int64)[rows]
    found = _groups(rated, trusted, lost, codes, [harmless(key) for _, key in keys], prices, moves)
    return found if by == "bucket" else sorted(found, key=lambda g: (-(g.ullage if g.ullage is not None else -1.0), g.key))


def _labels(sums: pa.Table, by: str) -> list[tuple[bool, str]]:
    """Return each row's group: whether it is the one of what has no such name, and the group's name."""
    names = sums[by].to_pylist()
    if by == "bucket":
        return [(False, datetime.datetime.fromtimestamp(int(str(name)) / 1000, datetime.UTC).strftime("%Y-%m-%d %H:00")) for name in names]
    clusters = sums["cluster"].to_pylist() if by in ("job", "host", "user", "namespace") and "cluster" in sums.column_names else []
    where: dict[object, set[str | None]] = {}
    for name, cluster in zip(names, clusters, strict=False):
        where.setdefault(name, set()).add(cluster)
    several = {name for name, found in where.items() if name is not None and len(found) > 1}
    told = [
        f"{clusters[row] or 'no cluster'}/{name}" if name in several else f"no {by}" if name is None else str(name)
        for row, name in enumerate(names)
    ]
    return [(name is None, words) for name, words in zip(names, told, strict=True)]


def _groups(
    rated: Rated,
    trusted: Mask,
    lost: Mapping[str, Array],
    codes: Codes,
    keys: Sequence[str],
    prices: RowPrices,
    moves: ClockMoves | None,
) -> list[Group]:
    count = len(keys)
    good = rated.take(trusted)
    hours = rated.hours
    whole, believed = np.bincount(codes, hours, count), np.bincount(codes[trusted], hours[trusted], count)
    spent, listed = np.bincount(codes, hours * prices.paid, count), np.bincount(codes, hours * prices.listed, count)
    own, several = rated.codes("gpu")  # slices of one GPU are one GPU, as in the headline
    devices = np.bincount(np.unique(codes * max(several, 1) + own) // max(several, 1), minlength=count)
    counted = np.bincount(codes[trusted], good.ofu_time * good.weight, count)
    roofs, energies = roofs_of(good, codes[trusted], count), energies_of(rated, codes, count)
    bounds = [None] * count if moves is None else moves.bounds(codes[trusted], count)
    wasted = np.bincount(codes[trusted], good.ullage_hours * prices.paid[trusted], count)
    exact = np.nan_to_num(ratio(np.bincount(codes[trusted], good.exact_time * good.weight, count), counted))
    return [
        Group(
            key=key,
            ofu=tree.ofu,
            method=method_of(float(exact[code])),
            gpus=int(devices[code]),
            gpu_hours=float(whole[code]),
            trusted_share=float(ratio(believed[code], whole[code]) or 0.0),
            tree=tree,
            cost=None if np.isnan(spent[code]) else float(spent[code]),
            counted_hours=float(counted[code]) / HOUR_MS,
            exact_share=float(exact[code]),
            roofs=roofs[code],
            energy=energies[code],
            ofu_bounds=bounds[code],
            ullage_cost=None if tree.ofu is None or np.isnan(spent[code]) else float(wasted[code]),
            list_cost=None if np.isnan(listed[code]) else float(listed[code]),
        )
        for code, (key, tree) in enumerate(zip(keys, chains(good, lost, codes[trusted], count), strict=True))
    ]


def gpu_hours(rated: Rated) -> float:
    """Return the observed GPU-hours of some rows; a MIG instance counts its share."""
    return float((rated.column("span_ms") * rated.weight).sum()) / HOUR_MS


def gauge(rated: Rated, name: str) -> float | None:
    """Return the mean of a gauge over the time in which it was known, or None."""
    return weighted_mean(rated.column(f"{name}_sum"), rated.column(f"{name}_ms"), rated.weight)


def exact_share(rated: Rated) -> float:
    """Return the share of OFU's time that cycle counters gave."""
    exact, time = (rated.exact_time * rated.weight).sum(), (rated.ofu_time * rated.weight).sum()
    return float(ratio(float(exact), float(time)) or 0.0)


def method_of(share: float) -> str:
    """Return how OFU came about: "exact" by cycle counters, "sampled", or "mixed"; of a device's first sample no growth is known.

    >>> method_of(0.0), method_of(0.75), method_of(0.995)
    ('sampled', 'mixed', 'exact')
    """
    return "exact" if share >= EXACT else "sampled" if share <= 1 - EXACT else "mixed"


def counted_hours(rated: Rated) -> float:
    """Return the GPU-hours of some rows whose OFU is known."""
    return float((rated.ofu_time * rated.weight).sum()) / HOUR_MS


def state_sums(samples: Any, notes: list[str], *, bucket_ms: int | None = None, only: Sequence[str] | None = None) -> pa.Table:
    """Return the sums of settled samples (an Ibis table) by state; GPUs in MIG mode count whole while they are, and by slices while not.

    Instances whose share of their GPU nobody knows are left out with a note, and the rest of their GPU with them. `only` names the sums
    that are wanted (None: all).
    """
    return stacked([device_sums(table, bucket_ms=bucket_ms, only=only).to_pyarrow() for table in in_slices(samples, notes)])


def state_and_gauge_sums(samples: Any, notes: list[str], rolled: RolledSums | None = None) -> tuple[pa.Table, pa.Table]:
    """Return what `state_sums` gives, and the sums of `ullage.sums.gauges` over the samples as they are.

    `rolled` are sums that are kept of the samples, and the samples of which none are, cut to the same window.
    """
    tables = in_slices(samples, notes)
    if rolled is None:
        if len(tables) == 1:
            return device_and_gauge_sums(samples)
        # slices' samples are not what their states are summed over
        return stacked([device_sums(table).to_pyarrow() for table in tables]), gauge_sums(samples).to_pyarrow()
    found = [(one.states, one.gauges) for one in rolled.rolled]
    if rolled.rest is not None:
        found.append(device_and_gauge_steps(rolled.rest))
    states, gauges = in_units_of_devices(*merged_steps(*zip(*found, strict=True)))
    if len(tables) == 1:
        return states, gauges
    whole = states.filter(pc.invert(pc.is_in(states["gpu"], value_set=_gpus_of(tables[1]))))
    return stacked([whole, *(device_sums(table).to_pyarrow() for table in tables[1:])]), gauges


def course_sums(samples: Any, believed: Callable[[Any], Any], doubted: set[str], bucket_ms: int, rolled: RolledSums | None) -> pa.Table:
    """Return the sums over time of the samples that are `believed`; all samples of GPUs that are not `doubted` are.

    Of what is `rolled` up only the samples of doubted and sliced GPUs are asked.
    """
    fine_ms = min(bucket_ms, COURSE_MS)
    tables = in_slices(samples, [])
    if rolled is None or bucket_ms % COURSE_MS:
        steps = [time_steps(believed(table), bucket_ms=fine_ms) for table in tables]
        return from_course_steps(pa.concat_tables(steps), bucket_ms)
    steps = [one.course for one in rolled.rolled]
    if rolled.rest is not None:
        steps.append(time_steps(rolled.rest, bucket_ms=COURSE_MS))
    odd = doubted.union(*(_gpus_of(table).to_pylist() for table in tables[1:]))
    if odd:
        theirs = sorted(odd)
        steps.append(negative(time_steps(samples.filter(samples.gpu.isin(theirs)), bucket_ms=COURSE_MS)))
        steps += [time_steps(believed(table.filter(table.gpu.isin(theirs))), bucket_ms=COURSE_MS) for table in tables]
    sums = from_course_steps(pa.concat_tables(steps), bucket_ms)
    return sums.filter(pc.greater(sums["span_ms"], 0))


def _gpus_of(samples: Any) -> pa.Array:
    return samples.select("gpu").distinct().to_pyarrow()["gpu"].combine_chunks().cast(pa.string())


def stacked(tables: Sequence[pa.Table]) -> pa.Table:
    """Return tables of sums as one."""
    return tables[0] if len(tables) == 1 else pa.concat_tables([_strings(table) for table in tables], promote_options="permissive")


def marked_sums(sums: pa.Table, samples: Any, faults: Mapping[Whose, Sequence[Span]], *, bucket_ms: int | None = None) -> pa.Table:
    """Return what `state_sums` gave with a column `faulty`: whether a row is the time in its device's spans of `faults`.

    Only the samples of GPUs with a fault are asked again; what is in the spans and what is not add up to what was.
    """
    if not faults:
        return sums.append_column("faulty", pa.array(np.zeros(len(sums), np.bool_)))
    theirs = pa.array(gpus_of(faults), pa.string())
    parts = [_marked(_strings(sums.filter(pc.invert(pc.is_in(sums["gpu"].cast(pa.string()), value_set=theirs)))), faulty=False)]
    for table in in_slices(samples.filter(samples.gpu.isin(gpus_of(faults))), []):
        cut = cut_at_spans(table, faults, "faulty")
        for faulty in (False, True):
            found = device_sums(cut.filter(cut.faulty if faulty else ~cut.faulty).drop("faulty"), bucket_ms=bucket_ms).to_pyarrow()
            parts.append(_marked(_strings(found), faulty=faulty))
    return pa.concat_tables(parts, promote_options="permissive")


def sums_between(samples: Any, edges: Sequence[int], faults: Mapping[Whose, Sequence[Span]], *, bucket_ms: int | None = None) -> pa.Table:
    """Return `marked_sums` of all samples, in rows of which none reaches over an edge (ms)."""

    def sums_of(own: Any) -> pa.Table:
        return marked_sums(state_sums(own, [], bucket_ms=bucket_ms), own, faults, bucket_ms=bucket_ms)

    parts = [sums_of(within(samples, since, until)) for since, until in pairwise([None, *edges, None])]
    return stacked([one for one in parts if len(one)] or parts[:1])


def sums_of_job_spans(samples: Any, spans: pa.Table, gpus: Sequence[str], faults: Mapping[Whose, Sequence[Span]]) -> dict[str, pa.Table]:
    """Return the sums by state of samples in some spans of jobs, by what ended these; without the time in `faults`.

    `spans` is a table of `JOB_SPANS`, names as samples have them, times in ms. A sample belongs to a span when its time is after the start
    and not after the end. Only samples of some `gpus` are asked.
    """
    import ibis

    table = ibis.memtable(spans.rename_columns([f"_{name}" for name in spans.column_names]))
    found: dict[str, list[pa.Table]] = {ending: [] for ending in sorted(set(spans["ending"].to_pylist()))}
    for each in in_slices(samples.filter(samples.gpu.isin(gpus)), []):
        at = milliseconds_of(each.time)
        whose = [each.job.cast("string") == table._job, each.cluster.cast("string").identical_to(table._cluster)]
        inside = each.inner_join(table, [*whose, at > table._start, at <= table._end]).select(*each.columns, "_ending")
        sound = samples_in_spans(inside, faults, inside=False)
        for ending, parts in found.items():
            parts.append(device_sums(sound.filter(sound._ending == ending).drop("_ending")).to_pyarrow())
    return {ending: stacked(parts) for ending, parts in found.items()}


def _marked(sums: pa.Table, *, faulty: bool) -> pa.Table:
    return sums.append_column("faulty", pa.array(np.full(len(sums), faulty)))


def in_slices(samples: Any, notes: list[str]) -> list[Any]:
    """Return the samples of GPUs that were never sliced, and those of GPUs that were as what they stand for."""
    import ibis

    cut = sliced_gpus(samples)
    if not cut:
        return [samples]
    theirs = samples.filter(samples.gpu.isin(cut)).select(*SETTLED.names).order_by("gpu", "mig", "time").to_pyarrow()
    resolved, strange = by_slices(theirs, _share_of)
    if strange:
        whose = zip(*(theirs[name].to_pylist() for name in ("gpu", "mig", "model")), strict=True)
        gpus = {gpu for gpu, mig, model in whose if (mig, model) in strange}
        named = harmless(min(str(mig) for mig, _ in strange), 40)
        notes.append(
            f"instances of {len(gpus):,} GPUs are left out, since it is not known what share of the GPU they are (such as '{named}')"
        )
    return [samples.filter(~samples.gpu.isin(cut)), ibis.memtable(resolved)]


def _strings(sums: pa.Table) -> pa.Table:
    """Return sums with plain columns: names as strings, exact sums as whole numbers."""

    def plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
        if pa.types.is_decimal(column.type):
            return column.cast(pa.int64())
        return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column

    return pa.table({name: plain(sums[name]) for name in sums.column_names})


def _share_of(mig: str, model: str | None) -> float | None:
    """Return the share of its GPU that an instance is, None where that is not known."""
    try:
        chip = find(model) if model else None
    except UllageError:
        chip = None
    try:
        return mig_share(mig, chip) or None
    except UllageError:
        return None
