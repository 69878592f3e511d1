"""What each kernel of a program executed, by the GPU's counters."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ullage.gpus.chip import Chip
    from ullage.reports.counters.kernel_counters import KernelCounters


def kernels(
    files: Sequence[str | Path], gpu: str | None = None, *, cupti: str | Path | None = None, notes: Sequence[str] = ()
) -> KernelCounters:
    """Return the kernels that recordings of `ullage run --kernels` hold counters of.

    `gpu` is what they ran on, whose peaks make the roofs (without one no roof is known); measured ceilings of such a GPU, kept by `ullage
    bench --save`, go before its maker's. `cupti` is the library that evaluates: as new as the one that counted. Raises UllageError where
    nothing was counted, and where the library can't evaluate on this machine.
    """
    from ullage.cupti.library import find
    from ullage.gpus.measured import ceilings_of
    from ullage.live.counting import evaluated
    from ullage.problems import Problems
    from ullage.reports.counters.kernel_counters import kernel_counters

    problems = Problems()
    values = list(evaluated([Path(file) for file in files], find(cupti), problems))
    measured = ceilings_of(gpu) if gpu else None
    return kernel_counters(values, _chip(gpu), measured, [*notes, *problems.lines()])


def _chip(gpu: str | None) -> Chip | None:
    from ullage.errors import UllageError
    from ullage.gpus.chip import find

    try:
        return find(gpu) if gpu else None
    except UllageError:
        return None
