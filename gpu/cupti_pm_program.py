"""The program that samples the device's counters during a steady product, and looks at clocks and durations meanwhile."""

from __future__ import annotations

import importlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from gpu.apart import tell
from gpu.cupti_counters_program import keep_image
from gpu.cupti_device import Device
from gpu.cupti_tools import refusal
from gpu.load import gemm
from gpu.machine import Machine, machine, torch_or_none
from gpu.telemetry import mean, watched
from gpu.tensor_kernels import steady_load, tensor_kernels
from ullage.cupti.counters import target
from ullage.cupti.counters.host import Host, Use
from ullage.cupti.counters.images import CounterImage
from ullage.cupti.counters.pm import MILLISECOND, Keep, Samples, Sampling
from ullage.cupti.counters.wanted import DEVICE, wanted
from ullage.cupti.library import Library, find
from ullage.cupti.results import CuptiError
from ullage.errors import UllageError
from ullage.live import session

SIZE, SECONDS, SETTLE = 8192, 2.0, 2.0
MIB = 1 << 20
# Ways to sample that are tried: which samples stay when the hardware's buffer runs over, its bytes, seconds between two readings (0: none
# until the end), and for how long.
WAYS: tuple[tuple[Keep, int, float, float], ...] = (
    ("oldest", 8 * MIB, 0.02, 0.5), ("oldest", 64 * MIB, 0.02, 2.5), ("latest", 64 * MIB, 0.02, 2.5), ("latest", 8 * MIB, 0.0, 0.5),
    ("oldest", 512 * MIB, 0.0, 0.5),
)  # fmt: skip
LARGE = 512 * MIB  # bytes of the buffer in the windows: enough for two seconds, whatever a sample takes
POLL = 0.02  # seconds between two readings of the clock, and between two of the samples
KERNELS, EACH = 20, 2000  # kernels that are traced while the counters are sampled, and how long each is, µs
FEW = 64  # samples in the image that is kept


def main(stage: str, folder: str) -> None:
    """Run a stage: "product" (the device's counters during a steady load) or "traced" (kernels recorded while they are sampled)."""
    library = find()
    try:
        (product if stage == "product" else traced)(library, Path(folder))
    except UllageError as error:
        tell(**refusal(error))


def product(library: Library, folder: Path) -> None:
    """Tell, for windows without sampling, with GPM, with PM sampling, with both and without again, what was seen; then, for each way in
    which the hardware keeps samples, how many come while it samples and how many only afterwards."""
    torch, nvml = torch_or_none(), importlib.import_module("pynvml")
    one = machine(nvml, torch)
    with steady(torch) as work:
        metrics = chosen(library)
        windows: dict[str, Callable[[], dict[str, Any]]] = {
            "before": rest,
            "gpm": lambda: gpm(one),
            "pm": lambda: sampled(library, metrics, rest, buffer=LARGE),
            "both": lambda: sampled(library, metrics, lambda: gpm(one), buffer=LARGE),
            "after": rest,
        }
        time.sleep(SETTLE)
        for name, look in windows.items():
            begin = time.time()
            with clocks(one) as seen:
                facts = look()
            bursts = [end - start for start, end in work.bursts if start > begin]
            facts |= {"clock": _mean(seen), "clock_low": min(seen, default=None), "burst": _mean(bursts), "bursts": len(bursts)}
            tell(**{name: facts})
        keep(library, metrics, folder)
        tell(ways=[delivered(library, metrics, *way, gpu=one) for way in WAYS])


@contextmanager
def steady(torch: Any) -> Iterator[Any]:
    """Keep the GPU busy: with products by PyTorch, or with a tensor-core kernel of ours where that is missing."""
    if torch is not None:
        torch.zeros(1, device="cuda")
        tell(load=f"products of {SIZE} in BF16 by PyTorch")
        with gemm(torch, SIZE) as work:
            yield work
        return
    device = Device()
    kernel = tensor_kernels(device)[0][0]
    tell(load=f"{kernel.name} in a kernel of ours")
    with steady_load(device, kernel) as bursts:
        yield bursts


def rest() -> dict[str, Any]:
    """Let the product go on by itself."""
    time.sleep(SECONDS)
    return {}


def chosen(library: Library) -> dict[str, str]:
    """Return the device's metrics that this GPU samples, by quantity."""
    target.begin(library)
    with Host(library, target.chip_name(library, 0), Use.SAMPLING) as host:
        return wanted("device", [name for kind in range(3) for name in host.names(kind)])


@contextmanager
def clocks(one: Machine) -> Iterator[list[float]]:
    """Yield the SM clock in Hz as NVML tells it again and again while the body runs."""
    seen: list[float] = []
    over = threading.Event()

    def poll() -> None:
        while not over.wait(POLL):
            told = one.ask("nvmlDeviceGetClockInfo", one.handle, one.nvml.NVML_CLOCK_SM)
            seen.extend([] if told is None else [1e6 * told])

    thread = threading.Thread(target=poll, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join(5)


def gpm(one: Machine) -> dict[str, Any]:
    """Return the means of what GPM tells for some seconds."""
    try:
        found = watched(one, SECONDS, 0.5)
    except Exception as error:  # said, and the other windows go on
        return {"gpm_problem": f"{type(error).__name__}: {error}"}
    return {f"gpm_{name}": mean(found, name) for name in ("tensor_active", "sm_active", "dram_active", "sm_clock")}


def sampled(library: Library, metrics: dict[str, str], during: Callable[[], Any], **options: Any) -> dict[str, Any]:
    """Return the means of the device's counters while something goes on."""
    parts: list[Samples] = []
    facts: dict[str, Any] = {}
    over = threading.Event()

    def go_on() -> None:
        try:
            facts.update(during())
        finally:
            over.set()

    try:
        with Sampling(list(metrics.values()), interval=MILLISECOND, library=library, **options) as sampling:
            threading.Thread(target=go_on, daemon=True).start()
            while not over.wait(POLL):
                parts.append(sampling.drain())
        parts.append(sampling.drain())
    except UllageError as error:
        return {**facts, "pm_problem": error.problem, "taken": isinstance(error, CuptiError) and error.counters_taken}
    return {**facts, **summed(parts, metrics), "keep": sampling.setting.keep, "buffer": sampling.setting.buffer, **refusals(sampling)}


def refusals(sampling: Sampling) -> dict[str, Any]:
    """Return what CUPTI answered to the settings that it did not take."""
    said = [f"{one.setting.keep}, {one.setting.buffer} B: {one.error.function} answered {one.error.code}" for one in sampling.refused]
    return {"settings_refused": "; ".join(said)} if said else {}


def delivered(
    library: Library, metrics: dict[str, str], keep: Keep, buffer: int, every: float, seconds: float, gpu: Machine | None = None
) -> dict[str, Any]:
    """Return how many samples came by one way to keep and to read them, every millisecond, while it sampled and after it stopped; when the
    buffer ran over (s); and by how many bytes the memory in use grew, the GPU's and the program's."""
    facts: dict[str, Any] = {"keep": keep, "buffer": buffer, "every": every, "seconds": seconds}
    before, parts = memory(gpu), list[Samples]()
    try:
        with Sampling(list(metrics.values()), interval=MILLISECOND, keep=keep, buffer=buffer, library=library) as sampling:
            facts |= {"buffer": sampling.setting.buffer, **refusals(sampling)}
            begin = time.monotonic()
            while (spent := time.monotonic() - begin) < seconds:
                time.sleep(every or seconds - spent)
                parts += [sampling.drain()] if every else []
                if parts and parts[-1].overflow:
                    facts["overflow"] = time.monotonic() - begin
                    break
            facts |= {f"{name}_grew": after - before[name] for name, after in memory(gpu).items()}
        rest = sampling.drain()
        if rest.overflow:
            facts.setdefault("overflow", seconds)
        facts |= {"during": sum(map(len, parts)), "after": len(rest)}
    except CuptiError as error:
        facts["refused"] = f"{error.function} answered {error.code}"
    return facts


def memory(gpu: Machine | None) -> dict[str, int]:
    """Return the bytes that are in use: the GPU's, where there is one to ask, and the program's own."""
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
    told = gpu.ask("nvmlDeviceGetMemoryInfo", gpu.handle) if gpu is not None else None
    return {"host": resident} | ({} if told is None else {"gpu": int(told.used)})


def summed(parts: list[Samples], metrics: dict[str, str]) -> dict[str, Any]:
    """Return the means over time of what was sampled, in Ullage's units, how many samples came, their length and their gaps (ns)."""
    held = [part for part in parts if len(part)]
    facts: dict[str, Any] = {"overflow": any(part.overflow for part in parts), "full": any(part.full for part in parts)}
    if not held:
        return {"samples": 0, **facts}
    start, end = (np.concatenate([getattr(part, name) for part in held]) for name in ("start", "end"))
    values, lengths = np.concatenate([part.values for part in held]), (end - start).astype(float)
    scale = {quantity.name: quantity.scale for quantity in DEVICE}
    for index, name in enumerate(metrics):
        good = np.isfinite(values[:, index])
        if good.any():
            facts[f"pm_{name}"] = float(np.average(values[good, index], weights=lengths[good]) * scale.get(name, 1.0))
    gaps = start[1:] - end[:-1]
    told = {"samples": len(start), "untimed": sum(part.untimed for part in parts), "length": float(np.median(lengths))}
    return {**facts, **told, "gap": int(gaps.max()) if len(gaps) else 0, "span": int(end[-1] - start[0])}


def keep(library: Library, metrics: dict[str, str], folder: Path) -> None:
    """Write a small image of samples, and what this machine makes of it."""
    try:
        with Sampling(list(metrics.values()), interval=MILLISECOND, room=FEW, library=library) as sampling:
            time.sleep(FEW / 2 * MILLISECOND / 1e9)
            image: CounterImage = sampling.image()
        keep_image(image, library, folder / "pm")
    except UllageError as error:
        tell(image_problem=error.problem)


def traced(library: Library, folder: Path) -> None:
    """Record kernels while the counters are sampled, and tell how many were launched."""
    device = Device()
    device.spin(EACH)
    device.wait()
    session.start(folder)
    told = sampled(library, chosen(library), lambda: _spins(device))
    session.detach()
    tell(traced={"launched": KERNELS, **told})


def _spins(device: Device) -> dict[str, Any]:
    device.ask("cuCtxSetCurrent", device.context)
    for _ in range(KERNELS):
        device.spin(EACH)
    device.wait()
    return {}


def _mean(values: list[float]) -> float | None:
    return float(np.mean(values)) if values else None
