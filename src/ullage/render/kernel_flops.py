"""The view of the FLOPs of each kernel by type."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, UnsetType

from ullage.reports.counters.kernel_flops import KernelFlops, ProgramFlops
from ullage.views.declared import Document, plain_data
from ullage.views.notation import COUNT, Notation
from ullage.views.numbers import amount, counted
from ullage.views.view import Column, Headline, Section, Table, Value, View

SHOWN = 12
FLOPS = Notation("FLOP", amount)
INSTRUCTIONS = Notation("instructions", amount)


def view(report: ProgramFlops) -> View:
    """Return the answer as data: what all kernels did by type, then a row a kernel, those with most instructions first."""
    kinds = sorted(report.flops)
    launches = sum(kernel.launches for kernel in report.kernels)
    about = f"{launches:,} launches of {counted(len(report.kernels), 'kernel')}: "
    words = " + ".join(f"{amount(report.flops[kind])} FLOP in {kind.upper()}" for kind in kinds if report.flops[kind])
    counted_any = any(kernel.flops or kernel.instructions is not None for kernel in report.kernels)
    columns = [Column("kernel", room=60), Column("launches", COUNT), Column("warp instructions", INSTRUCTIONS)]
    columns += [Column(kind.upper(), FLOPS) for kind in kinds]
    table = Table("kernels", columns, [_row(kernel, kinds) for kernel in report.kernels], brief=SHOWN)
    return View(
        kind="kernel-flops",
        subject="FLOPs of each kernel by type",
        headline=Headline(
            words or ("no floating point outside the tensor cores" if counted_any else "their FLOPs are not known"), before=about
        ),
        basis=[f"instructions counted on {', '.join(report.chips) or 'an unknown chip'}; products of tensor cores are not among the FLOPs"],
        sections=[Section("kernels", "Kernels", [table], "Those with most instructions first.")],
        notes=report.notes,
    )


def _row(kernel: KernelFlops, kinds: list[str]) -> list[Value]:
    return [kernel.name, kernel.launches, kernel.instructions, *(kernel.flops.get(kind) for kind in kinds)]


class KernelFlopsDocument(Document):
    """FLOPs of each kernel by type, of its vector instructions; `ullage run --flops` adds the program's `exit`."""

    kernels: list[KernelFlops]
    flops: dict[str, float]
    chips: list[str]
    notes: list[str]
    exit: int | UnsetType = UNSET


def record(report: ProgramFlops) -> dict[str, Any]:
    """Return the report as plain data; null is not known."""
    return plain_data(KernelFlopsDocument, report)
