"""Mistakes about the denominator: sparse peaks, another precision's, another GPU's."""

from __future__ import annotations

from collections.abc import Callable

from ullage.audit.mistakes.mistake import MISTAKES, AuditedJob, Mistake, mistake
from ullage.gpus.chip import find
from ullage.gpus.precision import PRECISIONS

_TABLE = "the peak that the framework divides by: `ullage audit peaks`"

# GPUs that people run on, and whose figures stand in frameworks' tables for others'
_COMMON = ("A100 SXM", "H100 SXM", "H100 PCIe", "H100 NVL", "H200 SXM", "H20", "L40S", "B200", "GB200")

_USUAL = ("bf16", "fp16", "fp8", "tf32")  # in which frameworks train


@mistake("sparse_peak", about="peak", says="the peak is the one with sparsity, twice the dense one", decides=_TABLE, weight=3)
def sparse_peak(case: AuditedJob) -> float | None:  # noqa: ARG001 - it can be made on every model
    """Megatron-LM#1565, pytorch-lightning#21743: makers print the doubled figure first."""
    return 0.5


@mistake("peak_halved", about="peak", says="the dense peak is halved, as if it were the one with sparsity", decides=_TABLE)
def peak_halved(case: AuditedJob) -> float | None:  # noqa: ARG001 - it can be made on every model
    """OLMo-core#614: the A100's 312 TFLOP/s taken as 156."""
    return 2.0


def _of_precision(precision: str) -> Callable[[AuditedJob], float | None]:
    def factor(case: AuditedJob) -> float | None:
        if case.chip is None or precision == case.precision or precision not in case.chip.precisions:
            return None
        return case.chip.peak(case.precision) / case.chip.peak(precision)

    return factor


def _of_chip(name: str) -> Callable[[AuditedJob], float | None]:
    def factor(case: AuditedJob) -> float | None:
        other = find(name, {})
        if case.chip is None or other is case.chip or case.precision not in other.precisions:
            return None
        return case.chip.peak(case.precision) / other.peak(case.precision)

    return factor


for _precision in PRECISIONS:
    MISTAKES.add(
        f"peak_of_{_precision}",
        Mistake(
            f"peak_of_{_precision}",
            "peak",
            f"the peak is that of {_precision.upper()}",
            _TABLE,
            1.0 if _precision in _USUAL else 0.2,
            _of_precision(_precision),
        ),
    )
for _chip in _COMMON:
    MISTAKES.add(
        f"peak_of_{_chip.replace(' ', '_')}",
        Mistake(f"peak_of_{_chip.replace(' ', '_')}", "peak", f"the peak is that of another GPU, {_chip}", _TABLE, 0.3, _of_chip(_chip)),
    )
