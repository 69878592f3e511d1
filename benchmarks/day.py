"""A simulated day of a fleet at rest: made once, kept in benchmarks/data, and found again."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from measure import DATA
from ullage.simulate.fleet import Simulation, Specification, fleet
from ullage.store.store import Store

FIELDS = ("tensor_active", "sm_active", "gr_active", "dram_active", "sm_clock", "power")
FAULTS = ("held_idle", "free", "straggler", "throttled", "silent", "stale")  # what every fleet has; each a few GPUs


def simulation(gpus: int, hours: float) -> Simulation:
    """Return the simulated fleet: a sample every 30 s, six fields."""
    return fleet(Specification(gpus=gpus, hours=hours, fields=FIELDS, faults=FAULTS))


def at_rest(gpus: int, hours: float) -> Path:
    """Return the store that holds that fleet, made when it is not there yet."""
    place = DATA / f"day-{gpus}-gpus-{hours:g}-hours"
    if not place.exists():
        DATA.mkdir(exist_ok=True)
        begun = place.with_name(f"{place.name}.part")
        shutil.rmtree(begun, ignore_errors=True)
        _make(simulation(gpus, hours), Store.open(begun, create=True))
        begun.rename(place)
    return place


def _make(drawn: Simulation, store: Store) -> None:
    simulating = 0.0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal simulating
        waiting = drawn.batches()
        while True:
            begin = time.perf_counter()
            batch = next(waiting, None)
            simulating += time.perf_counter() - begin
            if batch is None:
                return
            yield batch

    begin = time.perf_counter()
    store.add_jobs(drawn.jobs())
    rows = store.append(batches()).rows_new
    stored = time.perf_counter() - begin - simulating
    print(
        f"made {store.path.stem}: {rows:,} samples simulated in {simulating:,.0f} s and stored in {stored:,.0f} s, "
        f"{rows * len(FIELDS) / stored / 1e6:,.1f} million sample-fields/s",
        file=sys.stderr,
    )


def files(store: Path) -> list[str]:
    """Return the wide Parquet files of a store."""
    return sorted(str(path) for path in store.glob("samples/*/*.parquet"))
