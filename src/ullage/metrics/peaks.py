"""Peaks: what a chip can do, and what a run of several precisions could have done."""

from __future__ import annotations

from ullage.metrics.metric import Value, metric, ratio


@metric(unit="FLOP/s", source="OFU paper, eq. 5")
def peak(sms: Value, flops_per_cycle: Value, clock: Value) -> Value:
    """The most floating-point operations a chip can do in a second, dense, at one precision.

    `flops_per_cycle` is per SM; `clock` (Hz) is the one at which the tensor pipes run, which need not be the SM boost
    clock. A "with sparsity" figure is twice this one. Power limits are left out: many chips never reach it.

    H100 SXM at BF16: 132 × 4096 × 1.83 GHz (eq. 6).

    >>> round(peak(sms=132, flops_per_cycle=4096, clock=1.83e9) / 1e12, 1)
    989.4
    """
    return sms * flops_per_cycle * clock


@metric(unit="FLOP/s", source="OFU paper, eq. 12")
def effective_peak(flops_by_precision: Value, peaks: Value) -> Value:
    """The peak of a run that mixes precisions: the harmonic mean of their peaks, weighted by the FLOPs done in each.

    Both are mappings by precision; a precision without a peak raises KeyError. It lies between the lowest and the highest
    of the peaks and nearer to the low one, for slow FLOPs take more of the time. No FLOPs at all: no value.

    600 FLOPs at 2 FLOP/s take 300 s, 400 at 4 FLOP/s take 100 s: 1000 FLOPs in 400 s.

    >>> effective_peak({"bf16": 600, "fp8": 400}, {"bf16": 2, "fp8": 4})
    2.5
    """
    return ratio(sum(flops_by_precision.values()), sum(ratio(flops, peaks[precision]) for precision, flops in flops_by_precision.items()))
