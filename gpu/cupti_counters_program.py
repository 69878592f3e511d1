"""The program that counts products by CUPTI's ranges, in three stages, each started by itself."""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpu.apart import tell
from ullage.benches.products import product
from ullage.cupti.checkpoint import Checkpoint
from ullage.cupti.counters import target
from ullage.cupti.counters.evaluate import Values, evaluate
from ullage.cupti.counters.host import Host, Use
from ullage.cupti.counters.images import Image
from ullage.cupti.counters.ranges import Ranges
from ullage.cupti.counters.wanted import wanted
from ullage.cupti.counters.work import flops
from ullage.cupti.library import Library, find
from ullage.cupti.permissions import report
from ullage.cupti.results import CuptiError
from ullage.errors import UllageError
from ullage.kernels.tiling import Product

PRODUCTS = (("bf16", 1024), ("bf16", 4096), ("fp8", 1024), ("fp8", 4096))
TENSOR = "sm__pipe_tensor_cycles_active"
ELAPSED, ACTIVE = f"{TENSOR}.avg.pct_of_peak_sustained_elapsed", f"{TENSOR}.avg.pct_of_peak_sustained_active"
CYCLES = ("sm__cycles_active.sum", "sm__cycles_elapsed.sum")
OPERATIONS = ("sm__ops_path_tensor_src_bf16_dst_fp32", "sm__ops_path_tensor_src_fp8")
FEW = 16  # ranges that there is room for
REPLAYED = 1.0  # what a counter of passes holds in the end, where each pass began from the same state


def main(stage: str, folder: str) -> None:
    """Run a stage ("products", "passes", "user"); what forbids counting is told as `refused`, with what is known of this machine."""
    torch: Any = importlib.import_module("torch")
    torch.zeros(1, device="cuda")
    library = find()
    try:
        STAGES[stage](torch, library, Path(folder))
    except UllageError as error:
        code = error.code if isinstance(error, CuptiError) else None
        known = report()
        tell(
            refused=error.problem,
            code=code,
            hint=error.hint,
            counters=known["counters"],
            findings=[one["what"] for one in known["findings"]],
        )


def products(torch: Any, library: Library, folder: Path) -> None:
    """Count the tensor operations of products, a kernel at a time, in one pass; keep the last one's image and values."""
    chosen = known(library, [ELAPSED, ACTIVE, *CYCLES, *(f"{name}.sum" for name in OPERATIONS)])
    rows: list[dict[str, Any]] = []
    for precision, size in PRODUCTS:
        try:
            made = product(torch, Product(size, size, size), precision)
            problem = made.wrong()
        except Exception as error:  # what one type lacks, the next may have
            problem = f"{type(error).__name__}: {str(error)[:200]}"
        if problem:
            rows.append({"precision": precision, "size": size, "problem": problem})
            continue
        with Ranges(chosen, most=FEW, library=library) as counted:
            made.run()
            torch.cuda.synchronize()
        rows.append({"precision": precision, "size": size, **judged(counted.values(), 2 * size**3), "passes": counted.planned})
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


def keep_image(image: Image, library: Library, place: Path, values: Values | None = None) -> None:
    """Write an image and its values: those that were given, and those that it gives when it is evaluated again."""
    again = evaluate(image, library)
    place.with_suffix(".image").write_bytes(image.packed())
    told: dict[str, Any] = {"chip": image.chip, "version": image.version, "metrics": again.metrics, "ranges": again.ranges}
    told |= {"values": _plain(values or again), "again": _plain(again)}
    place.with_suffix(".json").write_text(json.dumps(told))


def _plain(values: Values) -> list[list[float | None]]:
    return [[value if math.isfinite(value) else None for value in row] for row in values.values.tolist()]


def passes(torch: Any, library: Library, folder: Path) -> None:
    """Count all that Ullage wants to know of a kernel, which takes several passes, by kernel replay."""
    chosen = wanted("kernel", base_names(library))
    made = product(torch, Product(4096, 4096, 4096), "bf16")
    made.run()
    torch.cuda.synchronize()
    with Ranges(list(chosen.values()), most=FEW, library=library) as counted:
        made.run()
        torch.cuda.synchronize()
    values = counted.values()
    unknown = [name for name, metric in chosen.items() if metric not in values.row(0)]
    keep(counted, library, folder / "passes")
    tell(planned=counted.planned, metrics=len(chosen), unknown=unknown, kernel={n: values.row(0).get(m) for n, m in chosen.items()})


def user(torch: Any, library: Library, folder: Path) -> None:
    """Count a range of the program's own, replayed by the program, each pass from the state that a checkpoint holds."""
    number = torch.zeros(1, device="cuda")
    chosen = list(wanted("kernel", base_names(library)).values())
    torch.cuda.synchronize()
    step: Callable[[], Any] = lambda: (number.add_(1), torch.cuda.synchronize())  # noqa: E731
    step()
    number.zero_()
    torch.cuda.synchronize()
    times, found = replayed(chosen, step, library, Checkpoint())
    keep(found, library, folder / "user")
    tell(user_passes=times, user_planned=found.planned, user_ranges=found.values().ranges, user_result=float(number.item()))


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


STAGES: dict[str, Callable[[Any, Library, Path], None]] = {"products": products, "passes": passes, "user": user}
