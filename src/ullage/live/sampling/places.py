"""The last minutes of a place that the sources read (an exporter, a Prometheus, files), for whoever watches it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from ullage.errors import UllageError
from ullage.problems import Problems
from ullage.sources.source import Options, read_samples
from ullage.sums.ratio_units import settle_ratio_units
from ullage.sums.windows import merge
from ullage.tables import SAMPLES

RECENT_MS = 300_000


def lives(place: str) -> bool:
    """Return whether a place can tell more when it is asked again: a URL or this machine, not a file."""
    return "://" in place or (place in ("local", "nvidia-smi", "amdsmi") and not Path(place).exists())


def polled(
    place: str,
    every: float,
    problems: Problems,
    stop: threading.Event,
    options: Options | None = None,
    now: Callable[[], float] = time.time,
    read: Callable[[str, Options, Problems], Iterator[pa.RecordBatch]] = read_samples,
) -> Iterator[list[pa.Table]]:
    """Yield what a place tells at an interval, until `stop` is set: one row a device and time; a file is read once.

    The first reading must succeed; a later one that fails is counted, and yields nothing.
    """
    options, begun = options or Options(), False
    while not stop.is_set():
        asked = replace(options, since=round(now() * 1000) - RECENT_MS) if "://" in place else options
        try:
            table = recent(read(place, asked, problems))
        except UllageError as error:
            if not begun:
                raise
            problems.drop("readings that failed", where=error.problem)
            table = SAMPLES.empty_table()
        begun = True
        yield [table] if len(table) else []
        if not lives(place) or stop.wait(every):
            return


def recent(batches: Iterable[pa.RecordBatch], span_ms: int = RECENT_MS) -> pa.Table:
    """Return the rows of the last `span_ms` before the newest, one a device and time, in bounded memory."""
    held: list[tuple[int, pa.RecordBatch]] = []
    newest = 0
    for batch in batches:
        if batch.num_rows:
            last = int(_times(batch).max())
            newest = max(newest, last)
            held = [(end, kept) for end, kept in (*held, (last, batch)) if end > newest - span_ms]
    if not held:
        return SAMPLES.empty_table()
    table = pa.Table.from_batches([batch for _, batch in held]).unify_dictionaries()
    return settle_ratio_units(merge(table.filter(pa.array(_times(table) > newest - span_ms))), {}).rows


def _times(rows: pa.RecordBatch | pa.Table) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.asarray(rows["time"].cast(pa.int64()))


def interval(table: pa.Table, otherwise: float) -> float:
    """Return the seconds that usually lie between two readings of one device, `otherwise` where none has two."""
    devices: dict[tuple[str, str | None], list[int]] = {}
    for gpu, mig, when in zip(table["gpu"].to_pylist(), table["mig"].to_pylist(), _times(table).tolist(), strict=True):
        devices.setdefault((gpu, mig), []).append(when)
    gaps = [gap for times in devices.values() for gap in np.diff(sorted(times)).tolist() if gap > 0]
    return float(np.median(gaps)) / 1000 if gaps else otherwise
