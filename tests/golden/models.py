"""FLOPs of every configuration on which families are certified, a line each: what any other form of a family must go on giving."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ullage
from tests.models.certified_configs import CONFIGS
from ullage.errors import UllageError

SHAPES: dict[str, dict[str, Any]] = {
    "text": {"batch": 2, "seq": 7},
    "images": {"seq": 7, "grid": [(1, 4, 4)]},
    "pixels": {"image": [(32, 32)], "seq": 7},
    "latents": {"latent": (1, 8, 8), "prompt_tokens": 6},
    "tokens": {"latent_tokens": 16, "prompt_tokens": 6},
    "sound": {"audio_frames": 16, "seq": 4},
    "pairs": {"encoder_seq": 6, "decoder_seq": 4, "audio_frames": 16},
}


def flops_of_configurations() -> Iterator[str]:
    """Yield for each configuration and shape that it takes: FLOPs forward, of training, as executed, as exact integers."""
    for family, configs in sorted(CONFIGS.items()):
        for number, config in enumerate(configs):
            for shape, words in SHAPES.items():
                try:
                    found = ullage.flops(config, **words)
                except UllageError:
                    continue
                yield f"{family}[{number}] {shape}: forward {found.forward}, training {found.training}, executed {found.executed}"
