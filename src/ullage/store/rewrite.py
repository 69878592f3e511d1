"""Parts made anew: what is stored and what comes in between, in fewer or fuller files. Late data and compaction share it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ullage.store.devices import devices_of, neighbours
from ullage.store.manifest import Manifest, StoreFolder, StorePart
from ullage.store.parts import among, read_part, read_ranges, write_days
from ullage.sums.ordering import chosen, column_of, in_order
from ullage.sums.ratio_units import without_dead_clocks
from ullage.sums.windows import derive, merge
from ullage.tables import SAMPLES

PART_ROWS = 4_000_000  # rows of a part after compaction, and rows in memory while parts are made anew


def rewrite(
    folder: StoreFolder,
    manifest: Manifest,
    replaced: Sequence[StorePart],
    chunk: pa.Table | None,
    *,
    gap_ms: int | None = None,
    part_rows: int = PART_ROWS,
) -> tuple[StorePart, ...]:
    """Write parts that hold the rows of `replaced` and of the merged `chunk`; return them. Nothing is committed here.

    Devices that have rows in `chunk` are settled again; all others keep their rows as they are. The work goes by
    groups of devices with about `part_rows` rows, which bounds the memory, and each group is a part a day.
    """
    parts: list[StorePart] = []
    elsewhere = [p for p in manifest.parts if p not in replaced]
    for gpus in _groups(folder, replaced, chunk, part_rows):
        rows = in_order([read_part(folder, part, gpus=gpus) for part in replaced])
        new = chunk if chunk is None or gpus is None else chosen(chunk, among(column_of(chunk, "gpu"), gpus))
        if new is not None and new.num_rows:
            around = _around(folder, elsewhere, replaced, new)
            rows = _joined(rows, new, around, gap_ms)
        parts.extend(write_days(folder, rows))
    return tuple(parts)


def _groups(folder: StoreFolder, replaced: Sequence[StorePart], chunk: pa.Table | None, part_rows: int) -> list[pa.Array | None]:
    """Groups of GPUs in alphabetical order, about equal in rows; None stands for all of them."""
    total = sum(p.rows for p in replaced) + (chunk.num_rows if chunk is not None else 0)
    groups = -(-total // part_rows)
    if groups <= 1:
        return [None]
    counts = [pa.table({"gpu": t["gpu"].cast(pa.string()), "rows": t["rows"]}) for t in (read_ranges(folder, part) for part in replaced)]
    if chunk is not None:
        counts.append(pa.table({"gpu": chunk["gpu"].cast(pa.string()), "rows": np.ones(chunk.num_rows, np.int64)}))
    rows = pa.concat_tables(counts).group_by("gpu").aggregate([("rows", "sum")]).sort_by("gpu")
    ends = np.cumsum(rows["rows_sum"].to_numpy())
    group = np.minimum((ends - 1) * groups // total, groups - 1)
    return [rows["gpu"].filter(pa.array(group == g)).combine_chunks() for g in np.unique(group)]


def _around(folder: StoreFolder, elsewhere: Sequence[StorePart], replaced: Sequence[StorePart], new: pa.Table) -> pa.Table | None:
    """The rows at rest elsewhere that the new rows' devices may look back at."""
    devices = devices_of(new)
    first = min(int(devices.first.min()), *(p.first for p in replaced))
    last = max(int(devices.last.max()), *(p.last for p in replaced))
    return neighbours(folder, elsewhere, devices, first, last)


def _joined(stored: pa.Table, new: pa.Table, around: pa.Table | None, gap_ms: int | None) -> pa.Table:
    """Stored and new rows as one settled table: rows of devices with new ones are settled again, the others kept."""
    touched = devices_of(new).find(stored) >= 0
    ours = chosen(stored, touched).select(SAMPLES.names)
    settled = derive(without_dead_clocks(merge(pa.concat_tables([ours, new]))), gap_ms=gap_ms, before=around)
    return in_order([settled, chosen(stored, ~touched)])
