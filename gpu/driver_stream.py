"""A queue of the CUDA driver's own, with events and graphs: what loads without PyTorch are queued on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

from ullage.benches.running.device import BenchDevice
from ullage.benches.running.driver import CudaError


class Event:
    """An event of the driver, destroyed with this object."""

    def __init__(self, device: BenchDevice) -> None:
        self._driver = device.driver
        blocking = self._driver.CUevent_flags.CU_EVENT_BLOCKING_SYNC  # the host sleeps while it waits: it has a sampler to run
        self.handle = device.asked("cuEventCreate", blocking, deed="an event")

    def __del__(self) -> None:
        if hasattr(self, "handle"):
            with suppress(Exception):  # as the interpreter ends the driver's module may be gone before this
                self._driver.cuEventDestroy(self.handle)


class DriverStream:
    """A device's stream as `ullage.benches.sustained.Stream`; graphs live until `close`."""

    def __init__(self, device: BenchDevice) -> None:
        self.device, self._graphs = device, list[Any]()
        self._context = device.asked("cuCtxGetCurrent", deed="its context")

    def enter(self) -> None:
        """See `Stream`."""
        self.device.asked("cuCtxSetCurrent", self._context, deed="its context")

    def mark(self) -> Event:
        """See `Stream`."""
        event = Event(self.device)
        self.device.asked("cuEventRecord", event.handle, self.device.stream, deed="an event")
        return event

    def reach(self, event: Event) -> None:
        """See `Stream`."""
        self.device.asked("cuEventSynchronize", event.handle, deed="to go on after the load")

    def seconds(self, begin: Event, end: Event) -> float:
        """See `Stream`."""
        return self.device.seconds(begin.handle, end.handle)

    def drain(self) -> None:
        """See `Stream`. Raises HangError where something does not end."""
        self.device.wait()

    def trial(self) -> AbstractContextManager[object]:
        """See `Stream`."""
        return nullcontext()

    def capture(self, run: Callable[[], object], calls: int) -> Callable[[], object]:
        """See `Stream`."""
        driver, stream = self.device.driver, self.device.stream
        mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL  # NVML may be read beside it
        self.device.asked("cuStreamBeginCapture", stream, mode, deed="to capture launches")
        try:
            for _ in range(calls):
                run()
        except BaseException:
            with suppress(CudaError):  # what broke the capture is told
                self.device.asked("cuGraphDestroy", self.device.asked("cuStreamEndCapture", stream))
            raise
        graph = self.device.asked("cuStreamEndCapture", stream, deed="what it captured")
        self._graphs.append(self.device.asked("cuGraphInstantiate", graph, 0, deed="a graph"))
        self.device.asked("cuGraphDestroy", graph)
        ready = self._graphs[-1]
        return lambda: self.device.asked("cuGraphLaunch", ready, stream, deed="to launch a graph")

    def close(self) -> None:
        """Destroy the graphs; in a lost context there is nothing to destroy."""
        graphs, self._graphs = self._graphs, []
        for ready in graphs:
            with suppress(RuntimeError):
                self.device.driver.cuGraphExecDestroy(ready)
