"""What each kernel executed, as text and as plain data."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ullage.errors import harmless
from ullage.reports.kernel_counters import Kernel, KernelCounters
from ullage.views.numbers import UNKNOWN, factor, percent
from ullage.views.table import table
from ullage.views.times import seconds

SHOWN = 12
NAME = 60


def text(report: KernelCounters, top: int = SHOWN) -> str:
    """Return the report as text: the answer first, then a row a kernel, the longest first."""
    launches = sum(kernel.launches for kernel in report.kernels)
    reached = "how near they came to their roofs is not known" if report.achieved is None else f"{percent(report.achieved)} of their roofs"
    head = f"{launches:,} launches of {len(report.kernels):,} kernels, {seconds(round(report.time * 1e9))}: {reached}"
    on = f"counted on {report.gpu or 'an unknown GPU'}; roofs: {report.ceilings}"
    columns = ["kernel", "launches", "time", "FLOPs", "legacy", "FLOP/B", "tensor", "SM", "FLOP/s", "of roof", "bound"]
    shown = [_row(kernel) for kernel in report.kernels[:top]]
    more = [f"… {len(report.kernels) - top:,} more kernels"] if len(report.kernels) > top else []
    notes = [f"note: {harmless(note, 1000)}" for note in report.notes]
    return "\n".join([head, on, "", table(columns, shown, left=1), *more, *(["", *notes] if notes else [])]) + "\n"


def _row(kernel: Kernel) -> list[str]:
    rate = kernel.tensor_flops / kernel.time if kernel.time and kernel.tensor_flops else None
    work = " + ".join(f"{amount(value)} {name}" for name, value in kernel.flops.items() if value and " " not in name)
    return [
        harmless(kernel.name, NAME), f"{kernel.launches:,}", seconds(round(kernel.time * 1e9)), work or "–", _share(kernel.legacy_share),
        UNKNOWN if kernel.intensity is None else f"{kernel.intensity:.3g}", _share(kernel.tensor_active), _share(kernel.sm_active),
        UNKNOWN if rate is None else amount(rate), UNKNOWN if kernel.achieved is None else factor(kernel.achieved), kernel.bound or UNKNOWN,
    ]  # fmt: skip


def _share(value: float | None) -> str:
    return UNKNOWN if value is None else percent(value)


def amount(value: float) -> str:
    """Return a count or a rate with its prefix.

    >>> amount(2.147e12), amount(950.0)
    ('2.15 T', '950')
    """
    for prefix, size in (("E", 1e18), ("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {prefix}"
    return f"{value:.3g}"


def record(report: KernelCounters) -> dict[str, Any]:
    """Return the report as plain data: s, FLOPs, bytes, ratios; null is not known."""
    return asdict(report) | {"achieved": report.achieved}
