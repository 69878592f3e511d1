"""The program whose loads are known: kernels that take as long as they are told, a host that computes, copies, a barrier."""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import struct
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from gpu.apart import tell
from gpu.cupti_device import Device
from gpu.cupti_loads import REGION, Work, read
from ullage.live.regions import region

PIECE = 8 << 20  # bytes of one copy
WARM = 100  # µs of the kernel before all others
PATIENCE = 20.0  # seconds that a process waits for the other one
BARRIER = 1  # chunks.HostKind.MPI


class Meeting:
    """Where processes wait for one another: a file with a number for each, which says how often it has come."""

    def __init__(self, path: str, rank: int, ranks: int) -> None:
        self.rank, self.ranks, self.count = rank, ranks, 0
        if ranks > 1:
            with Path(path).open("r+b") as file:
                self.file = mmap.mmap(file.fileno(), 8 * ranks)

    def wait(self) -> int:
        """Wait until all have come as often as this one; return how long that took in ns. Raises TimeoutError."""
        begin = time.monotonic_ns()
        if self.ranks < 2:
            return 0
        self.count += 1
        struct.pack_into("<Q", self.file, 8 * self.rank, self.count)
        while min(struct.unpack_from(f"<{self.ranks}Q", self.file)) < self.count:
            if time.monotonic_ns() - begin > PATIENCE * 1e9:
                raise TimeoutError("the other process did not come")
        return time.monotonic_ns() - begin


class Program:
    """The program of one process; `calls` and `barriers` are ns that it spent in calls of CUDA, and waiting for the other one."""

    def __init__(self, device: Device, meeting: Meeting, note: Callable[[int, int], None]) -> None:
        self.device, self.meeting, self.note = device, meeting, note
        self.calls = self.barriers = self.copied = 0
        self.data = ctypes.create_string_buffer(PIECE)
        self.there = device.room(PIECE)

    def run(self, work: Work, rounds: int, overlapped: bool) -> dict[str, int]:
        """Go through the rounds and return what they took."""
        self.device.spin(WARM)
        self.device.copy(self.there, self.data)
        self.device.wait()
        self.meet()
        self.calls = self.barriers = self.copied = 0
        with region(REGION):
            begin = time.monotonic_ns()
            for _ in range(rounds):
                self.round(work, overlapped)
            end = time.monotonic_ns()
        facts = {"begin": begin, "end": end, "calls": self.calls, "barriers": self.barriers, "copied": self.copied}
        return facts | {"kernels": rounds + 1, "copies": 1 + self.copied // PIECE}

    def round(self, work: Work, overlapped: bool) -> None:
        """Launch, wait, compute, copy, meet; computing before waiting where the two overlap."""
        self.timed(lambda: self.device.spin(1000 * work.kernel))
        if not overlapped:
            self.timed(self.device.wait)
        compute(work.host)
        if overlapped:
            self.timed(self.device.wait)
        until = time.monotonic_ns() + work.copying * 1_000_000
        while time.monotonic_ns() < until:
            self.timed(lambda: self.device.copy(self.there, self.data))
            self.copied += PIECE
        self.meet()

    def timed(self, call: Callable[[], None]) -> None:
        """Make a call of CUDA."""
        begin = time.monotonic_ns()
        call()
        self.calls += time.monotonic_ns() - begin

    def meet(self) -> None:
        """Wait for the other process."""
        begin = time.monotonic_ns()
        took = self.meeting.wait()
        self.barriers += took
        if took:
            self.note(begin, begin + took)


def compute(milliseconds: int) -> None:
    """Keep the host busy."""
    until = time.monotonic_ns() + milliseconds * 1_000_000
    while time.monotonic_ns() < until:
        pass


def main(work: str, rounds: str, overlapped: str, rank: str, ranks: str, meeting: str, profiler: str) -> None:
    """Run the program. `profiler`: "kineto" or "".

    Tells what it did, and what PyTorch's profiler saw of it.
    """
    program = Program(Device(), Meeting(meeting, int(rank), int(ranks)), _noted())
    with _kineto() if profiler else nullcontext() as profile:
        tell(**program.run(read(work), int(rounds), overlapped == "True"))
        program.device.wait()
    if profile is not None:
        tell(**kernels(profile))


def _noted() -> Callable[[int, int], None]:
    """Return what notes a barrier in the recording, as the recorder of MPI's calls would."""
    if not os.environ.get("ULLAGE_RECORDER"):
        return lambda *_: None
    from ullage.cupti.recorder import this_recorder

    recorder = this_recorder()
    return lambda begin, end: recorder.host(BARRIER, "MPI_Barrier", begin, end)


def _kineto() -> Any:
    import torch

    torch.zeros(1, device="cuda")
    return torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])


def kernels(profile: Any) -> dict[str, float]:
    """Return how many kernels PyTorch's profiler saw, and their time in ns."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    times = [event["dur"] for event in events if event.get("cat") == "kernel"]
    return {"kineto_kernels": len(times), "kineto_time": 1000 * sum(times)}
