"""What the sampled GPU metrics of a capture say on average ("SMs Active", "Tensor Active"): no intervals, so beside the trees.

`nsys profile --gpu-metrics-devices` samples counters of whole GPUs. No public export with such samples was found: the columns are those
that NVIDIA's documentation and public readers use, with whole per cent as values, and were tried on written examples alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ullage.traces.nsys.file import Database, opened


@dataclass(frozen=True)
class Counter:
    """One metric of one device over the whole capture: the mean of its samples, in [0, 1] where it is a `ratio`, else as it stands."""

    name: str
    device: int
    mean: float
    samples: int
    ratio: bool


def counters(path: Path) -> list[Counter]:
    """Return a capture's sampled metrics, by device and name; nothing when none were sampled.

    A sample before the session's begin counts for nothing. Raises UllageError for a file that is no database.
    """
    database = opened(path)
    try:
        return sorted(_counters(database), key=lambda c: (c.device, c.name))
    finally:
        database.close()


def _counters(database: Database) -> list[Counter]:
    table = database.table("GPU_METRICS")
    if table is None or not {"metricId", "value", "typeId", "timestamp"} <= set(table.columns):
        return []
    rows = database.rows("TARGET_INFO_GPU_METRICS", "typeId", "metricId", "metricName")
    names = {(kind, number): str(name) for kind, number, name in rows if name is not None}
    sql = f'SELECT typeId, metricId, avg(value), count(value) FROM "{table.name}" WHERE timestamp >= 0 GROUP BY typeId, metricId'  # noqa: S608
    found = []
    for kind, number, mean, samples in database.query(table.name, sql):
        name = names.get((kind, number), f"metric {number}")
        if isinstance(kind, int) and isinstance(mean, float) and samples:
            ratio = "%" in name
            # the lowest byte of the type is the device's number (nsys2prv)
            found.append(Counter(name, kind & 0xFF, mean / 100 if ratio else mean, samples, ratio))
    return found
