"""A simulated job of several precisions: which of its FLOPs run in which, the peak of that mixture, and the kernels that tell it.

Products with weights run partly in BF16 and partly in FP8 or TF32; attention's own run in BF16. The peak is the harmonic mean of the
precisions' peaks, weighted by executed FLOPs (OFU paper, eq. 12).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ullage.gpus.chip import find

if TYPE_CHECKING:
    from ullage.simulate.job import JobModel

NAMES = {
    "bf16": "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_TNT",
    "fp8": "nvjet_sm90_qqtst_128x256_128x4_2x1_v_bz_coopA_TNT",
    "tf32": "nvjet_sm90_sfs_128x256_32x4_2x1_v_bz_coopA_TNT",
}
ATTENTION = "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>>(flash::Flash_fwd_params)"


@dataclass(frozen=True)
class PrecisionMixture:
    """The precision `other` than BF16, and the share of the FLOPs of products with weights that run in it."""

    other: str
    share: float


@dataclass(frozen=True)
class PrecisionPart:
    """The kernels of one precision: their name, the share of a step's executed FLOPs, and the share of the time that all take.

    `precision` is None for attention, whose sizes nobody tells.
    """

    name: str
    precision: str | None
    flops: float
    time: float


def drawn(seed: int) -> PrecisionMixture:
    """Return the mixture of a seed, the same for the same seed."""
    random = np.random.Generator(np.random.PCG64([seed, 5]))
    return PrecisionMixture(str(random.choice(["fp8", "tf32"])), float(random.uniform(0.1, 0.9)))


def flops_by_precision(model: JobModel, mixture: PrecisionMixture | None) -> dict[str, float]:
    """Return a step's executed FLOPs by precision."""
    attention, executed = model.attention, model.flops[1]
    if mixture is None:
        return {"bf16": executed}
    other = (executed - attention) * mixture.share
    return {"bf16": executed - other, mixture.other: other}


def peak(model: JobModel, mixture: PrecisionMixture | None, gpu: str) -> float:
    """Return the peak of the mixture in FLOP/s: all FLOPs over the time that they take at the peaks of their precisions."""
    done = flops_by_precision(model, mixture)
    return sum(done.values()) / sum(flops / find(gpu).peak(precision) for precision, flops in done.items())


def parts(model: JobModel, mixture: PrecisionMixture, gpu: str) -> tuple[PrecisionPart, ...]:
    """Return what runs in place of a product of one precision; each takes time as its FLOPs do at its peak."""
    executed, done = model.flops[1], flops_by_precision(model, mixture)
    weights = {"bf16": done["bf16"] - model.attention, mixture.other: done[mixture.other]}
    each = [(NAMES[precision], precision, flops) for precision, flops in weights.items()]
    whole = executed / peak(model, mixture, gpu)
    return tuple(
        PrecisionPart(name, precision, flops / executed, flops / find(gpu).peak(precision or "bf16") / whole)
        for name, precision, flops in (*each, (ATTENTION, None, float(model.attention)))
    )
