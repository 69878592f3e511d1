"""What needs more than sums by device and job: whether a device's gauges agree, when they don't, and the noise of sampling the clock."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ullage.audit.trust import LEAST_MS, GaugeEvidence, SeenClocks, allowed_gap
from ullage.metrics.clocks import LEVELS, SamplingNoise, sampled_ofu_bounds, sampling_noise
from ullage.metrics.metric import Value
from ullage.metrics.ofu import sampled_ofu
from ullage.reports.fleet.rated import Rated, codes_of
from ullage.sums.gauges import KINDS, util_sums, with_findings
from ullage.sums.grouping import collapse
from ullage.sums.spans import Span

MOST = 2000  # devices whose faults are dated; of the rest only their length is told
LEAST_ROWS = 3  # a run of fewer samples may be the start or the end of a job
FINE = 5.5  # s: series at least this fine show table I's intervals

Device = tuple[str, str | None]  # gpu, mig


def gauge_evidence(samples: Any, levels: pa.Table) -> dict[Device, GaugeEvidence]:
    """Return what each device's samples show beyond its sums, from its `gauge_sums` and a look at those samples that show a fault."""
    if not len(levels):
        return {}
    ranges = {"lowest_clock", "highest_clock", "level"}
    by_device = collapse(levels.select([name for name in levels.column_names if name not in ranges]), ["gpu", "mig"])
    longest = np.max([by_device[f"{kind}_ms"].to_numpy() for kind in KINDS], axis=0)
    seen, gaps = _seen_clocks(levels), _util_gaps(samples, levels)
    added, doubted = by_device.to_pylist(), by_device.filter(pa.array(longest >= LEAST_MS)).to_pylist()
    doubted.sort(key=lambda row: -max(row[f"{kind}_ms"] for kind in KINDS))
    dated = {row["gpu"] for row in doubted[:MOST]}
    spans = _fault_spans(samples, sorted(dated))
    lasted = {
        (row["gpu"], row["mig"]): {kind: row[f"{kind}_ms"] for kind in KINDS} for row in doubted if (row["gpu"], row["mig"]) not in spans
    }
    return {
        (row["gpu"], row["mig"]): GaugeEvidence(
            row | gaps[row["gpu"], row["mig"]],
            spans.get((row["gpu"], row["mig"]), {}),
            bounds,
            lasted.get((row["gpu"], row["mig"]), {}) if row["gpu"] not in dated else {},
            clocks,
        )
        for row in added
        for bounds, clocks in [seen.get((row["gpu"], row["mig"]), (None, None))]
    }


def _seen_clocks(levels: pa.Table) -> dict[Device, tuple[tuple[float, float], SeenClocks]]:
    """Return the bounds of each device's sampled OFU, for a tensor clock of 1 Hz, and the clocks on which they rest."""
    rated = levels.filter(pc.and_(pc.greater(levels["clock_ms"], 0), pc.is_valid(levels["level"])))
    if not len(rated):
        return {}
    codes, count = codes_of(rated, "gpu", "mig")
    level = np.minimum(rated["level"].to_numpy(), LEVELS)

    def by_device(name: str) -> npt.NDArray[np.float64]:
        found = np.zeros((count, LEVELS + 1))
        found[codes, level] = rated[name].to_numpy()
        return found

    time, tensor, lowest, highest = (by_device(name) for name in ("clock_ms", "clock_tensor_sum", "lowest_clock", "highest_clock"))
    edges = sampled_ofu_bounds(tensor, time, lowest, highest, 1.0)
    bounds = zip(*(np.asarray(edge).tolist() for edge in edges), strict=True)
    seen = [
        SeenClocks(*sums, *(tuple(clock or None for clock in edge) for edge in pair))
        for sums, *pair in zip(np.stack([time, tensor]).sum(axis=2).T.tolist(), lowest.tolist(), highest.tolist(), strict=True)
    ]
    first = np.unique(codes, return_index=True)[1]
    return dict(zip(_devices(rated, first), zip(bounds, seen, strict=True), strict=True))


def _devices(levels: pa.Table, rows: npt.NDArray[np.int64]) -> list[Device]:
    chosen = levels.select(["gpu", "mig"]).take(pa.array(rows))
    return list(zip(chosen["gpu"].to_pylist(), chosen["mig"].to_pylist(), strict=True))


UtilGaps = dict[Device, dict[str, float]]


def _util_gaps(samples: Any, levels: pa.Table) -> UtilGaps:
    """Return the sums beside "GPU utilization" of each device's level that stands out most: a fault may last for a part of the time.

    "GPU utilization" is of a second at the end of a scrape, and activity of all of it. Where both come from one step of the job, its
    phase decides both, and at one level of activity all readings may meet the pause of a sound GPU. So an hour or the whole must stand out
    as well, in which scrapes meet every phase; of both the one that stands out less counts.
    """
    found, excess = _worst_gaps(levels)
    doubted = sorted({gpu for (gpu, _), above in zip(found, excess, strict=True) if above > 0})
    if not doubted:
        return found
    hours = util_sums(samples.filter(samples.gpu.isin(doubted))).to_pyarrow().drop_columns("hour")
    every = pa.concat_tables([hours, collapse(hours, ["gpu", "mig"]).select(hours.column_names)], promote_options="permissive")
    return found | {device: min(found[device], sums, key=lambda sums: _excess(**sums)) for device, sums in _worst_gaps(every)[0].items()}


def _worst_gaps(sums: pa.Table) -> tuple[UtilGaps, list[float]]:
    """Return of some rows of sums that of each device which stands out most, and by how much more than chance allows."""
    told = sums.select(["util_ms", "util_rows", "util_gap_sum"])
    time, rows, gap = (np.asarray(told[name].to_numpy(), dtype=float) for name in told.column_names)
    codes, _ = codes_of(sums, "gpu", "mig")
    excess = np.asarray(_excess(time, rows, gap))
    order = np.lexsort((-excess, codes))
    worst = order[np.concatenate([[True], np.diff(codes[order]) != 0])]
    return dict(zip(_devices(sums, worst), told.take(pa.array(worst)).to_pylist(), strict=True)), excess[worst].tolist()


def _excess(util_ms: Value, util_rows: Value, util_gap_sum: Value) -> Value:
    """Return by how much mean activity is more above "GPU utilization" than chance allows."""
    return util_gap_sum / np.maximum(util_ms, 1) - allowed_gap(util_rows)


def _fault_spans(samples: Any, gpus: list[str]) -> dict[Device, dict[str, tuple[Span, ...]]]:
    """Return when each kind of fault was seen on some GPUs: runs of at least `LEAST_MS` and `LEAST_ROWS` samples."""
    if not gpus:
        return {}
    marked = with_findings(samples.filter(samples.gpu.isin(gpus)))
    marked = marked.filter(marked.bits > 0).select("gpu", "mig", "time", "span_ms", "bits")
    found: dict[Device, dict[str, tuple[Span, ...]]] = {}
    for (gpu, mig), (times, values) in _by_device(marked, ["gpu", "mig"], ["span_ms", "bits"]).items():
        bits, starts = values["bits"].astype(np.int64), times - values["span_ms"].astype(np.int64)
        found[gpu, mig] = {kind: _runs(starts[chosen], times[chosen]) for kind, bit in KINDS.items() if (chosen := (bits & bit) > 0).any()}
    return found


def _runs(starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> tuple[Span, ...]:
    """Return the spans that samples cover without a break, where they are long enough to be no accident."""
    first = np.flatnonzero(np.concatenate([[True], starts[1:] > ends[:-1]]))
    last = np.append(first[1:], len(starts)) - 1
    return tuple(
        (int(starts[a]), int(ends[b]))
        for a, b in zip(first, last, strict=True)
        if b - a + 1 >= LEAST_ROWS and ends[b] - starts[a] >= LEAST_MS
    )


def noise(samples: Any, sums: pa.Table, rated: Rated, *, wanted: bool) -> list[SamplingNoise]:
    """Return table I of the OFU paper for this fleet: what coarser sampling would have cost, as a mean over a few devices.

    Of series as fine as 5 s it is always told, at 5, 10, 20 and 30 s; of coarser ones when `wanted`, at 2, 4 and 8 times
    their own interval.
    """
    rows = np.array(sums["rows"].to_pylist(), dtype=float)
    interval = float(np.median(np.array(sums["span_ms"].to_pylist(), dtype=float) / rows)) / 1000
    if not wanted and interval > FINE:
        return []
    factors = [round(s / interval) for s in (5, 10, 20, 30) if s >= 2 * interval] if interval <= FINE else [2, 4, 8]
    clocks = {gpu: rated.chips[code].tensor_clock for gpu, code in zip(rated.words("gpu"), rated.chip, strict=True) if code >= 0}
    chosen = [gpu for _, gpu in sorted(zip(-rows, sums["gpu"].to_pylist(), strict=True)) if gpu in clocks][:8]
    found: dict[int, list[SamplingNoise]] = {}
    for (gpu, _), (_, values) in _series(samples, chosen, ["tensor_active", "sm_clock"]).items():
        ofu = sampled_ofu(values["tensor_active"], values["sm_clock"], clocks[gpu])
        for every in (f for f in factors if f >= 2 and len(ofu) >= 4 * f and not np.isnan(ofu).all()):
            found.setdefault(every, []).append(sampling_noise(ofu, interval, every))
    return [
        SamplingNoise(
            several[0].interval,
            several[0].phases,
            float(np.mean([n.mean_deviation for n in several])),
            float(np.max([n.bound for n in several])),
        )
        for _, several in sorted(found.items())
    ]


Series = dict[tuple[str, str | None], tuple[npt.NDArray[np.int64], dict[str, npt.NDArray[np.float64]]]]


def _series(samples: Any, gpus: list[str], fields: list[str]) -> Series:
    """Return the times and fields of some GPUs, by GPU and job."""
    return _by_device(samples.filter(samples.gpu.isin(gpus)), ["gpu", "job"], fields) if gpus else {}


def _by_device(samples: Any, keys: list[str], fields: list[str]) -> Series:
    """Return the times (ms) and fields of samples, by two columns of names, in order of time."""
    # instances of a GPU are read at the same time: without their names their order would be whatever threads make it
    named = list(dict.fromkeys([*keys, "time", "mig"]))
    table = samples.select(*named, *fields).order_by(named).to_pyarrow()
    if not len(table):
        return {}
    one, other = (pc.dictionary_encode(table[name].combine_chunks(), null_encoding="encode") for name in keys)
    whose = one.indices.to_numpy().astype(np.int64) * len(other.dictionary) + other.indices.to_numpy()
    edges = np.flatnonzero(np.concatenate([[True], whose[1:] != whose[:-1], [True]]))
    times = table["time"].cast(pa.timestamp("ms", "UTC")).cast(pa.int64()).to_numpy()
    columns = {name: np.asarray(table[name].to_numpy(zero_copy_only=False), dtype=float) for name in fields}
    return {
        (one[int(a)].as_py(), other[int(a)].as_py()): (times[a:b], {name: values[a:b] for name, values in columns.items()})
        for a, b in itertools.pairwise(edges)
    }
