"""The program that counts tensor work by CUPTI's ranges, in three stages, each started by itself.

With PyTorch the work is products, without it the tensor-core kernels of ours: it needs nothing but the driver then.
"""

from __future__ import annotations

import ctypes
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from gpu.apart import tell
from gpu.cupti_device import Device
from gpu.cupti_tools import refusal
from gpu.machine import torch_or_none
from gpu.tensor_kernels import INCREMENT_PTX, tensor_kernels
from ullage.benches.products import product
from ullage.cupti.checkpoint import Checkpoint
from ullage.cupti.counters import target
from ullage.cupti.counters.evaluate import Values, evaluate
from ullage.cupti.counters.host import Host, Use
from ullage.cupti.counters.images import CounterImage
from ullage.cupti.counters.ranges import Ranges
from ullage.cupti.counters.wanted import wanted
from ullage.cupti.counters.work import flops
from ullage.cupti.library import Library, find
from ullage.errors import UllageError
from ullage.kernels.tiling import TiledProduct

STAGES = ("products", "passes", "user")
PYTORCH, OWN = "PyTorch", "tensor-core kernels of ours"  # what ran
TRIPS = (64, 4096)  # of a kernel of ours
PRODUCTS = (("bf16", 1024), ("bf16", 4096), ("fp8", 1024), ("fp8", 4096))
TENSOR = "sm__pipe_tensor_cycles_active"
ELAPSED, ACTIVE = f"{TENSOR}.avg.pct_of_peak_sustained_elapsed", f"{TENSOR}.avg.pct_of_peak_sustained_active"
CYCLES = ("sm__cycles_active.sum", "sm__cycles_elapsed.sum")
OPERATIONS = ("sm__ops_path_tensor_src_bf16_dst_fp32", "sm__ops_path_tensor_src_fp8")
FEW = 16  # ranges that there is room for
REPLAYED = 1.0  # what a counter of passes holds in the end, where each pass began from the same state


@dataclass(frozen=True)
class CountedWork:
    """Something to be counted: `kind` says what runs, `size` is that of a square product, of a kernel of ours its trips; `flops` are what
    it needs, `run` does it once and waits; `problem` says what is wrong with its result ("": nothing)."""

    kind: str
    precision: str
    size: int
    flops: int
    run: Callable[[], object]
    problem: Callable[[], str]


@dataclass(frozen=True)
class DeviceNumber:
    """A number in the GPU's memory that grows by 1: what a checkpoint must bring back."""

    grow: Callable[[], object]
    reset: Callable[[], object]
    value: Callable[[], float]


def main(stage: str, folder: str) -> None:
    """Run a stage ("products", "passes", "user"); what forbids counting is told as `refused`, with what is known of this machine."""
    torch = torch_or_none()
    library, place = find(), Path(folder)
    tell(load=OWN if torch is None else PYTORCH)
    try:
        device = prepared_device(torch)
        if stage == "user":
            user(torch_number(torch) if device is None else own_number(device), library, place)
        else:
            works = torch_works(torch) if device is None else own_works(device)
            (products if stage == "products" else passes)(works, library, place)
    except UllageError as error:
        tell(**refusal(error))


def prepared_device(torch: Any) -> Device | None:
    """Have a context made, and return the device by the driver's own functions; None where PyTorch works on it."""
    if torch is None:
        return Device()
    torch.zeros(1, device="cuda")
    return None


def torch_works(torch: Any) -> Iterator[CountedWork]:
    """Yield products by PyTorch; one that can't be made says so when its problem is asked."""
    for precision, size in PRODUCTS:
        made, problem = _product(torch, precision, size)
        run = partial(_run_and_wait, partial(_run_product, made), torch.cuda.synchronize)
        yield CountedWork("product", precision, size, 2 * size**3, run, partial(str, problem))


def _run_product(made: Any) -> None:
    made.run()


def _run_and_wait(run: Callable[[], object], wait: Callable[[], object]) -> None:
    run()
    wait()


def _product(torch: Any, precision: str, size: int) -> tuple[Any, str]:
    try:
        made = product(torch, TiledProduct(size, size, size), precision)
        return made, made.wrong() or ""
    except Exception as error:  # what one type lacks, the next may have
        return None, f"{type(error).__name__}: {str(error)[:200]}"


def own_works(device: Device) -> Iterator[CountedWork]:
    """Yield the tensor-core kernels of ours, each for few trips and for many; why one is missing is told."""
    kernels, missing = tensor_kernels(device)
    tell(missing=missing)
    for kernel in kernels:
        for trips in TRIPS:
            run = partial(_run_and_wait, partial(kernel.launch, trips), device.wait)
            yield CountedWork(kernel.name, kernel.precision, trips, kernel.flops * trips, run, kernel.problem)


def torch_number(torch: Any) -> DeviceNumber:
    """Return a number of PyTorch's."""
    number, wait = torch.zeros(1, device="cuda"), torch.cuda.synchronize
    grow, reset = partial(_run_and_wait, lambda: number.add_(1), wait), partial(_run_and_wait, number.zero_, wait)
    return DeviceNumber(grow, reset, lambda: float(number.item()))


def own_number(device: Device) -> DeviceNumber:
    """Return a number that a kernel of ours grows."""
    there, function = device.room(4), device.function(device.module(INCREMENT_PTX), "increment")
    return DeviceNumber(
        partial(_run_and_wait, partial(device.launch, function, 1, 1, there), device.wait),
        lambda: device.copy(there, (ctypes.c_uint32 * 1)()),
        lambda: float(device.fetch((ctypes.c_uint32 * 1)(), there)[0]),
    )


def products(works: Iterator[CountedWork], library: Library, folder: Path) -> None:
    """Count the tensor operations of works, a kernel at a time, in one pass; keep the last one's image and values."""
    chosen = known(library, [ELAPSED, ACTIVE, *CYCLES, *(f"{name}.sum" for name in OPERATIONS)])
    rows: list[dict[str, Any]] = []
    for work in works:
        about = {"kind": work.kind, "precision": work.precision, "size": work.size}
        if problem := work.problem():
            rows.append({**about, "problem": problem})
            continue
        with Ranges(chosen, most=FEW, library=library) as counted:
            work.run()
        rows.append({**about, **judged(counted.values(), work.flops), "passes": counted.planned, "problem": work.problem() or None})
        keep(counted, library, folder / "products")
        tell(rows=rows)
    tell(rows=rows)


def known(library: Library, metrics: Sequence[str]) -> list[str]:
    """Return those of some metrics that this machine's GPU has."""
    names = set(base_names(library))
    return [metric for metric in metrics if metric.partition(".")[0] in names]


def base_names(library: Library) -> list[str]:
    """Return the names of all that this machine's GPU counts over ranges."""
    target.begin(library)
    with Host(library, target.chip_name(library, 0), Use.RANGES) as host:
        return [name for kind in range(3) for name in host.names(kind)]


def judged(values: Values, needed: int) -> dict[str, Any]:
    """Return what was counted beside what a product needs, and by how much the shares of tensor cycles contradict one another.

    The share of elapsed cycles is that of active ones times how many of the elapsed are active.
    """
    rows = [values.row(index) for index in range(len(values.ranges))]
    counted = sum(amount for row in rows for amount in flops(row).values() if math.isfinite(amount))
    largest: Mapping[str, float] = max(rows, key=lambda row: row.get(CYCLES[1], 0.0), default={})
    identity = None
    if all(largest.get(name) for name in (ELAPSED, ACTIVE, *CYCLES)):
        identity = largest[ELAPSED] / (largest[ACTIVE] * largest[CYCLES[0]] / largest[CYCLES[1]]) - 1
    return {"kernels": len(rows), "counted": counted, "needed": needed, "identity": identity, "tensor_active": largest.get(ELAPSED)}


def keep(counted: Ranges, library: Library, place: Path) -> None:
    """Write the image of counter data, and what this machine makes of it, for others to make the same of."""
    keep_image(counted.image(), library, place, counted.values())


def keep_image(image: CounterImage, library: Library, place: Path, values: Values | None = None) -> None:
    """Write an image and its values: those that were given, and those that it gives when it is evaluated again."""
    again = evaluate(image, library)
    place.with_suffix(".image").write_bytes(image.packed())
    told: dict[str, Any] = {"chip": image.chip, "version": image.version, "metrics": again.metrics, "ranges": again.ranges}
    told |= {"values": _plain(values or again), "again": _plain(again)}
    place.with_suffix(".json").write_text(json.dumps(told))


def _plain(values: Values) -> list[list[float | None]]:
    return [[value if math.isfinite(value) else None for value in row] for row in values.values.tolist()]


def passes(works: Iterator[CountedWork], library: Library, folder: Path) -> None:
    """Count all that Ullage wants to know of a kernel, which takes several passes, by kernel replay."""
    chosen = wanted("kernel", base_names(library))
    work = next(work for work in works if not work.problem())
    work.run()
    with Ranges(list(chosen.values()), most=FEW, library=library) as counted:
        work.run()
    values = counted.values()
    unknown = [name for name, metric in chosen.items() if metric not in values.row(0)]
    keep(counted, library, folder / "passes")
    tell(planned=counted.planned, metrics=len(chosen), unknown=unknown, kernel={n: values.row(0).get(m) for n, m in chosen.items()})


def user(number: DeviceNumber, library: Library, folder: Path) -> None:
    """Count a range of the program's own, replayed by the program, each pass from the state that a checkpoint holds."""
    chosen = list(wanted("kernel", base_names(library)).values())
    number.grow()
    number.reset()
    times, found = replayed(chosen, number.grow, library, Checkpoint())
    keep(found, library, folder / "user")
    tell(user_passes=times, user_planned=found.planned, user_ranges=found.values().ranges, user_result=number.value())


def replayed(metrics: Sequence[str], step: Callable[[], Any], library: Library, saved: Checkpoint, **options: Any) -> tuple[int, Ranges]:
    """Return how often a step ran to be counted as a range called "step", and the ranges; its effect on the device is that of one run."""
    times = 0
    with Ranges(metrics, range="user", replay="user", most=FEW, library=library, **options) as counted, saved:
        for number in counted.passes():
            if number:
                saved.restore()
            with counted.range("step"):
                step()
            times += 1
    return times, counted
