"""What the GPUs' own counters say of the devices that a program used, while it used them.

A sample speaks for the time before it, and those at the program's edges reach beyond it. All that the counters saw in them is taken to be
the program's: beyond its edges its GPUs do nothing of its, so that what it did is neither thinned out there nor lost.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ullage.errors import UllageError, harmless
from ullage.metrics.metric import ratio
from ullage.reports.fleet.rated import Rated, rate
from ullage.reports.fleet.trusted import judge
from ullage.reports.trace.trace import TraceReport
from ullage.sums.lanes.spans import Spans
from ullage.sums.windows import settle
from ullage.tables import SAMPLES
from ullage.views.numbers import percent

TELEMETRY, TOLD = "telemetry-*.parquet", "telemetry-*.json"
COLUMNS = (
    "time", "gpu", "mig", "model", "flags", "tensor_active", "sm_active", "gr_active", "gpu_util", "sm_clock", "tensor_cycles",
    "sm_cycles",
)  # fmt: skip
FEWEST = 2  # samples, and intervals, below which a mean says nothing
KNOWN = 0.5  # of a device's time in the program that must have been sampled
NEARLY_ALL = 0.9
ROWS = 1_000_000  # samples that are added up at a time
Device = tuple[str, str | None]  # the UUID, and the MIG instance
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class RunMeans:
    """Means over a run's devices and its elapsed time: OFU, tensor activity (TPA), SM activity (None: not known).

    `method` is "exact" (cycle counters) or "sampled" (a clock sample beside each activity), `by` what read the counters.
    """

    ofu: float
    tensor: float
    sm: float | None
    method: str
    by: str


@dataclass(frozen=True)
class _Told:
    """What the samplers of a run's hosts said.

    By what they read, every how many seconds (0: not known), what they left out, the devices of MIG instances by their UUIDs.
    """

    by: tuple[str, ...] = ()
    interval: float = 0.0
    notes: tuple[str, ...] = ()
    instances: Mapping[str, Device] = field(default_factory=dict)


@dataclass(frozen=True)
class _Seen:
    """A device of the run: how many samples speak for its time in the program, and that time.

    `window` is how long the program had the device, `covered` how much of that the samples cover, `spans` the time they stand for; ms.
    """

    key: str
    samples: int
    window: float
    covered: float
    spans: int


def counted(trace: TraceReport, folder: Path, notes: list[str]) -> RunMeans | None:
    """Return what the counters say of a run whose telemetry lies in `folder`; None, and a note that says why, where they say too little."""
    if trace.run is None or trace.whole.device is None:
        return None
    told = _told(folder)
    files = sorted(folder.glob(TELEMETRY))
    notes += told.notes
    if not files or (told.notes and not told.by):  # the notes say why
        return None
    if trace.region is not None:
        notes.append("OFU is not told of a region: the counters are read too seldom to tell what happens inside it")
        return None
    try:
        seen, sums = _devices(trace, files, told)
        _enough(list(seen.values()), told)
        return _means(trace.whole.elapsed / 1e6, seen, _believed(sums), told, notes)
    except UllageError as error:
        notes.append(f"OFU is not known: {error.problem}")
        return None


def _told(folder: Path) -> _Told:
    """Return what all samplers said; what can't be read says nothing."""
    by, interval, notes, instances = list[str](), 0.0, list[str](), dict[str, Device]()
    for path in sorted(folder.glob(TOLD)):
        try:
            said = json.loads(path.read_text())
            by += [str(said["by"])] if said["by"] else []
            interval = max(interval, float(said["interval"]))
            notes += [harmless(str(note), 1000) for note in said["notes"]]
            instances |= {plain(str(own)): (str(gpu), str(mig)) for own, (gpu, mig) in said["instances"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
    return _Told(tuple(dict.fromkeys(by)), interval, tuple(dict.fromkeys(notes)), instances)


def plain(uuid: str) -> str:
    """Return a UUID by which two spellings of it are the same.

    >>> plain("GPU-9AF1-02") == plain("9af1-02"), plain("MIG-07")
    (True, 'mig-07')
    """
    return uuid.casefold().removeprefix("gpu-")


def _devices(trace: TraceReport, files: Sequence[Path], told: _Told) -> tuple[dict[Device, _Seen], list[pa.Table]]:
    """Return what was sampled of each device of the run, and the sums of its samples, in tables with a row a device.

    Devices are read one by one: the samples of a week's run are many. Raises UllageError where the recording doesn't name the devices.
    """
    assert trace.run is not None
    places, windows = _places(files), trace.run.whole()
    seen, sums, waiting = dict[Device, _Seen](), list[pa.Table](), list[pa.Table]()
    for part in trace.whole.device_parts:
        key = part.device.key
        if not key.startswith(("GPU-", "MIG-")):
            raise UllageError("the recording does not say which GPUs were used")
        gpu, mig = told.instances.get(plain(key), (key, None))
        word, own = places.get(plain(gpu), (gpu, []))
        seen[word, mig], samples = _seen(key, _settled(own, word, mig), trace.run.seen(part.device, windows))
        waiting.append(samples)
        if sum(map(len, waiting)) > ROWS:
            sums, waiting = [*sums, _summed(waiting)], []
    return seen, [*sums, _summed(waiting)] if any(map(len, waiting)) else sums


def _summed(samples: list[pa.Table]) -> pa.Table:
    import ibis

    from ullage.sums.devices import device_sums

    return device_sums(ibis.memtable(pa.concat_tables(samples).unify_dictionaries())).to_pyarrow()


def _places(files: Sequence[Path]) -> dict[str, tuple[str, list[Path]]]:
    """Return how the samples spell each GPU's UUID and in which files they are, by `plain`."""
    found: dict[str, tuple[str, list[Path]]] = {}
    for file in files:
        for word in _read([file], ["gpu"])["gpu"].cast(pa.string()).unique().drop_null().to_pylist():
            found.setdefault(plain(word), (word, []))[1].append(file)
    return found


def _settled(files: Sequence[Path], gpu: str, mig: str | None) -> pa.Table:
    """Return a device's settled samples."""
    import pyarrow.compute as pc

    table = _read(files, COLUMNS, pc.field("gpu") == gpu)
    table = table.filter(pc.is_null(table["mig"]) if mig is None else pc.equal(table["mig"].cast(pa.string()), mig))
    empty = {name: pa.nulls(len(table), SAMPLES.field(name).type) for name in SAMPLES.names if name not in COLUMNS}
    return settle(pa.table([table[name] if name in COLUMNS else empty[name] for name in SAMPLES.names], schema=SAMPLES))


def _read(files: Sequence[Path], columns: Sequence[str], chosen: Any = None) -> pa.Table:
    import pyarrow.dataset as ds

    try:
        checked = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
        form = ds.ParquetFileFormat(default_fragment_scan_options=checked)
        return ds.dataset([str(file) for file in files], schema=SAMPLES, format=form).to_table(columns=list(columns), filter=chosen)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise UllageError(f"the samples of the counters can't be read ({harmless(str(error), 200)})") from error


def _seen(key: str, settled: pa.Table, window: Spans) -> tuple[_Seen, pa.Table]:
    """Return the samples that speak for any of a window (ns), and how much of it."""
    span = settled["span_ms"].to_numpy().astype(np.int64)
    end = settled["time"].cast(pa.int64()).to_numpy() * 10**6
    telling = settled["tensor_active"].is_valid().to_numpy() | settled["tensor_cycles"].is_valid().to_numpy()
    covered = _within(end - span * 10**6, end, window) * telling
    chosen = covered > 0
    found = _Seen(key, int(chosen.sum()), window.total / 1e6, float(covered.sum()) / 1e6, int(span[chosen].sum()))
    return found, settled.filter(pa.array(chosen))


def _within(start: Ints, end: Ints, window: Spans) -> Ints:
    """How much of each span from `start` to `end` lies in the pieces of a window."""
    inside = np.zeros(len(start), np.int64)
    for first, last in zip(window.start.tolist(), window.end.tolist(), strict=True):
        inside += np.maximum(0, np.minimum(end, last) - np.maximum(start, first))
    return inside


def _enough(seen: Sequence[_Seen], told: _Told) -> None:
    """Raise UllageError where the samples of a device are too few to say anything."""
    for one in seen:
        interval = told.interval * 1000 or one.spans / max(one.samples, 1)
        if one.samples and one.window < FEWEST * interval:
            raise UllageError(f"the run of {one.window / 1000:.2g} s is too short for counters that are read every {interval / 1000:.2g} s")
    missing = [one.key for one in seen if one.samples < FEWEST or one.covered < KNOWN * one.window]
    if missing:
        listed = ", ".join(harmless(key, 60) for key in missing[:3]) + (", …" if len(missing) > 3 else "")
        raise UllageError(f"of {len(missing):,} of the {len(seen):,} GPUs that the program used too few samples came ({listed})")


def _believed(sums: Sequence[pa.Table]) -> Rated:
    """Return the sums beside what each device can do. Raises UllageError where they can't be believed."""
    rated = rate(pa.concat_tables(sums, promote_options="permissive"))
    for (gpu, _), verdict in judge(rated, {}).items():
        if not verdict.trusted:
            raise UllageError(f"the counters of {harmless(gpu, 60)} can't be believed: {verdict.evidence}")
    return rated


def _means(elapsed: float, seen: Mapping[Device, _Seen], rated: Rated, told: _Told, notes: list[str]) -> RunMeans:
    """Return the means over devices and `elapsed` (ms): what each device did, spread over the time of the run."""
    ofu, tensor = ratio(rated.ofu_part, rated.ofu_time), ratio(rated.tensor_part, rated.ofu_time)
    if np.isnan(ofu).any() or np.isnan(tensor).any():
        unknown = [name for name in rated.unknown_models if name]
        raise UllageError(f"no GPU is called '{harmless(unknown[0], 60)}'" if unknown else "the counters tell no clock")
    ordered = [seen[gpu or "", mig] for gpu, mig in zip(rated.words("gpu"), rated.words("mig"), strict=True)]
    share = np.array([one.spans / one.covered * one.window / elapsed for one in ordered])
    covered = sum(one.covered for one in ordered) / sum(one.window for one in ordered)
    if covered < NEARLY_ALL:
        notes.append(f"the counters were read for {percent(covered)} of the program's time; the rest is taken to be like it")
    sm = ratio(rated.column("sm_active_sum"), rated.column("sm_active_ms"))
    return RunMeans(
        ofu=float((ofu * share).mean()),
        tensor=float((tensor * share).mean()),
        sm=None if np.isnan(sm).any() else float((sm * share).mean()),
        method="exact" if rated.exact.all() else "sampled",
        by=" and ".join(told.by),
    )
