"""What Ullage's own reader tells of the measured GPU, as plain rows; without pyarrow the same rows from the same readings."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gpu.check import NotMeasured
from gpu.counters import units
from gpu.machine import Machine, installed
from ullage.errors import UllageError
from ullage.field import FIELDS
from ullage.metrics.ofu import exact_ofu
from ullage.problems import Problems
from ullage.sources.machine import DeviceReading, cleaned, moments
from ullage.sources.nvml import SHORTEST, opened_devices, watch
from ullage.sources.nvml_readings import UNITS, reading
from ullage.sources.source import Options

if TYPE_CHECKING:
    import pyarrow as pa

Row = dict[str, Any]
HOST = "node"


def watched(machine: Machine, seconds: float, interval: float) -> list[Row]:
    """Return the measured GPU's samples. Raises NotMeasured for a GPU without tensor activity (before Hopper, or cut by MIG)."""
    problems = Problems()
    if installed("pyarrow"):
        found = rows(batches(machine, seconds, interval, problems), machine.uuid)
    else:
        found = of_gpu(plain_rows(machine, seconds, interval, problems), machine.uuid)
    if not any("tensor_active" in row for row in found):
        raise NotMeasured(f"the GPU tells no tensor activity{''.join(f' ({line})' for line in problems.lines()[:1])}")
    return found


def batches(machine: Machine, seconds: float, interval: float, problems: Problems | None = None) -> pa.Table:
    """Return the samples (`tables.SAMPLES`) of all GPUs over some seconds, read by `ullage.sources.nvml`."""
    import pyarrow as pa

    options = Options(watch=seconds, interval=interval)
    told = watch(machine.nvml, options, problems or Problems(), HOST, machine.clock, machine.sleep)
    return pa.Table.from_batches(list(told))


def rows(table: pa.Table, uuid: str) -> list[Row]:
    """Return the samples of one whole GPU as dictionaries without nulls; `time` in seconds since 1970."""
    import pyarrow as pa

    milliseconds = table["time"].cast(pa.int64()).to_pylist()
    told = [{name: value for name, value in row.items() if value is not None} for row in table.to_pylist()]
    paired = zip(told, milliseconds, strict=True)
    return of_gpu([{**row, "time": time / 1000} for row, time in paired], uuid)


def of_gpu(found: list[Row], uuid: str) -> list[Row]:
    """Return the rows of one whole GPU."""
    return [row for row in found if row["gpu"] == uuid and "mig" not in row]


def plain_rows(machine: Machine, seconds: float, interval: float, problems: Problems) -> list[Row]:
    """Return what `rows` makes of `batches`, of all GPUs and MIG instances, without tables: NumPy is enough."""
    options, found = Options(watch=seconds, interval=interval), list[Row]()
    with opened_devices(machine.nvml, problems) as devices:
        for moment in moments(options, SHORTEST, machine.clock, machine.sleep):
            readings = [reading(machine.nvml, device, problems) for device in devices]
            found += _rows(moment, readings, problems)
    return found


def _rows(moment: int, readings: list[DeviceReading], problems: Problems) -> Iterator[Row]:
    """Yield the row of each reading, its numbers as the table of samples has them: whole, or of 24 bits."""
    columns, flags = cleaned(readings, UNITS, problems, HOST)
    for place, one in enumerate(readings):
        row: Row = {"time": moment / 1000, "host": HOST, "gpu": one.uuid, "index": one.index, "model": one.model}
        row |= {} if one.mig is None else {"mig": one.mig}
        told = {name: values[place] for name, values in columns.items() if not np.isnan(values[place])}
        row |= {name: int(value) if FIELDS[name].whole else float(np.float32(value)) for name, value in told.items()}
        yield row | {"flags": int(flags[place])}


@dataclass
class CountedCycles:
    """What the SMs counted over a window by PM sampling: `ofu` of each reading (tensor cycles over time and tensor clock), and the `clock`
    in Hz (cycles over time); `problem` says why nothing was counted."""

    ofu: list[float] = field(default_factory=list)
    clock: list[float] = field(default_factory=list)
    problem: str = ""


@contextmanager
def counted_cycles(machine: Machine, interval: float = 0.25) -> Iterator[CountedCycles]:
    """Count the cycles of the measured GPU's SMs while the body runs, whatever runs there; where that can't be, `problem` says why."""
    counts, over, ready = CountedCycles(), threading.Event(), threading.Event()
    thread = threading.Thread(target=_count_cycles, args=(machine, interval, counts, over, ready), daemon=True)
    thread.start()
    ready.wait(30)
    try:
        yield counts
    finally:
        over.set()
        thread.join(30)


def _count_cycles(machine: Machine, interval: float, counts: CountedCycles, over: threading.Event, ready: threading.Event) -> None:
    try:
        from ullage.live.sampling.pm import opened

        problems = Problems()
        with opened(Options(), problems, HOST) as gpus:
            gpus.read(machine.clock())  # what was counted before the window
            ready.set()
            while not over.wait(interval):
                for row in rows(gpus.read(machine.clock()), machine.uuid):
                    counts.clock.append(row["sm_clock"])
                    counts.ofu.append(row["tensor_active"] * row["sm_clock"] / machine.chip.tensor_clock)
    except (UllageError, ImportError, KeyError, OSError) as error:
        counts.problem = error.problem if isinstance(error, UllageError) else f"{type(error).__name__}: {error}"
    finally:
        ready.set()


def parquet(table: pa.Table) -> bytes:
    """Return a table as the bytes of a Parquet file."""
    from ullage.checked_parquet import write_table

    buffer = io.BytesIO()
    write_table(table, buffer, compression="zstd")
    return buffer.getvalue()


def column(found: list[Row], name: str) -> npt.NDArray[np.float64]:
    """Return one field of the rows, NaN where it was not told."""
    return np.array([row.get(name, np.nan) for row in found], np.float64)


def mean(found: list[Row], name: str) -> float | None:
    """Return the mean of what was told of a field, or None when nothing was.

    >>> mean([{"power": 1.0}, {}, {"power": 3.0}], "power"), mean([{}], "power")
    (2.0, None)
    """
    values = column(found, name)
    return None if np.isnan(values).all() else float(np.nanmean(values))


def exact(machine: Machine, found: list[dict[str, Any]]) -> float | None:
    """Return OFU over a window from its first and last cycle counters; None without them."""
    first, last = found[0], found[-1]
    if not {"sm_cycles", "tensor_cycles"} <= first.keys() & last.keys():
        return None
    seconds = last["time"] - first["time"]
    elapsed, clock = last["sm_cycles"] - first["sm_cycles"], mean(found[1:], "sm_clock")
    counted = units(elapsed / seconds, clock or 0.0, machine.sms)
    if counted is None:
        return None
    return float(exact_ofu(last["tensor_cycles"] - first["tensor_cycles"], seconds, machine.chip.tensor_clock, counted))
