"""Roofs of a device and the points below them: what it was measured to do, and what its maker states."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ullage.benches.result import Result, Row
from ullage.errors import UllageError, harmless
from ullage.gpus.chip import Chip
from ullage.gpus.measured import Ceiling, Ceilings
from ullage.gpus.precision import PRECISIONS
from ullage.metrics.metric import ratio

LEVELS = ("global memory", "L2 cache")  # as `memory-bandwidth` labels its rows, the device's memory first


@dataclass(frozen=True)
class Roof:
    """A horizontal ceiling (FLOP/s) or, with `slope`, a bandwidth (B/s); `stated` by the maker or measured."""

    name: str
    value: float
    slope: bool
    stated: bool


@dataclass(frozen=True)
class Point:
    """A kernel: FLOPs per byte of device memory, FLOP/s, what it is called."""

    name: str
    intensity: float
    rate: float


@dataclass(frozen=True)
class Roofline:
    """The picture's content: roofs in descending order, points, and the device's name."""

    gpu: str
    roofs: tuple[Roof, ...]
    points: tuple[Point, ...]


def ceilings(results: Sequence[Result]) -> Ceilings | None:
    """Return the measured ceilings that results of one device hold: the best dense FLOP/s of each precision on random data, and
    the best bandwidth of each level of memory.

    A precision measured on zeros alone has no ceiling: zeros draw less power, and so clock higher than work does. None
    where nothing was measured. Raises UllageError for results of several devices.
    """
    devices = {(result.gpu, result.machine.get("uuid_hash")) for result in results}
    if len(devices) > 1:
        names = ", ".join(sorted({harmless(gpu, 80) for gpu, _ in devices}))
        raise UllageError(f"the results are of {len(devices)} devices ({names}), ceilings are of one", "give the files of one device")
    flops, bandwidth = _best(results)
    if not flops and not bandwidth:
        return None
    newest = max(results, key=lambda result: result.date)
    machine = newest.machine
    return Ceilings(newest.gpu, str(machine.get("uuid_hash") or ""), newest.date, str(machine.get("driver") or ""), flops, bandwidth)


def _best(results: Sequence[Result]) -> tuple[dict[str, Ceiling], dict[str, Ceiling]]:
    """Return the highest FLOP/s by precision and the highest B/s by level."""
    flops: dict[str, Ceiling] = {}
    bandwidth: dict[str, Ceiling] = {}
    for result, row in _rows(results):
        if row.precision in PRECISIONS and not row.sparse and row.stamp is not None and row.stamp.data == "random":
            _keep(flops, row.precision, "throughput", result, row)
        if row.labels.get("level") in LEVELS:
            _keep(bandwidth, str(row.labels["level"]), "bandwidth", result, row)
    return flops, bandwidth


def _rows(results: Iterable[Result]) -> Iterable[tuple[Result, Row]]:
    return ((result, row) for result in results for row in result.rows if row.values)


def _keep(found: dict[str, Ceiling], key: str, quantity: str, result: Result, row: Row) -> None:
    """Keep what a row tells of a quantity where it is the highest so far."""
    value = row.values.get(quantity)
    if value is not None and value.value > 0 and (key not in found or value.value > found[key].value):
        clock, power, data = (None, None, "") if row.stamp is None else (row.stamp.sm_clock, row.stamp.power, row.stamp.data)
        found[key] = Ceiling(value.value, f"{result.bench}: {named(row)}", result.date, data, clock, power)


def named(row: Row) -> str:
    """Return a row's labels in a few words."""
    return harmless(" ".join(str(label) for label in row.labels.values() if label is not None), 120)


def roofline(results: Sequence[Result], chip: Chip | None) -> Roofline | None:
    """Return what a roofline shows of a device; None where not both a roof and a slope are known.

    Of what the maker states the precisions that were measured are shown, all where none was. Points are the cases that declare both
    FLOPs and bytes of device memory.
    """
    flops, bandwidth = _best(results)
    flat = {p: flops[p].value for p in PRECISIONS if p in flops}
    slopes = {level: bandwidth[level].value for level in LEVELS if level in bandwidth}
    roofs = [
        *(Roof(name, value, slope=False, stated=False) for name, value in flat.items()),
        *(Roof(name, value, slope=True, stated=False) for name, value in slopes.items()),
        *_stated(chip, flat),
    ]
    if not any(r.slope for r in roofs) or all(r.slope for r in roofs):
        return None
    return Roofline(results[0].gpu if results else chip.name if chip else "", tuple(roofs), tuple(_points(results)))


def _stated(chip: Chip | None, measured: Iterable[str]) -> Iterable[Roof]:
    if chip is not None:
        shown = [p for p in chip.precisions if p in measured] or chip.precisions
        yield from (Roof(p, chip.peak(p), slope=False, stated=True) for p in shown)
        yield Roof(LEVELS[0], chip.bandwidth, slope=True, stated=True)


def _points(results: Iterable[Result]) -> Iterable[Point]:
    for result, row in _rows(results):
        intensity = ratio(row.flops, row.bytes)
        if "throughput" in row.values and intensity:
            yield Point(f"{result.bench}: {named(row)}", intensity, row.values["throughput"].value)
