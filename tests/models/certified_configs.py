"""Small configurations with sides that all differ, some for every architecture family: what its formula is certified on."""

from __future__ import annotations

from tests.models import certified_denoisers, certified_hybrids, certified_mixtures, certified_text, certified_vision_language

CONFIGS = {
    **certified_text.CONFIGS,
    **certified_mixtures.CONFIGS,
    **certified_hybrids.CONFIGS,
    **certified_vision_language.CONFIGS,
    **certified_denoisers.CONFIGS,
}

# Of these no library that we install has the real model
UNPROVED = {
    "chatglm": "its code comes with its weights, and is never run",
    "own_code": "their code comes with their weights, and is never run",
    "qwen1": "its code comes with its weights, and is never run",
    "dlrm": "neither transformers nor diffusers has it",
    "mllama": "the library also computes tiles that only fill an image up, and the product that masks them",
    "steered_unet": "a UNet and a ControlNet, each certified by itself",
}
