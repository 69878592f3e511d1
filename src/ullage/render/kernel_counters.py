"""The view of what each kernel executed."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, UnsetType

from ullage.reports.counters.kernel_counters import CountedKernel, KernelCounters
from ullage.views.declared import Document, Ratio, plain_data
from ullage.views.notation import COUNT, FACTOR, FIGURES, PERCENT, Notation
from ullage.views.numbers import amount, counted, percent
from ullage.views.times import seconds
from ullage.views.view import Column, Headline, Section, Table, Value, View

SHOWN = 12
TIME = Notation("s", lambda value: seconds(round(value * 1e9)))
INTENSITY = Notation("FLOP/B", lambda value: f"{value:.3g}")
RATE = Notation("FLOP/s", amount)


def view(report: KernelCounters) -> View:
    """Return the answer as data: how near the kernels came to their roofs, then a row a kernel, the longest first."""
    launches = sum(kernel.launches for kernel in report.kernels)
    about = f"{launches:,} launches of {counted(len(report.kernels), 'kernel')}, {TIME.words(report.time)}: "
    answer = Headline("how near they came to their roofs is not known", before=about)
    if report.achieved is not None:
        answer = Headline(percent(report.achieved), " of their roofs", about)
    columns = [Column("kernel", room=60), Column("launches", COUNT), Column("time", TIME), Column("FLOPs", FIGURES)]
    columns += [Column("legacy", PERCENT), Column("FLOP/B", INTENSITY), Column("tensor", PERCENT), Column("SM", PERCENT)]
    columns += [Column("FLOP/s", RATE), Column("of roof", FACTOR), Column("bound")]
    table = Table("kernels", columns, [_row(kernel) for kernel in report.kernels], brief=SHOWN)
    return View(
        kind="kernel-counters",
        subject="What each kernel executed",
        headline=answer,
        basis=[f"counted on {report.gpu or 'an unknown GPU'}; roofs: {report.ceilings}"],
        sections=[Section("kernels", "Kernels", [table], "The longest first.")],
        notes=report.notes,
    )


def _row(kernel: CountedKernel) -> list[Value]:
    rate = kernel.tensor_flops / kernel.time if kernel.time and kernel.tensor_flops else None
    work = " + ".join(f"{amount(value)} {name}" for name, value in kernel.flops.items() if value and " " not in name)
    return [
        kernel.name, kernel.launches, kernel.time, work or None, kernel.legacy_share, kernel.intensity,
        kernel.tensor_active, kernel.sm_active, rate, kernel.achieved, kernel.bound or None,
    ]  # fmt: skip


class KernelCountersDocument(Document):
    """What was counted of each kernel: s, FLOPs, bytes, ratios; `ullage run --counters` adds the program's `exit`."""

    kernels: list[CountedKernel]
    time: float
    gpu: str
    ceilings: str
    notes: list[str]
    achieved: Ratio | None
    exit: int | UnsetType = UNSET


def record(report: KernelCounters) -> dict[str, Any]:
    """Return the report as plain data; null is not known."""
    return plain_data(KernelCountersDocument, report)
