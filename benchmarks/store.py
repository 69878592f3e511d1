"""What the store costs: bytes a sample-field, sample-fields stored a second, the latency of one scrape, peak memory.

    python benchmarks/store.py [--gpus 256] [--hours 24] [--counters]

A field of a sample counts once, when it has a value; the growth of counters that is stored beside them counts nothing.
Every byte of the folder counts: samples, tails, manifest.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

import pyarrow as pa

from ullage.simulate.fleet import Specification, fleet
from ullage.store.store import Store
from ullage.sums.windows import settle
from ullage.tables import COUNTERS, FIELDS, SETTLED

SIX = ("gr_active", "sm_active", "tensor_active", "gpu_util", "sm_clock", "power")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=256)
    parser.add_argument("--hours", type=float, default=24)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name, fields, counters in (
            ("six gauges", SIX, False),
            ("six gauges, energy", (*SIX, "energy"), False),
            ("six gauges, energy, cycle counters", (*SIX, "energy"), True),
        ):
            specification = Specification(gpus=asked.gpus, hours=asked.hours, fields=fields, counters=counters, faults=())
            batches = list(fleet(specification).batches())
            measure(name, batches, Path(folder) / name)
        latency(batches, Path(folder) / "live")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:,.2f} GB (the simulated batches among it)")


def measure(name: str, batches: list[pa.RecordBatch], folder: Path) -> None:
    table = pa.Table.from_batches(batches)
    values = sum(table.num_rows - table[field].null_count for field in FIELDS)
    print(f"{name}: {table.num_rows:,} samples, {values:,} sample-fields")
    started = time.perf_counter()
    settle(table)
    print(f"  settling alone {table.num_rows / (time.perf_counter() - started) / 1e6:,.1f} M rows/s")
    store = Store.open(folder, create=True)
    started = time.perf_counter()
    store.append(batches)
    stored = time.perf_counter() - started
    print(f"  stored in {stored:,.1f} s: {values / stored / 1e6:,.1f} M sample-fields/s")
    growth = sum(1 for field in FIELDS if field in COUNTERS and table[field].null_count < table.num_rows) * table.num_rows
    print(f"  {size(folder) / values:,.2f} bytes a sample-field, {size(folder) / table.num_rows:,.1f} bytes a sample;", end="")
    print(f" {size(folder) / (values + growth):,.2f} with the growth of counters as fields")
    started = time.perf_counter()
    known = store.append(batches).rows_known
    print(f"  the same again: {known:,} rows known in {time.perf_counter() - started:,.1f} s")
    started = time.perf_counter()
    kept = store.compact(grace_ms=0)
    print(f"  compacted from {kept.parts_before} to {kept.parts_after} parts in {time.perf_counter() - started:,.1f} s:", end="")
    print(f" {size(folder) / values:,.2f} bytes a sample-field")
    columns(store, table)


def columns(store: Store, table: pa.Table) -> None:
    """The bytes of each column, per value."""
    import pyarrow.parquet as pq

    sizes = dict.fromkeys(SETTLED.names, 0)
    for part in store.manifest().parts:
        metadata = pq.ParquetFile(store.path / part.file).metadata
        for group in range(metadata.num_row_groups):
            for position, name in enumerate(metadata.schema.names):
                sizes[name] += metadata.row_group(group).column(position).total_compressed_size
    large = {name: size / table.num_rows for name, size in sizes.items() if size > 0.01 * table.num_rows}
    print("  bytes a sample by column: " + ", ".join(f"{name} {share:.2f}" for name, share in large.items()))


def latency(batches: list[pa.RecordBatch], folder: Path) -> None:
    """One scrape of the whole fleet at a time, as a live collector appends."""
    table = pa.Table.from_batches(batches).sort_by("time")
    gpus = len(table["gpu"].unique())
    store = Store.open(folder, create=True)
    times = []
    for number in range(20):
        started = time.perf_counter()
        store.append(table.slice(number * gpus, gpus))
        times.append(time.perf_counter() - started)
    times.sort()
    print(f"one scrape of {gpus:,} GPUs appended in {times[10] * 1000:,.0f} ms (median of 20, the slowest {times[-1] * 1000:,.0f} ms)")


def size(folder: Path) -> int:
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())


if __name__ == "__main__":
    main()
