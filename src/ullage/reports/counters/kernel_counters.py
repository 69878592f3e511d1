"""What each kernel of a program executed, by its counters, and how near that came to its roof."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ullage.cupti.counters.evaluate import Values
from ullage.cupti.counters.wanted import KERNEL
from ullage.cupti.counters.work import TensorWork, tensor_work, vector_flops
from ullage.errors import UllageError
from ullage.gpus.chip import Chip
from ullage.gpus.measured import Ceilings
from ullage.kernels.mangled import readable
from ullage.kernels.sass.ceilings import legacy
from ullage.metrics.metric import ratio
from ullage.metrics.roofline import arithmetic_intensity, roof_efficiency
from ullage.views.shown import ShownByView

_MEMORY = "global memory"  # as measured ceilings call it
_OPCODES = {"fp16": "HMMA.16816.F32", "bf16": "HMMA.16816.F32.BF16", "tf32": "HMMA.1688.F32.TF32", "int8": "IMMA.16832.S8.S8"}


@dataclass(frozen=True)
class CountedKernel:
    """A kernel by name: all its counted launches together.

    `time` in s; `flops` by precision (vector pipes under "fp32 vector" and the like); `legacy_share` is the share of its tensor FLOPs by
    warp-level instructions, None where the counters don't tell; `bytes` of device memory. `roof_time` is the least time that its work
    could take, `bound` what it would wait for then ("tensor", "memory"); `achieved` is that over its time. None is not known.
    """

    name: str
    launches: int
    time: float
    flops: Mapping[str, float]
    legacy_share: float | None
    bytes: float | None
    intensity: float | None
    tensor_active: float | None
    sm_active: float | None
    roof_time: float | None
    bound: str
    achieved: float | None

    @property
    def tensor_flops(self) -> float:
        """Its tensor FLOPs of all precisions."""
        return sum(value for name, value in self.flops.items() if " " not in name)


@dataclass(frozen=True)
class KernelCounters(ShownByView, view="ullage.render.kernel_counters"):
    """The kernels, the longest first; `time` of all (s), the GPU, by whose ceilings, and notes."""

    kernels: tuple[CountedKernel, ...]
    time: float
    gpu: str
    ceilings: str
    notes: tuple[str, ...]

    @property
    def achieved(self) -> float | None:
        """The least time of all kernels whose roof is known over the time that they took."""
        known = [kernel for kernel in self.kernels if kernel.roof_time is not None]
        return roof_efficiency(sum(k.roof_time or 0 for k in known), sum(k.time for k in known)) if known else None


def kernel_counters(
    values: Iterable[Values], chip: Chip | None, measured: Ceilings | None = None, notes: Sequence[str] = ()
) -> KernelCounters:
    """Return the kernels of what was evaluated, a row a launch. Without a `chip` no roof is known.

    The roof: tensor FLOPs at the peak of their precision, those of legacy instructions at what these can reach; bytes at the device
    memory's bandwidth. `measured` ceilings of this GPU go before the maker's. Raises UllageError where no launch was counted.
    """
    rows: dict[str, list[dict[str, float]]] = {}
    for found in values:
        for index, name in enumerate(found.ranges):
            rows.setdefault(name, []).append(found.row(index))
    if not rows:
        raise UllageError("no kernel was counted", "did the program launch one? `ullage cupti check` says what stands in the way")
    shown = readable(rows)
    roofs = Roofs(chip, measured)
    kernels = sorted((_kernel(shown[name], launches, roofs) for name, launches in rows.items()), key=lambda kernel: -kernel.time)
    gpu = measured.gpu if measured is not None else chip.name if chip is not None else ""
    said = [chip.warning] if chip is not None and chip.warning else []
    return KernelCounters(tuple(kernels), sum(kernel.time for kernel in kernels), gpu, roofs.told, (*notes, *said))


@dataclass(frozen=True)
class Roofs:
    """What a GPU can do at most: FLOP/s by precision and instruction, B/s of its memory."""

    chip: Chip | None
    measured: Ceilings | None = None

    @property
    def told(self) -> str:
        """By whose word."""
        if self.measured is not None:
            return f"measured on this model ({self.measured.date[:10]}), else the maker's"
        return "the maker's peaks" if self.chip is not None else "not known"

    def flops(self, part: TensorWork) -> float | None:
        """The ceiling of some tensor work in FLOP/s; None for a precision without a peak."""
        chip, peak = self.chip, self._peak(part.precision)
        if chip is None or peak is None:
            return peak
        stated = chip.peak(part.precision) if part.precision in chip.precisions else peak
        architecture = f"sm_{chip.compute_capability.replace('.', '')}"
        share = legacy(_OPCODES.get(part.precision, ""), architecture).fraction if part.legacy else None
        if share is not None:
            return stated * share
        return 2 * stated if part.sparse else peak

    def bandwidth(self) -> float | None:
        """The memory's bandwidth in B/s."""
        if self.measured is not None and _MEMORY in self.measured.bandwidth:
            return self.measured.bandwidth[_MEMORY].value
        return None if self.chip is None else self.chip.bandwidth

    def _peak(self, precision: str) -> float | None:
        if self.measured is not None and precision in self.measured.flops:  # of a burst: so is a kernel by itself
            return self.measured.flops[precision].value
        return self.chip.peak(precision) if self.chip is not None and precision in self.chip.precisions else None


def _kernel(name: str, launches: Sequence[Mapping[str, float]], roofs: Roofs) -> CountedKernel:
    sums = _sums(launches)
    quantities = {quantity: sums[metric] for quantity, metric in _metrics(sums)}
    time = quantities.get("time", 0.0) / 1e9
    parts = tensor_work(sums)
    moved = [quantities[name] for name in ("dram_read", "dram_written") if name in quantities]
    traffic = sum(moved) if len(moved) == 2 else None
    flops = _by_precision(parts) | vector_flops(sums)
    roof, bound = _roof(parts, traffic, roofs)
    return CountedKernel(
        name=name,
        launches=len(launches),
        time=time,
        flops=flops,
        legacy_share=_legacy_share(parts),
        bytes=traffic,
        intensity=None if traffic is None else arithmetic_intensity(sum(flops.values()), traffic),
        tensor_active=_mean(launches, "tensor_active"),
        sm_active=_mean(launches, "sm_active"),
        roof_time=roof,
        bound=bound,
        achieved=None if roof is None else roof_efficiency(roof, time),
    )


def _sums(launches: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the amounts of all launches together; a metric that one launch lacks is not known of all."""
    common = set.intersection(*(set(launch) for launch in launches))
    return {name: math.fsum(launch[name] for launch in launches) for name in sorted(common)}


def _metrics(known: Iterable[str]) -> Iterator[tuple[str, str]]:
    held = set(known)
    for quantity in KERNEL:
        metric = next((name for name in quantity.metrics if name in held), None)
        if metric is not None:
            yield quantity.name, metric


def _mean(launches: Sequence[Mapping[str, float]], quantity: str) -> float | None:
    """Return the mean of a share over the kernel's time, not over its launches."""
    names = dict(_metrics(launches[0]))
    share, duration = names.get(quantity), names.get("time")
    if share is None or duration is None or any(share not in launch or duration not in launch for launch in launches):
        return None
    weighted = math.fsum(launch[share] / 100 * launch[duration] for launch in launches)
    return _plain(ratio(weighted, math.fsum(launch[duration] for launch in launches)))


def _plain(value: Any) -> float | None:
    return None if value is None else float(value)


def _by_precision(parts: Sequence[TensorWork]) -> dict[str, float]:
    found: dict[str, float] = {}
    for part in parts:
        if part.flops:
            found[part.precision] = found.get(part.precision, 0) + part.flops
    return found


def _legacy_share(parts: Sequence[TensorWork]) -> float | None:
    told = [part for part in parts if part.flops]
    if not told or any(part.legacy is None for part in told):
        return None
    return _plain(ratio(math.fsum(part.flops for part in told if part.legacy), math.fsum(part.flops for part in told)))


def _roof(parts: Sequence[TensorWork], traffic: float | None, roofs: Roofs) -> tuple[float | None, str]:
    """Return the least time that tensor work and traffic could take (s), and which of them takes it."""
    bandwidth = roofs.bandwidth()
    ceilings = [(part.flops, roofs.flops(part)) for part in parts if part.flops]
    if traffic is None or bandwidth is None or any(ceiling is None for _, ceiling in ceilings):
        return None, ""
    computing, moving = math.fsum(flops / ceiling for flops, ceiling in ceilings if ceiling), traffic / bandwidth
    return max(computing, moving), "tensor" if computing > moving else "memory"
