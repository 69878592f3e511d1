"""A row that PyTorch runs: set up, checked, then timed by PyTorch's own events."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import Any

from ullage.benches.bench import Data, LibraryCase, Prepared
from ullage.benches.quantities import TimedLaunch, value
from ullage.benches.running import timing
from ullage.benches.running.device import BUSY, PAUSE, HangError
from ullage.benches.running.kernel_case import MeasuredCase, UnmeasuredError, refuse_none, stamp, summed
from ullage.benches.running.monitor import Monitor


def measure(case: LibraryCase, torch: Any, sms: int, monitor: Monitor) -> MeasuredCase:
    """Return a case's numbers. Raises UnmeasuredError for a missing library or a wrong result, and what the library raises."""
    refuse_missing(case, torch)
    if case.data != "random":
        checked(case, torch, "random")
    prepared = checked(case, torch, case.data)
    queue = LibraryQueue(prepared, torch)
    spans = timing.timed(queue, timing.first(queue), timing.Lasting(case.seconds, case.settle), monitor)
    values = {}
    for quantity in case.quantities:
        values.update(summed(quantity, [value(quantity, case, TimedLaunch(one, None, spans.observed.power, sms)) for one in spans.seconds]))
    return MeasuredCase(refuse_none(values, case.quantities), stamp(spans, case.data))


def refuse_missing(case: LibraryCase, torch: Any) -> None:
    """Raise UnmeasuredError where PyTorch, another library or another GPU is missing."""
    if torch is None:
        raise UnmeasuredError("needs PyTorch with a GPU")
    if case.gpus > 1 and (count := torch.cuda.device_count()) < case.gpus:
        raise UnmeasuredError(f"needs {case.gpus} GPUs, and PyTorch sees {count}")
    for module in case.needs:
        try:
            importlib.import_module(module)
        except Exception as error:  # a library that can't be loaded fails in many ways
            raise UnmeasuredError(f"needs the library '{module}', which can't be loaded ({type(error).__name__})") from error


def checked(case: LibraryCase, torch: Any, data: Data) -> Prepared:
    """Return the prepared call after one run whose result is right; raises UnmeasuredError where it is wrong."""
    prepared = case.prepare(torch, data)
    prepared.run()
    torch.cuda.synchronize()
    problem = prepared.wrong()
    if problem:
        raise UnmeasuredError(problem if "wrong" in problem else f"the result is wrong: {problem}")
    return prepared


class LibraryQueue:
    """A library call, ready to be timed on PyTorch's current stream."""

    def __init__(self, prepared: Prepared, torch: Any, now: Callable[[], float] = time.monotonic) -> None:
        self.prepared, self.torch, self.now = prepared, torch, now

    def run(self, span: int) -> None:  # noqa: ARG002
        """Queue the call."""
        self.prepared.run()

    def mark(self) -> Any:
        """Queue an event and return it."""
        event = self.torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds(self, begin: Any, end: Any) -> float:
        """Return the seconds between two events."""
        return float(begin.elapsed_time(end)) / 1000

    def wait(self, limit: float) -> None:
        """Wait for all calls; raises HangError after `limit` seconds."""
        last, end = self.mark(), self.now() + limit
        while not last.query():
            if self.now() > end:
                raise HangError(f"a call of PyTorch did not end within {limit:.0f} s", BUSY)
            time.sleep(PAUSE)
