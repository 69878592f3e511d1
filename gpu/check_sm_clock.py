"""Is the SM clock that NVML tells the clock that the SMs have?"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from gpu.check import Findings, NotMeasured, check
from gpu.cupti_device import Device
from gpu.load import SustainedWork
from gpu.machine import Machine
from gpu.telemetry import column, mean, watched
from ullage.errors import UllageError

SECONDS, INTERVAL = 2.5, 0.1
SETTLE = 0.5  # seconds of a load before it is looked at
LOOK = 3000  # µs of the GPU's own time that a look at an SM's cycles takes
FAR = 0.03  # a clock that is further off than this share is not the one that the SMs have
PRODUCTS = ((1024, False), (4096, False), (8192, False), (8192, True))
GIB = 1 << 30
CountCycles = Callable[["CycleLooks", threading.Event], None]  # looks at SMs until the event is set
# One thread of a warp counts the cycles of its SM over so many nanoseconds of the GPU's timer: notes[0] cycles, [1] ns, [2] the SM.
LOOK_PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry look(.param .u64 notes, .param .u64 length)
{
    .reg .pred %p<2>;
    .reg .b32 %sm;
    .reg .b64 %notes, %length, %begin, %now, %first, %last;
    ld.param.u64 %notes, [notes];
    cvta.to.global.u64 %notes, %notes;
    ld.param.u64 %length, [length];
    mov.u64 %now, %globaltimer;
EDGE:
    mov.u64 %begin, %globaltimer;
    setp.eq.u64 %p1, %begin, %now;
    @%p1 bra EDGE;
    mov.u64 %first, %clock64;
AGAIN:
    mov.u64 %now, %globaltimer;
    sub.u64 %now, %now, %begin;
    setp.lt.u64 %p1, %now, %length;
    @%p1 bra AGAIN;
    mov.u64 %last, %clock64;
    sub.u64 %last, %last, %first;
    mov.u32 %sm, %smid;
    st.global.u64 [%notes], %last;
    st.global.u64 [%notes+8], %now;
    cvt.u64.u32 %first, %sm;
    st.global.u64 [%notes+16], %first;
    ret;
}
\0"""


@dataclass
class CycleLooks:
    """What SMs counted while a load ran: cycles, ns of the GPU's timer, and the SM, of each look; `problem` says why there are none."""

    counted: list[tuple[int, int, int]] = field(default_factory=list)
    problem: str = ""

    @property
    def cycles_per_second(self) -> float | None:
        """Cycles over time, of all looks."""
        time = sum(ns for _, ns, _ in self.counted)
        return 1e9 * sum(cycles for cycles, _, _ in self.counted) / time if time else None


@check(
    headline="the SM clock by NVML is {told_over_counted:.3f} times the SMs' own under a load, {idle_told_over_counted:.3f} times at rest",
    loaded=True,
    answers={
        "told_over_counted": "SM clock told by NVML over the cycles that SMs counted a second, the ratio furthest from 1 under a load",
        "nearest": "the same, nearest to 1 under a load",
        "idle_told_over_counted": "the same where nothing runs but the look itself",
        "by_products": "the clock that the products' FLOPs imply over that counted, the one furthest from 1",
    },
    columns={
        "load": "what ran",
        "told": "SM clock by NVML, mean of a reading every 0.1 s, Hz",
        "told_low": "the lowest reading, Hz",
        "told_high": "the highest, Hz",
        "counted": "cycles that an SM counted over the GPU's own time, all looks together, 1/s",
        "counted_low": "of the slowest look, 1/s",
        "counted_high": "of the fastest, 1/s",
        "looks": "how many, each of 3 ms",
        "sms": "on how many SMs",
        "told_over_counted": "NVML's clock over that counted",
        "tensor_active": "by GPM",
        "flops": "of the products, FLOP/s",
        "by_products": "FLOP/s over what the SMs do in a cycle and over tensor activity: the clock that products imply, 1/s",
        "power": "mean, W",
        "throttle": "clock event reasons that occurred, as NVML's bit mask",
        "problem": "why something is missing",
    },
)
def sm_clock(machine: Machine) -> Findings:
    """Is the SM clock that NVML tells the clock that the SMs have?

    OFU is tensor activity times the SM clock over the tensor clock; activity is counted in cycles, so that a clock that is told too
    high is an OFU that is told too high by the same share. While nothing, products of several sizes, products of zeros and copies
    run, our own reader asks NVML every 0.1 s, and one thread on an SM counts cycles over the GPU's own timer, again and again, beside
    the load, in a queue of its own. The products' FLOPs over tensor activity and over the FLOPs of a cycle tell the clock once more.
    """
    findings = Findings({"load": machine.load_name, "seconds": SECONDS, "interval": INTERVAL, "look_us": LOOK})
    count = getattr(machine, "count_cycles", None) or partial(_count, Device())
    for name, start in _loads(machine):
        try:
            with start() as work:
                found, looks = _looked(machine, count)
        except UllageError as error:
            findings.notes.append(f"{name}: {error.problem}")
            continue
        findings.rows.append(_row(machine, name, work, found, looks))
        if machine.room is not None:
            machine.room.say(_line(findings.rows[-1]))
            machine.room.keep(findings)
    if not any(row["counted"] for row in findings.rows):
        raise NotMeasured("; ".join([*findings.notes, *(str(row["problem"]) for row in findings.rows[:1])]) or "no SM counted anything")
    findings.answers = _answers(findings.rows)
    findings.notes += [f"{row['load']}: {row['problem']}" for row in findings.rows if row["problem"]]
    findings.wrong = _wrong(findings.rows)
    return findings


def _loads(machine: Machine) -> Iterator[tuple[str, Callable[[], AbstractContextManager[Any]]]]:
    """Yield each load: what it is called, and what starts it."""
    yield "nothing", partial(nullcontext, None)
    for size, zeros in PRODUCTS:
        assert machine.load is not None, "the runner asks for a load"
        yield f"products of {size}{' of zeros' if zeros else ''}", partial(machine.load, size, "bfloat16", zeros=zeros)
    if machine.torch is not None:
        yield "copies", partial(_copies, machine.torch)


@contextmanager
def _copies(torch: Any) -> Iterator[None]:
    """Copy a gibibyte on the GPU again and again while the body runs."""
    source, target = (torch.empty(GIB, dtype=torch.uint8, device="cuda") for _ in range(2))
    over = threading.Event()

    def go_on() -> None:
        while not over.is_set():
            for _ in range(8):
                target.copy_(source)
            torch.cuda.synchronize()

    thread = threading.Thread(target=go_on, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _looked(machine: Machine, count: CountCycles) -> tuple[list[dict[str, Any]], CycleLooks]:
    """Return what our own reader told over the window, and what SMs counted meanwhile."""
    looks, over = CycleLooks(), threading.Event()
    thread = threading.Thread(target=count, args=(looks, over), daemon=True)
    machine.sleep(SETTLE)
    thread.start()
    found = watched(machine, SECONDS, INTERVAL)
    over.set()
    thread.join()
    return found, looks


def _count(device: Device, looks: CycleLooks, over: threading.Event) -> None:
    """Look at an SM's cycles again and again, in a queue that comes before others and waits for none."""
    try:
        device.use()
        function, notes, stream = device.function(device.module(LOOK_PTX), "look"), device.room(24), ctypes.c_void_p()
        low, high = ctypes.c_int(), ctypes.c_int()
        device.ask("cuCtxGetStreamPriorityRange", ctypes.byref(low), ctypes.byref(high))
        device.ask("cuStreamCreateWithPriority", ctypes.byref(stream), 1, high)  # CU_STREAM_NON_BLOCKING
        values, length = (ctypes.c_uint64 * 3)(), ctypes.c_uint64(1000 * LOOK)
        places = (ctypes.c_void_p * 2)(ctypes.addressof(notes), ctypes.addressof(length))
        while not over.is_set():
            device.ask("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, stream, places, None)
            device.ask("cuMemcpyDtoHAsync_v2", values, notes, ctypes.c_size_t(24), stream)
            device.ask("cuStreamSynchronize", stream)
            looks.counted.append((int(values[0]), int(values[1]), int(values[2])))
    except UllageError as error:
        looks.problem = error.problem


def _row(machine: Machine, name: str, work: SustainedWork | None, found: list[dict[str, Any]], looks: CycleLooks) -> dict[str, Any]:
    samples, each = found[1:], [1e9 * cycles / ns for cycles, ns, _ in looks.counted if ns]
    told, counted = column(samples, "sm_clock"), looks.cycles_per_second
    begin, end = found[0]["time"], found[-1]["time"]
    flops = work.flops_between(begin, end) / (end - begin) if work is not None else None
    active, cycle = mean(samples, "tensor_active"), machine.chip.peak("bf16") / machine.chip.tensor_clock
    return {
        "load": name,
        "told": float(np.nanmean(told)),
        "told_low": float(np.nanmin(told)),
        "told_high": float(np.nanmax(told)),
        "counted": counted,
        "counted_low": min(each, default=None),
        "counted_high": max(each, default=None),
        "looks": len(each),
        "sms": len({sm for _, _, sm in looks.counted}),
        "told_over_counted": float(np.nanmean(told)) / counted if counted else None,
        "tensor_active": active,
        "flops": flops,
        "by_products": flops / active / cycle if flops and active else None,
        "power": mean(samples, "power"),
        "throttle": int(np.bitwise_or.reduce([int(row.get("throttle", 0)) for row in samples])) if samples else 0,
        "problem": looks.problem,
    }


def _line(row: dict[str, Any]) -> str:
    told, counted, implied = (("–" if row[key] is None else f"{row[key] / 1e6:.0f}") for key in ("told", "counted", "by_products"))
    return f"    {row['load']}: {told} MHz told, {counted} counted on {row['sms']} SMs, {implied} by products; {row['power'] or 0:.0f} W"


def _answers(rows: list[dict[str, Any]]) -> dict[str, Any]:
    ratios = [row["told_over_counted"] for row in rows if row["load"] != "nothing" and row["told_over_counted"]]
    idle = [row["told_over_counted"] for row in rows if row["load"] == "nothing"]
    implied = [row["by_products"] / row["counted"] for row in rows if row["by_products"] and row["counted"]]
    return {
        "told_over_counted": max(ratios, key=lambda ratio: abs(ratio - 1), default=None),
        "nearest": min(ratios, key=lambda ratio: abs(ratio - 1), default=None),
        "idle_told_over_counted": idle[0] if idle else None,
        "by_products": max(implied, key=lambda ratio: abs(ratio - 1), default=None),
    }


def _wrong(rows: list[dict[str, Any]]) -> list[str]:
    return [
        f"under {row['load']} NVML tells {row['told'] / 1e6:.0f} MHz where SMs count {row['counted'] / 1e6:.0f}"
        for row in rows
        if row["told_over_counted"] and abs(row["told_over_counted"] - 1) > FAR
    ]
