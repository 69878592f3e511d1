"""GPUs of this machine that are open for reading, whatever library reads them: NVML, nvidia-smi, amdsmi."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ullage.errors import UnreadableError
from ullage.problems import Problems
from ullage.sources.naming.fields import Alias, Flags, Floats, clean
from ullage.sources.naming.labels import device_name
from ullage.sources.source import LONGER, Options

if TYPE_CHECKING:
    import pyarrow as pa

Device = tuple[str, str | None]  # the UUID, and the MIG instance


@dataclass(frozen=True)
class Limits:
    """What a board can reach: power it may draw (W), highest SM clock (Hz), memory (B). None: it does not tell."""

    power: float | None = None
    sm_clock: float | None = None
    memory: float | None = None


@dataclass(frozen=True)
class DeviceProcess:
    """A process on a device: its number, its `kind` (C computes, G draws), its memory there (B), the share of time it had SMs busy."""

    pid: int
    kind: str = "C"
    memory: float | None = None
    sm_share: float | None = None


@dataclass(frozen=True)
class GpuLibrary:
    """The GPUs that one library reads.

    `read` gives the rows of now, stamped with a time in ms since 1970; activities are averages since the reading before.
    `limits` is by UUID, `processes` gives the process ids that compute on each device, and readings closer together
    than `shortest` seconds are not valid. `instances` has the device of each MIG instance by the instance's own UUID.
    `device_processes` tells more of these processes, and `health` of each board (fields of `field.HEALTH`): both are asked by who looks at
    them alone.
    """

    read: Callable[[int], pa.RecordBatch]
    limits: Mapping[str, Limits] = field(default_factory=dict)
    processes: Callable[[], dict[Device, list[int]]] = dict
    device_processes: Callable[[], dict[Device, list[DeviceProcess]]] = dict
    health: Callable[[], dict[Device, dict[str, float]]] = dict
    shortest: float = 0.1
    instances: Mapping[str, Device] = field(default_factory=dict)

    def watched(
        self, options: Options, clock: Callable[[], int] | None = None, sleep: Callable[[float], None] = time.sleep
    ) -> Iterator[pa.RecordBatch]:
        """Yield a batch every `options.interval` seconds for `options.watch` seconds; with `watch` 0 there is one, over a second.

        `clock` gives ms since 1970. A sample is of the moment at which the interval ends. Raises UnreadableError at the deadline.
        """
        turns = _turns(options, self.shortest)[1]
        for turn, moment in enumerate(moments(options, self.shortest, clock, sleep), 1):
            batch = self.read(moment)
            yield batch
            options.progress(f"{turn:,} of {turns:,} readings of {batch.num_rows:,} devices")


def moments(
    options: Options, shortest: float, clock: Callable[[], int] | None = None, sleep: Callable[[float], None] = time.sleep
) -> Iterator[int]:
    """Yield the time of each reading that `options` ask for (ms since 1970), when it has come; none is nearer than `shortest` seconds.

    Raises UnreadableError at the deadline.
    """
    now = clock or options.now or (lambda: round(time.time() * 1000))
    interval, turns = _turns(options, shortest)
    begin = last = now()
    for turn in range(1, turns + 1):
        # after a stall the next reading is late, never too close to the one before; a clock that is set back keeps nobody waiting
        pause = max(0.0, min(interval, (max(begin + 1000 * turn * interval, last + 1000 * shortest) - now()) / 1000))
        sleep(min(pause, options.deadline.left))
        if not options.deadline.left:
            raise UnreadableError(f"the deadline passed after {turn - 1:,} of {turns:,} readings", LONGER, last)
        last = now()
        yield last


def _turns(options: Options, shortest: float) -> tuple[float, int]:
    """Return the seconds between two readings, and how many readings there are."""
    interval = max(shortest, options.interval if options.watch > 0 else min(options.interval, 1.0))
    return interval, max(1, int(options.watch / interval + 1e-9))


@dataclass(frozen=True)
class DeviceReading:
    """What one GPU or MIG instance told, in the units of whoever read it; what it could not tell is absent."""

    uuid: str
    index: int
    model: str
    values: Mapping[str, float]
    mig: str | None = None


def cleaned(readings: list[DeviceReading], units: Mapping[str, str], problems: Problems, host: str) -> tuple[dict[str, Floats], Flags]:
    """Return what some readings told, by field, in SI units, NaN where it was not told, and the flags of each reading.

    `units` is the unit of each field that may be there (a key of `units.TO_SI`); a field that none told is left out.
    """
    columns: dict[str, Floats] = {}
    flags = np.zeros(len(readings), np.uint16)
    for name, unit in units.items():
        values = np.array([reading.values.get(name, np.nan) for reading in readings], float)
        if not np.isnan(values).all():
            columns[name], marks = clean(Alias(name, name, unit), values, problems, host)
            flags |= marks
    return columns, flags


def _name(reading: DeviceReading, host: str, cluster: str | None) -> str:
    """Return a GPU's UUID; where its driver does not tell it, the name by which every source calls such a device."""
    return reading.uuid if reading.uuid not in ("", "N/A", "[N/A]") else device_name(cluster, host, reading.index)


def rows(
    moment: int, host: str, readings: list[DeviceReading], units: Mapping[str, str], options: Options, problems: Problems
) -> pa.RecordBatch:
    """Return the samples of one moment; `units` as for `cleaned`."""
    import pyarrow as pa

    from ullage.tables import samples

    told, flags = cleaned(readings, units, problems, host)
    columns: dict[str, Any] = {
        "time": np.full(len(readings), moment, np.int64),
        "cluster": pa.array([options.cluster] * len(readings), pa.string()),
        "host": pa.array([host] * len(readings), pa.string()),
        "gpu": pa.array([_name(reading, host, options.cluster) for reading in readings], pa.string()),
        "index": pa.array([reading.index for reading in readings], pa.int16()),
        "mig": pa.array([reading.mig for reading in readings], pa.string()),
        "model": pa.array([reading.model for reading in readings], pa.string()),
    }
    return samples({**columns, **told, "flags": flags})
