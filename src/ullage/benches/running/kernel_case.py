"""A kernel of ours: compiled, checked against its reference on fresh random data, then timed."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ullage.benches.bench import AnyCase, Arrays, Case
from ullage.benches.quantities import UNITS, TimedLaunch, value
from ullage.benches.result import Stamp, Value
from ullage.benches.running import timing
from ullage.benches.running.checking import wrong
from ullage.benches.running.device import Arguments, BenchDevice, CudaKernel, Launch, three
from ullage.benches.running.monitor import Monitor
from ullage.benches.source import CLOCKS, whole
from ullage.errors import UllageError
from ullage.kernels.compiling import compile_cubin

# Which quantities need the cycles that the blocks note; one block's latency is the median block's.
IN_CYCLES = ("latency", "bytes_per_cycle", "bytes_per_cycle_sm", "results_per_cycle_sm")


class UnmeasuredError(UllageError):
    """Why a case has no number; its problem is one sentence."""


@dataclass(frozen=True)
class MeasuredCase:
    """What a case gave."""

    values: dict[str, Value]
    stamp: Stamp


def measure(case: Case, device: BenchDevice, architecture: str, sms: int, monitor: Monitor, generator: np.random.Generator) -> MeasuredCase:
    """Return a case's numbers. Raises UllageError for a kernel that doesn't compile, fails or gives a wrong result."""
    inputs = case.inputs(generator, "random")
    queue = KernelQueue(case, device, loaded(case, device, architecture), inputs)
    check(queue)
    if case.data != "random" or case.timed_inputs is not None:
        device.release()
        queue = KernelQueue(case, device, loaded(case, device, architecture), timed_inputs(case, generator, inputs))
    spans = timing.timed(queue, timing.first(queue), timing.Lasting(case.seconds, case.settle), monitor, queue.prepare)
    return told(case, spans, queue.notes(len(spans.seconds)), sms)


def timed_inputs(case: Case, generator: np.random.Generator, checked: Arrays) -> Arrays:
    """Return the inputs that a case is timed on: of its own kind of data, or made of the random ones that were checked."""
    if case.data != "random":
        return case.inputs(generator, case.data)
    return checked if case.timed_inputs is None else case.timed_inputs(checked)


def compile_ahead(cases: Sequence[AnyCase], architecture: str, workers: int) -> None:
    """Compile the distinct kernels of some cases side by side, so that they are at hand; what the compiler refuses its case tells later."""
    programs = {(case.source, case.options) for case in cases if isinstance(case, Case)}
    if workers < 2 or len(programs) < 2:
        return

    def compiled(program: tuple[str, tuple[str, ...]]) -> None:
        with suppress(UllageError):
            compile_cubin(whole(program[0]), architecture, program[1])

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(compiled, programs))


def loaded(case: Case, device: BenchDevice, architecture: str) -> CudaKernel:
    """Return a case's kernel on the device."""
    cubin = compile_cubin(whole(case.source), architecture, case.options)
    return device.kernel(cubin, case.entry, Launch(case.grid, case.block, case.cluster, case.shared))


def check(queue: KernelQueue) -> None:
    """Run `check_trips` into poisoned outputs; raises UnmeasuredError where the result is wrong."""
    case, device = queue.case, queue.device
    device.run(queue.kernel, queue.arguments(0, case.check_trips))
    device.wait(timing.PATIENCE)
    found = [device.download(at, one.shape, one.dtype) for at, one in zip(queue.outputs, case.outputs, strict=True)]
    problem = wrong(found, case.reference(queue.inputs, case.check_trips), case.tolerance)
    if problem:
        raise UnmeasuredError(problem)


def size(shape: tuple[int, ...], dtype: str) -> int:
    """Return the bytes of an array."""
    return int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize


def _blocks(case: Case) -> int:
    x, y, z = three(case.grid)
    return x * y * z


def _notes(case: Case) -> int:
    """Return the bytes of one launch's notes."""
    return _blocks(case) * CLOCKS * 8


class KernelQueue:
    """A kernel with its data on the device and its outputs poisoned, ready to be run; each timed span has room for its own notes."""

    def __init__(self, case: Case, device: BenchDevice, kernel: CudaKernel, inputs: Arrays) -> None:
        self.case, self.device, self.kernel, self.inputs = case, device, kernel, inputs
        self.outputs = [device.poisoned(size(one.shape, one.dtype)) for one in case.outputs]
        places = [device.upload(array) for array in inputs]
        self.pointers = [*places, *self.outputs, *(device.tensor_map(places[one.input], one) for one in case.maps)]
        self.prepare(1)

    def prepare(self, spans: int) -> None:
        """Make room for the notes of so many spans."""
        self.clocks = self.device.poisoned(spans * _notes(self.case))
        self.ready = [self.arguments(span, self.case.trips) for span in range(spans)]

    def arguments(self, span: int, trips: int) -> Arguments:
        """Return the parameters of a launch that leaves its notes in the room of this span."""
        return Arguments([self.clocks + span * _notes(self.case), *self.pointers], [trips, *self.case.scalars])

    def run(self, span: int) -> None:
        """Queue a launch for this span."""
        self.device.run(self.kernel, self.ready[span])

    def mark(self) -> Any:
        """Queue an event and return it."""
        return self.device.mark()

    def seconds(self, begin: Any, end: Any) -> float:
        """Return the seconds between two events."""
        return self.device.seconds(begin, end)

    def wait(self, limit: float) -> None:
        """Wait for all launches."""
        self.device.wait(limit)

    def notes(self, spans: int) -> np.ndarray:
        """Return what the blocks of each span's last launch noted: (spans, blocks, CLOCKS)."""
        return self.device.download(self.clocks, (spans, _blocks(self.case), CLOCKS), np.uint64)


def told(case: Case, spans: timing.TimedSpans, notes: np.ndarray, sms: int) -> MeasuredCase:
    """Return a case's quantities from the spans and from what the blocks noted in each. Raises UnmeasuredError where there is none."""
    noted = [timing.blocks(one) for one in notes]
    if any(one is None for one in noted) and set(case.quantities) & set(IN_CYCLES):
        raise UnmeasuredError("the kernel did not note its cycles: ULLAGE_BEGIN and ULLAGE_END must stand around its loop")
    values = {}
    for quantity in case.quantities:
        repeats = [
            value(quantity, case, TimedLaunch(seconds, _cycles(quantity, one), spans.observed.power, sms))
            for seconds, one in zip(spans.seconds, noted, strict=True)
        ]
        values.update(summed(quantity, repeats))
    clocks = [one.clock for one in noted if one is not None and one.clock is not None]
    return MeasuredCase(refuse_none(values, case.quantities), stamp(spans, case.data, clocks))


def _cycles(quantity: str, noted: timing.Blocks | None) -> float | None:
    if noted is None:
        return None
    return noted.median if quantity == "latency" else noted.longest


def summed(quantity: str, repeats: list[float | None]) -> dict[str, Value]:
    """Return the median of a quantity's repeats under its name; nothing where it can't be told."""
    known = [one for one in repeats if one is not None]
    return {quantity: timing.median(known, UNITS[quantity])} if known else {}


def refuse_none(values: dict[str, Value], wanted: tuple[str, ...]) -> dict[str, Value]:
    """Return the values; raises UnmeasuredError when there is none."""
    if not values:
        why = "the driver tells no power" if {"power", "efficiency"} & set(wanted) else "its time or its work is 0"
        raise UnmeasuredError(f"{' and '.join(wanted) or 'nothing'} can't be told: {why}")
    return values


def stamp(spans: timing.TimedSpans, data: str, clocks: Sequence[float] = ()) -> Stamp:
    """Return under what a number was measured; the kernel's own `clocks` go before the driver's."""
    seen = spans.observed
    lowest = min([*clocks, *([] if seen.lowest_clock is None else [seen.lowest_clock])], default=None)
    found = Stamp(
        seen.sm_clock, "driver" if seen.sm_clock else None, seen.power, seen.temperature, seen.throttle, data,
        lowest, spans.total, spans.settled,
    )  # fmt: skip
    return replace(found, sm_clock=float(np.median(clocks)), clock_from="kernel") if clocks else found
