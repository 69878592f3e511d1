"""VeRL-Omni's counter of diffusion models under its names, with exact FLOPs and with a peak that is right or NaN.

What counts is `ullage.models.diffusion`; here are the device's peak, the gather over data-parallel ranks, and MFU.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from ullage.adapters import ranks
from ullage.adapters.notes import LOG, Notes
from ullage.adapters.verl import metrics, mfu, promised_tflops
from ullage.errors import UllageError
from ullage.gpus import overrides
from ullage.models import diffusion
from ullage.models.diffusion import (
    DiffusionModelFlops,
    QwenImageFlops,
    collect_diffusion_flops_meta,
    diffusion_architectures,
    get_forward_passes_per_step,
    register_diffusion_architecture,
)

__all__ = [
    "DiffusionFlopsCounter",
    "DiffusionModelFlops",
    "QwenImageFlops",
    "allgather_diffusion_flops_meta",
    "collect_diffusion_flops_meta",
    "diffusion_architectures",
    "get_device_peak_tflops",
    "get_forward_passes_per_step",
    "metrics",
    "mfu",
    "register_diffusion_architecture",
]

OVERRIDE = "VERL_OMNI_DEVICE_FLOPS_TFLOPS"
LENGTHS = ("latent_seqlens", "prompt_seqlens")


def get_device_peak_tflops() -> float:
    """Return the dense BF16 TFLOP/s of this process's GPU, NaN where nobody knows it.

    Asked in this order: VERL_OMNI_DEVICE_FLOPS_TFLOPS, ULLAGE_PEAK_TFLOPS, the tables by the driver's name. One that is no
    number is said once in the log, and passed over.
    """
    return _peak(os.environ.get(OVERRIDE, ""), os.environ.get(overrides.PEAK, ""), os.environ.get(overrides.ALIAS, ""))


@lru_cache(maxsize=16)  # asked every step; a changed variable is asked anew
def _peak(given: str, *others: str) -> float:
    del others
    try:
        if "bf16" in (peaks := overrides.peaks(given)):
            return peaks["bf16"] / 1e12
    except UllageError as error:
        LOG.warning("ullage: %s is passed over: %s", OVERRIDE, error.problem)
    return promised_tflops()


class VerlOmniFlopsCounter(diffusion.DiffusionFlopsCounter):
    """The FLOPs of a diffusion trainer's steps, with this device's peak where no other is given.

    Raises UllageError for an architecture that nobody registered: before the first step, never at one.

    >>> config = dict(patch_size=2, in_channels=64, num_layers=1, attention_head_dim=16, num_attention_heads=3, joint_attention_dim=40)
    >>> counter = VerlOmniFlopsCounter("QwenImagePipeline", config, peak=989.4)
    >>> counter.estimate_flops([4096], [128], 2.0, num_timesteps=10, num_forward_passes=2)[1]
    989.4
    """

    def __init__(
        self,
        architecture: str | None,
        transformer_config: Mapping[str, Any] | None,
        peak: diffusion.Peak | None = get_device_peak_tflops,
    ) -> None:
        super().__init__(architecture, transformer_config, peak)
        self._notes = Notes()

    def estimate_flops(
        self,
        latent_seqlens: Sequence[int],
        prompt_seqlens: Sequence[int],
        delta_time: float,
        *,
        num_timesteps: int = 1,
        num_forward_passes: int = 1,
    ) -> tuple[float, float | None]:
        """Return (TFLOP/s of the step, TFLOP/s that a device promises); NaN for what can't be counted, said once in the log."""
        try:
            return super().estimate_flops(
                latent_seqlens, prompt_seqlens, delta_time, num_timesteps=num_timesteps, num_forward_passes=num_forward_passes
            )
        except UllageError as error:
            self._notes.say("step", error)
            return math.nan, self.promised()


DiffusionFlopsCounter = VerlOmniFlopsCounter  # what it is called in VeRL-Omni


def allgather_diffusion_flops_meta(meta: Mapping[str, Any], group: Any = None) -> dict[str, Any]:
    """Return what `collect_diffusion_flops_meta` said, with the lengths of all ranks of the data-parallel group.

    Every rank of the group must call this. Timesteps and forward passes are the same on all of them.
    """
    pairs = ranks.gathered(list(zip(*diffusion.paired(*(meta[name] for name in LENGTHS)), strict=True)), group)
    return {**meta, **{name: [pair[place] for pair in pairs] for place, name in enumerate(LENGTHS)}}
