"""Roofs of a device and the points below them: what it was measured to do, and what its maker states."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from ullage.benches.result import BenchResult, CaseRow
from ullage.errors import UllageError, harmless
from ullage.gpus.chip import Chip
from ullage.gpus.measured import Ceilings, MeasuredCeiling
from ullage.gpus.precision import PRECISIONS
from ullage.metrics.metric import ratio

LEVELS = ("global memory", "L2 cache")  # as `memory-bandwidth` labels its rows, the device's memory first


@dataclass(frozen=True)
class Roof:
    """A horizontal ceiling (FLOP/s) or, with `slope`, a bandwidth (B/s): sustained, measured in a burst, or stated by the maker."""

    name: str
    value: float
    slope: bool
    kind: Literal["sustained", "burst", "stated"]


@dataclass(frozen=True)
class RooflinePoint:
    """A kernel: FLOPs per byte of device memory, FLOP/s, what it is called."""

    name: str
    intensity: float
    rate: float


@dataclass(frozen=True)
class Roofline:
    """The picture's content: roofs in descending order, points, and the device's name."""

    gpu: str
    roofs: tuple[Roof, ...]
    points: tuple[RooflinePoint, ...]


def ceilings(results: Sequence[BenchResult]) -> Ceilings | None:
    """Return the measured ceilings that results of one device hold: the best dense FLOP/s of each precision on random data, and
    the best bandwidth of each level of memory, of bursts and of runs long enough to be sustained.

    A precision measured on zeros alone has no ceiling: zeros draw less power, and so clock higher than work does. None
    where nothing was measured. Raises UllageError for results of several devices.
    """
    devices = {(result.gpu, result.machine.get("uuid_hash")) for result in results}
    if len(devices) > 1:
        names = ", ".join(sorted({harmless(gpu, 80) for gpu, _ in devices}))
        raise UllageError(f"the results are of {len(devices)} devices ({names}), ceilings are of one", "give the files of one device")
    burst, sustained = _best(results)
    if not any((burst.flops, burst.bandwidth, sustained.flops, sustained.bandwidth)):
        return None
    newest = max(results, key=lambda result: result.date)
    words = (newest.gpu, str(newest.machine.get("uuid_hash") or ""), newest.date, str(newest.machine.get("driver") or ""))
    return Ceilings(*words, burst.flops, burst.bandwidth, sustained.flops, sustained.bandwidth)


@dataclass(frozen=True)
class _Best:
    """The highest FLOP/s by precision and the highest B/s by level, of bursts or of sustained runs."""

    flops: dict[str, MeasuredCeiling] = field(default_factory=dict)
    bandwidth: dict[str, MeasuredCeiling] = field(default_factory=dict)


def _best(results: Sequence[BenchResult]) -> tuple[_Best, _Best]:
    """Return what bursts reached, and what was sustained."""
    burst, sustained = _Best(), _Best()
    for result, row in _rows(results):
        found = sustained if row.stamp is not None and row.stamp.sustained else burst
        if row.precision in PRECISIONS and not row.sparse and row.stamp is not None and row.stamp.data == "random":
            _keep(found.flops, row.precision, "throughput", result, row)
        level = next((str(label) for label in row.labels.values() if label in LEVELS), None)
        if level is not None:
            _keep(found.bandwidth, level, "bandwidth", result, row)
    return burst, sustained


def _rows(results: Iterable[BenchResult]) -> Iterable[tuple[BenchResult, CaseRow]]:
    return ((result, row) for result in results for row in result.rows if row.values)


def _keep(found: dict[str, MeasuredCeiling], key: str, quantity: str, result: BenchResult, row: CaseRow) -> None:
    """Keep what a row tells of a quantity where it is the highest so far."""
    value = row.values.get(quantity)
    if value is not None and value.value > 0 and (key not in found or value.value > found[key].value):
        one = MeasuredCeiling(value.value, f"{result.bench}: {named(row)}", result.date)
        if (seen := row.stamp) is not None:
            one = replace(
                one, data=seen.data, sm_clock=seen.sm_clock, power=seen.power, lowest_clock=seen.lowest_clock,
                temperature=seen.temperature, seconds=seen.seconds, throttle=seen.throttle,
            )  # fmt: skip
        found[key] = one


def named(row: CaseRow) -> str:
    """Return a row's labels in a few words."""
    return harmless(" ".join(str(label) for label in row.labels.values() if label is not None), 120)


def roofline(results: Sequence[BenchResult], chip: Chip | None) -> Roofline | None:
    """Return what a roofline shows of a device; None where not both a roof and a slope are known.

    The sustained roofs come first, then those of bursts, below which the points lie, for a point is a burst. Of what the maker states the
    precisions that were measured are shown, all where none was. Points are the cases that declare both FLOPs and bytes of device memory.
    """
    burst, sustained = _best(results)
    roofs = [
        *_measured(sustained.flops, sustained.bandwidth, "sustained"),
        *_measured(burst.flops, burst.bandwidth, "burst"),
        *_stated(chip, {*burst.flops, *sustained.flops}),
    ]
    if not any(r.slope for r in roofs) or all(r.slope for r in roofs):
        return None
    return Roofline(results[0].gpu if results else chip.name if chip else "", tuple(roofs), tuple(_points(results)))


def _measured(
    flops: Mapping[str, MeasuredCeiling], bandwidth: Mapping[str, MeasuredCeiling], kind: Literal["sustained", "burst"]
) -> Iterable[Roof]:
    yield from (Roof(name, flops[name].value, slope=False, kind=kind) for name in PRECISIONS if name in flops)
    yield from (Roof(name, bandwidth[name].value, slope=True, kind=kind) for name in LEVELS if name in bandwidth)


def _stated(chip: Chip | None, measured: Iterable[str]) -> Iterable[Roof]:
    if chip is not None:
        shown = [p for p in chip.precisions if p in measured] or chip.precisions
        yield from (Roof(p, chip.peak(p), slope=False, kind="stated") for p in shown)
        yield Roof(LEVELS[0], chip.bandwidth, slope=True, kind="stated")


def _points(results: Iterable[BenchResult]) -> Iterable[RooflinePoint]:
    for result, row in _rows(results):
        intensity = ratio(row.flops, row.bytes)
        if "throughput" in row.values and intensity:
            yield RooflinePoint(f"{result.bench}: {named(row)}", intensity, row.values["throughput"].value)
