"""A program whose loads are known, and what profilers record of it: bursts of products on the GPU, a computing host, copies."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from shutil import which
from typing import Any, Protocol

from gpu.machine import Machine
from gpu.pytorch import needed_torch
from ullage.gpus.names import pseudonym

VARIANTS = ("synchronous", "asynchronous", "copies", "graph")
ROUNDS = 10
BURST, HOST = 0.020, 0.010  # seconds of a round: the GPU's products, and what the host computes
SIZE, COPIED = 8192, 1 << 28  # of a product; bytes of a copy
ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Known:
    """What a run did: s of products and of copies by CUDA events, s that the host computed by its own clock, products launched."""

    kernel: float
    memory: float
    host: float
    products: int


@dataclass(frozen=True)
class Recorded:
    """A run, the trace that a profiler made of it, and how the trace's file is called."""

    known: Known
    name: str
    trace: bytes


class Recorder(Protocol):
    """What records a variant of the program: with PyTorch's profiler, and with Nsight Systems (None where it isn't installed)."""

    def kineto(self, variant: str) -> Recorded:
        """Return a run as PyTorch's profiler saw it."""

    def nsys(self, variant: str) -> Recorded | None:
        """Return a run as Nsight Systems saw it."""


def recorder(machine: Machine) -> Recorder:
    """Return what records on this machine: PyTorch, unless the machine brings its own. Raises NotMeasured without any."""
    own: Recorder | None = getattr(machine, "recorder", None)
    if own is not None:
        return own
    needed_torch(machine)
    return Recording(machine)


@dataclass(frozen=True)
class Recording:
    """Records on a real GPU."""

    machine: Machine

    def kineto(self, variant: str) -> Recorded:
        """Return a run as PyTorch's profiler saw it; the profiler is started once before, which costs seconds the first time."""
        profiler = self.machine.torch.profiler
        program = Program(self.machine.torch)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{variant}.json"
            for _ in range(2):
                with profiler.profile(activities=[profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.CUDA]) as profile:
                    known = program.run(variant)
                    self.machine.torch.cuda.synchronize()
            profile.export_chrome_trace(str(path))
            return Recorded(known, path.name, anonymous(path.read_bytes(), self.machine.uuid))

    def nsys(self, variant: str) -> Recorded | None:
        """Return a run in a process of its own as Nsight Systems saw it. Raises OSError or SubprocessError where that fails."""
        nsys = which("nsys")
        if nsys is None:
            return None
        code = f"import sys; sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / 'src')!r}]; from gpu.trace_program import main; main({variant!r})"
        with tempfile.TemporaryDirectory() as folder:
            stem, path = Path(folder) / variant, Path(folder) / f"{variant}.sqlite"
            options = ["--trace=cuda", "--sample=none", "--cpuctxsw=none", "--cuda-graph-trace=node", "--capture-range=cudaProfilerApi"]
            said = _ran(nsys, "profile", *options, "--force-overwrite=true", f"--output={stem}", sys.executable, "-c", code)
            known = Known(**json.loads(next(line for line in said.splitlines() if line.startswith('{"kernel"'))))
            _ran(nsys, "export", "--type=sqlite", "--force-overwrite=true", f"--output={path}", f"{stem}.nsys-rep")
            return Recorded(known, path.name, path.read_bytes())


def _ran(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


def anonymous(trace: bytes, uuid: str) -> bytes:
    """Return a profile without the names of the machine, of its folders and of the GPU; all else stays as it was written.

    >>> anonymous(b'{"host_name": "alice", "traceName": "/home/alice/x.json", "uuid": "GPU-1"}', "GPU-1")[:50]
    b'{"host_name": "node", "traceName": "trace", "uuid"'
    """
    for key, word in ((b"host_name", b"node"), (b"traceName", b"trace")):
        trace = re.sub(rb'("' + key + rb'"\s*:\s*")[^"]*', rb"\g<1>" + word, trace)
    return trace.replace(uuid.removeprefix("GPU-").encode(), pseudonym(uuid).removeprefix("GPU-").encode())


class Program:
    """The program, warmed up: `run` goes through its rounds and returns what they did."""

    def __init__(self, torch: Any, clock: Callable[[], float] = time.perf_counter) -> None:
        self.torch, self.clock = torch, clock
        self.a, self.b = (torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        self.c = torch.empty(SIZE, SIZE, device="cuda", dtype=torch.bfloat16)
        self.products = 1
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self._burst()  # lets the library choose its kernel
            first, last = self._timed(self._burst)
        torch.cuda.synchronize()
        self.products = max(1, round(BURST / max(1e-6, first.elapsed_time(last) / 1000)))
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self._burst()
        self.there = torch.empty(COPIED, device="cuda", dtype=torch.uint8)
        self.here = torch.empty(COPIED, dtype=torch.uint8, pin_memory=True)
        torch.cuda.synchronize()

    def run(self, variant: str) -> Known:
        """Go through the rounds of a variant, each a burst and a computing host, one after the other or both at once."""
        bursts, copies, host = [], [], 0.0
        burst = self.graph.replay if variant == "graph" else self._burst
        for _ in range(ROUNDS):
            bursts.append(self._timed(burst))
            if variant != "asynchronous":
                self.torch.cuda.synchronize()
            host += self._compute()
            if variant == "copies":
                copies.append(self._timed(lambda: self.there.copy_(self.here, non_blocking=True)))
            self.torch.cuda.synchronize()
        kernel, memory = (sum(first.elapsed_time(last) for first, last in some) / 1000 for some in (bursts, copies))
        return Known(float(kernel), float(memory), host, ROUNDS * self.products)

    def _burst(self) -> None:
        for _ in range(self.products):
            self.torch.matmul(self.a, self.b, out=self.c)

    def _timed(self, work: Callable[[], Any]) -> tuple[Any, Any]:
        first, last = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        work()
        last.record()
        return first, last

    def _compute(self) -> float:
        """Keep the host busy for `HOST` seconds and return how long it was."""
        begin = now = self.clock()
        while now - begin < HOST:
            now = self.clock()
        return now - begin


def main(variant: str) -> None:
    """Run a variant between the marks that Nsight Systems records between, and print what it did."""
    torch: Any = importlib.import_module("torch")
    program = Program(torch)
    torch.cuda.profiler.start()
    known = program.run(variant)
    torch.cuda.profiler.stop()
    print(json.dumps(asdict(known)))
