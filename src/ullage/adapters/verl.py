"""verl's counter with exact FLOPs: the same call, the same keys. VERL_USE_EXTERNAL_MODULES=ullage.adapters.verl_plugin puts it in place.

verl counts the embedding's look-up as a product, and leaves other work out; what it would print for a configuration is
`ullage flops --as verl`. An architecture or a GPU that nobody knows gives NaN: neither 0 nor a generic formula.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from ullage.adapters import ranks
from ullage.adapters.device import known_gpu
from ullage.adapters.meter import Meter, peak
from ullage.adapters.notes import LOG, Notes
from ullage.adapters.optional import installed
from ullage.errors import UllageError
from ullage.models.passes import Training
from ullage.models.sample import Sample

TRAINING_OVER_FORWARD = 3  # verl's own divisor: a forward pass, and a backward one of twice its products
_NOTES = Notes()


class FlopsCounter:
    """A drop-in for `verl.utils.flops_counter.FlopsCounter`.

    `hf_config` is a configuration of transformers, or a mapping. `precision` and `peak_tflops` choose the promised TFLOP/s,
    `gpu` the board, which is this process's own where it is not given.
    """

    def __init__(
        self,
        hf_config: Any,
        *,
        gpu: str | None = None,
        precision: str = "bf16",
        peak_tflops: str | float | None = None,
        training: Training | None = None,
    ) -> None:
        self.config = hf_config
        self.meter: Meter | None = None
        try:
            gpu = gpu or known_gpu(precision, peak_tflops, _NOTES)
            self.meter = Meter(hf_config, gpu=gpu, precision=precision, peak_tflops=peak_tflops, training=training)
            self.promised = math.nan if self.meter.peak is None else self.meter.peak / 1e12
        except UllageError as error:
            LOG.warning("ullage: MFU will be NaN: %s", error)
            self.promised = math.nan
        self._tower = lru_cache(maxsize=4096)(self._image)

    def estimate_flops(self, batch_seqlens: Sequence[int], delta_time: float, **kargs: Any) -> tuple[float, float]:
        """Return (TFLOP/s that training on these sequences is, TFLOP/s that one GPU promises), NaN what is not known.

        `batch_seqlens` are those of all ranks; `images_seqlens` the patches of each frame before merging, taken for frames
        as square as they can be: that matters to towers with windows alone. `image_grid_thw` has the true grids, and goes
        before. The count is that of training (forward and twice backward); a caller who only infers divides by 3.

        >>> tiny = dict(model_type="llama", hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16, vocab_size=10)
        >>> achieved, promised = FlopsCounter(tiny, peak_tflops=989.4).estimate_flops([4], 2.0)
        >>> achieved * 1e12, promised
        (17280.0, 989.4)
        """
        if self.meter is None or not delta_time > 0:
            return math.nan, self.promised
        grids = kargs.get("image_grid_thw")
        frames = kargs.get("images_seqlens")
        try:
            flops = self.meter.flops(batch_seqlens)
            if grids is not None:
                flops += sum(self._tower(*map(int, grid)) for grid in grids)
            elif frames is not None:
                flops += sum(self._tower(1, *self._sides(int(patches))) for patches in frames)
        except UllageError as error:
            _NOTES.say("lengths", error)
            return math.nan, self.promised
        return flops / delta_time / 1e12, self.promised

    def _image(self, frames: int, rows: int, columns: int) -> int:
        if self.meter is None or self.meter.formula.model.kind != "vision-language":
            return 0
        return self.meter.flops([Sample(grids=((frames, rows, columns),))]) - self.meter.flops([Sample()])

    def _sides(self, patches: int) -> tuple[int, int]:
        """Return rows and columns of a frame of so many patches, as square as whole merged patches allow."""
        merge = 2 if patches % 4 == 0 else 1
        merged = patches // merge**2
        rows = next(n for n in range(max(1, math.isqrt(merged)), 0, -1) if merged % n == 0)
        return rows * merge, merged // rows * merge


def allgather_seqlens(seqlens: Sequence[int], group: Any = None) -> list[int]:
    """Return the lengths on all ranks of the data-parallel group: what `estimate_flops` takes; every rank of it must call this."""
    return ranks.gathered(list(map(int, seqlens)), group)


def mfu(estimated: float, promised: float, forward_only: bool = False, world: int | None = None) -> float:
    """Return MFU as verl reports it: of all ranks that worked on the sequences (`world`, all of the run), a third of it forward only.

    The lengths are those of the data-parallel group; tensor, pipeline and sequence parallel ranks worked on them too, so
    they are divided by, and not data-parallel ranks alone.

    >>> mfu(estimated=3956.0, promised=989.0, world=8), mfu(estimated=5934.0, promised=989.0, world=8, forward_only=True)
    (0.5, 0.25)
    """
    whole = estimated / promised / (ranks.world() if world is None else world)
    return whole / TRAINING_OVER_FORWARD if forward_only else whole


def metrics(
    estimated: float, promised: float, *, role: str = "actor", forward_only: bool = False, world: int | None = None
) -> Mapping[str, float]:
    """Return MFU under the key of verl's trainers: `perf/mfu/actor`, and forward only `perf/mfu/actor_infer`.

    `perf/mfu/actor_infer` holds forward model FLOPs alone: those of the log-probabilities, no rollout.

    >>> metrics(5934.0, 989.0, forward_only=True, world=8)
    {'perf/mfu/actor_infer': 0.25}
    """
    return {f"perf/mfu/{role}{'_infer' if forward_only else ''}": mfu(estimated, promised, forward_only, world)}


def promised_tflops(precision: str = "bf16") -> float:
    """Return the dense TFLOP/s of this process's GPU, ULLAGE_PEAK_TFLOPS before the tables; NaN where neither knows it."""
    try:
        found = peak(known_gpu(precision, None, _NOTES), precision)
    except UllageError as error:
        _NOTES.say("peak", error)
        return math.nan
    return math.nan if found is None else found / 1e12


def install() -> None:
    """Put this counter in the place of verl's, in this process."""
    if (counters := installed("verl.utils.flops_counter")) is None:
        raise UllageError("verl is not installed, or what it needs is not", "install it as its manual says; nothing is replaced")
    counters.FlopsCounter = FlopsCounter
    if (workers := sys.modules.get("verl.workers.engine_workers")) is not None:
        workers.FlopsCounter = FlopsCounter  # type: ignore[attr-defined]  # it has the name already
