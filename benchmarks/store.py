"""What the store costs: bytes a sample-field, sample-fields stored a second, the latency of one scrape, peak memory.

    python benchmarks/store.py [--gpus 256] [--hours 24] [--quick] [--json FILE]

A field of a sample counts once, when it has a value; the growth of counters that is stored beside them counts nothing.
Every byte of the folder counts: samples, tails, manifest. The peer is what a user would write instead: pandas sorts by
device and time, drops copies, and writes Parquet under zstd; it derives no spans, and is not safe against a kill.
"""

from __future__ import annotations

import resource
import tempfile
import time
from pathlib import Path

import pyarrow as pa

from measure import Figure, Figures, parser
from ullage.simulate.fleet import Specification, fleet
from ullage.store.manifest import StoreFolder
from ullage.store.store import Store
from ullage.sums.windows import settle
from ullage.tables import COUNTERS, FIELDS, SETTLED

SIX = ("gr_active", "sm_active", "tensor_active", "gpu_util", "sm_clock", "power")


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--gpus", type=int, default=256)
    options.add_argument("--hours", type=float, default=24)
    asked = options.parse_args()
    gpus, hours = (8, 1) if asked.quick else (asked.gpus, asked.hours)
    figures = Figures(asked.json)
    with tempfile.TemporaryDirectory() as folder:
        for name, fields, counters in (
            ("six gauges", SIX, False),
            ("six gauges, energy", (*SIX, "energy"), False),
            ("six gauges, energy, cycle counters", (*SIX, "energy"), True),
        ):
            specification = Specification(gpus=gpus, hours=hours, fields=fields, counters=counters, faults=())
            batches = list(fleet(specification).batches())
            figures.add(*measure(name, batches, Path(folder) / name, promised=not asked.quick))
        figures.add(latency(batches, Path(folder) / "live"))
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:,.2f} GB (the simulated batches and pandas among it)")


def measure(name: str, batches: list[pa.RecordBatch], folder: Path, *, promised: bool) -> tuple[Figure, ...]:
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
    growth = sum(1 for field in FIELDS if field in COUNTERS and table[field].null_count < table.num_rows) * table.num_rows
    print(f"  {size(folder) / table.num_rows:,.1f} bytes a sample; {size(folder) / (values + growth):,.2f} bytes with the growth as fields")
    columns(store, table)
    started = time.perf_counter()
    known = store.append(batches).rows_known
    print(f"  the same again: {known:,} rows known in {time.perf_counter() - started:,.1f} s")
    started = time.perf_counter()
    StoreFolder(folder).verify(store.manifest().parts)
    held, parts = time.perf_counter() - started, sum(part.bytes for part in store.manifest().parts)
    print(f"  held against its hashes, as before it is asked: {held * 1000:,.0f} ms, {parts / held / 1e6:,.0f} MB/s")
    started = time.perf_counter()
    kept = store.compact(grace_ms=0)
    print(f"  compacted from {kept.parts_before} to {kept.parts_after} parts in {time.perf_counter() - started:,.1f} s")
    theirs, written = with_pandas(table, folder.with_suffix(".parquet"))
    return (
        Figure(f"{name}, stored", values / stored, "sample-fields/s", {"pandas": values / theirs}, 1e6 if promised else None),
        Figure(f"{name}, size", size(folder) / values, "bytes a sample-field", {"pandas": written / values}, 4 if promised else None),
    )


def with_pandas(table: pa.Table, file: Path) -> tuple[float, int]:
    """Return the seconds that pandas takes to sort, drop copies and write, and the bytes it wrote."""
    held = [name for name in table.column_names if table[name].null_count < table.num_rows]
    started = time.perf_counter()
    samples = table.select(held).to_pandas().sort_values(["gpu", "time"]).drop_duplicates(["gpu", "time"])
    samples.to_parquet(file, compression="zstd")
    return time.perf_counter() - started, file.stat().st_size


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


def latency(batches: list[pa.RecordBatch], folder: Path) -> Figure:
    """One scrape of the whole fleet at a time, as a live collector appends."""
    table = pa.Table.from_batches(batches).sort_by("time")
    gpus = len(table["gpu"].unique())
    store = Store.open(folder, create=True)
    times = []
    for number in range(20):
        started = time.perf_counter()
        store.append(table.slice(number * gpus, gpus))
        times.append(time.perf_counter() - started)
    return Figure(f"one scrape of {gpus:,} GPUs appended", sorted(times)[10] * 1000, "ms")


def size(folder: Path) -> int:
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())


if __name__ == "__main__":
    main()
