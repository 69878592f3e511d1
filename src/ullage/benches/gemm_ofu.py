"""OFU beside application MFU on random matrix products: the harness of the OFU paper's table II.

Each product is checked, then sustained in CUDA graphs while NVML tells tensor activity and clock over the very same span; MFU
comes from the FLOPs that CUDA events saw done between the two samples. This module only measures and records; what the
numbers say is in `ullage.reports.gemms.ofu`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ullage.benches.gemm_ofu_plan import LARGEST, PRECISIONS, PlannedGemm, planned
from ullage.benches.gemm_ofu_record import Book, Observation
from ullage.benches.gemm_ofu_watch import refuse_blind, seen
from ullage.benches.products import product
from ullage.benches.running.session import Session
from ullage.benches.sustained import SustainedWork, TorchStream, captured, sustained
from ullage.errors import UllageError, harmless
from ullage.gpus.chip import find
from ullage.gpus.precision import canonical
from ullage.kernels.tiling import TiledProduct

TIME_UP = "the time was up"  # what a run says first that ended as it was asked to
GIVE_UP = 5  # failures in a row: the GPU or the driver is at fault, not the shape
_TYPES = {"fp8": "float8_e4m3fn", "fp4": "float4_e2m1fn_x2"}
Progress = Callable[[str], None]


def measure(
    session: Session,
    path: Path,
    *,
    precisions: Sequence[str] = PRECISIONS,
    count: int = 60,
    seconds: float = 1.0,
    minutes: float | None = None,
    seed: int = 0,
    largest: int = LARGEST,
    progress: Progress = lambda words: None,  # noqa: ARG005
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """Measure `count` random products in each precision and append them to `path`; return why it ended early, "" if it did not.

    What the file holds already is not measured again. After `minutes` no product is begun. A product that fails is recorded
    with its problem. Raises UllageError without PyTorch on the GPU, without tensor activity, and for a GPU whose peak nobody knows.
    """
    if session.torch is None:
        raise UllageError("the harness needs PyTorch with a GPU", "install a CUDA build of torch in this environment")
    refuse_blind(session.monitor)
    until = None if minutes is None else session.now() + 60 * minutes
    usable, lacking = available(session.machine["gpu"], session.torch, precisions)
    settings = {"seconds": seconds, "seed": seed, "largest": largest, "left_out": lacking, "notes": reductions(session.torch)}
    book = Book(path, session.machine, settings, session.date)
    todo = [gemm for gemm in planned(usable, count, seed, largest) if gemm not in book.done]
    failures = 0
    for number, gemm in enumerate(todo):
        if until is not None and session.now() > until:
            return f"{TIME_UP}: {len(todo) - number:,} products are not measured; the same command goes on with them"
        progress(f"{number + 1:,} of {len(todo):,}: {gemm.words}")
        found = observed(session, gemm, seconds, sleep)
        book.add(found)
        session.give_back()
        failures = failures + 1 if found.problem else 0
        if failures == GIVE_UP:
            return f"{GIVE_UP} products in a row failed, the last one: {found.problem}"
    return ""


def available(gpu: Any, torch: Any, precisions: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return which precisions the chip and PyTorch have, and why the others are left out."""
    chip = find(str(gpu))
    usable, lacking = [], {}
    for precision in dict.fromkeys(canonical(one) for one in precisions):
        if precision not in PRECISIONS:
            lacking[precision] = f"the harness knows {', '.join(PRECISIONS)}"
        elif precision not in chip.precisions:
            lacking[precision] = f"{chip.name} has no {precision.upper()} tensor cores"
        elif not hasattr(torch, _TYPES.get(precision, "float16")):
            lacking[precision] = f"this PyTorch has no {_TYPES[precision]}"
        else:
            usable.append(precision)
    return usable, lacking


def reductions(torch: Any) -> list[str]:
    """Return how PyTorch lets cuBLAS add up the slices of K in short types: it changes results, and which kernels are chosen."""
    told = []
    for name in ("fp16", "bf16"):
        allowed = getattr(torch.backends.cuda.matmul, f"allow_{name}_reduced_precision_reduction", None)
        if allowed is not None:
            told.append(f"reductions in {name.upper()} {'are' if allowed else 'are not'} allowed (PyTorch's setting)")
    return told


def observed(session: Session, gemm: PlannedGemm, seconds: float, sleep: Callable[[float], None] = time.sleep) -> Observation:
    """Return what was seen of one product; what fails is told, not raised."""
    try:
        return _observed(session, gemm, seconds, sleep)
    except UllageError as error:
        return Observation(gemm, problem=error.problem)
    except Exception as error:  # libraries fail in many ways, and the next product may be right
        return Observation(gemm, problem=f"{type(error).__name__}: {harmless(str(error), 300)}")


def _observed(session: Session, gemm: PlannedGemm, seconds: float, sleep: Callable[[float], None]) -> Observation:
    torch = session.torch
    made = product(torch, TiledProduct(gemm.m, gemm.n, gemm.k), gemm.precision)
    problem = made.wrong()
    if problem:
        return Observation(gemm, problem=f"the result is wrong: {problem}")
    kernels = kernel_names(torch, made.run)
    if gemm.kind == "size":
        return Observation(gemm, kernels)
    stream = TorchStream(torch, session.device.index)
    burst = captured(stream, made.run)
    work = SustainedWork((gemm.m, gemm.n, gemm.k), gemm.precision, float(gemm.flops * burst.calls))
    with sustained(stream, burst, work, clock=session.now, sleep=sleep):
        span = seen(session.monitor, seconds, session.now, sleep)
    return Observation(
        gemm, kernels, "", work.flops_between(span.begin, span.end), span.settled, span.seconds, span.tensor_active, span.sm_clock,
        span.clock_samples, span.sm_cycles, span.tensor_cycles, span.power, span.temperature, span.throttle,
    )  # fmt: skip


def kernel_names(torch: Any, run: Callable[[], object]) -> tuple[str, ...]:
    """Return the names of the kernels that a call launches, in order, by PyTorch's profiler; none where it can't tell."""
    with suppress(Exception):  # no CUPTI, or no permission: OFU and MFU are known without names
        torch.cuda.synchronize()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as found:
            run()
            torch.cuda.synchronize()
        launched = [event for event in found.events() if str(event.device_type).endswith("CUDA")]
        names = [event.name for event in sorted(launched, key=lambda event: event.time_range.start)]
        return tuple(name for name in names if not name.startswith(("Memcpy", "Memset")))
    return ()
