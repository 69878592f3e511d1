"""What Ullage's own reader tells of the measured GPU, as plain rows; without pyarrow the same rows from the same readings."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gpu.check import NotMeasured
from gpu.counters import units
from gpu.machine import Machine, installed
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
