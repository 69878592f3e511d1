"""The models that the simulated jobs train: a config.json per family, with its step, and what a wrong counter takes them for.

Each file holds the fields of a real architecture, and beside them a section `step` in the words of `ullage flops`. The three of
the OFU paper's cases (sections V-C and VI-C) are ours, built to its description: the paper publishes no configuration.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Fields = dict[str, Any]


def _config(architecture: str, step: Fields, **fields: Any) -> Fields:
    return {"architectures": [architecture], **fields, "step": step}


def _llama(width: int, layers: int, heads: int, inner: int, vocabulary: int, step: Fields) -> Fields:
    return _config(
        "LlamaForCausalLM", step,
        model_type="llama", hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=8,
        intermediate_size=inner, vocab_size=vocabulary,
    )  # fmt: skip


def _hybrid(pattern: str, step: Fields, **fields: Any) -> Fields:
    return _config(
        "NemotronHForCausalLM", step,
        model_type="nemotron_h", hidden_size=2048, vocab_size=131072, hybrid_override_pattern=pattern, num_attention_heads=16,
        num_key_value_heads=4, head_dim=128, **fields,
    )  # fmt: skip


# 28 mixers, six of them attention, each followed by an MLP (the first four) or experts: 8.0B parameters
_HYBRID = "M-M-M-M-*E" + "MEMEMEME*EMEMEME*E" * 2 + "MEMEMEME*E"
_MAMBA: Fields = {"mamba_num_heads": 64, "mamba_head_dim": 64, "ssm_state_size": 128, "n_groups": 8, "conv_kernel": 4, "chunk_size": 128}

CONFIGS: dict[str, Fields] = {
    "llama-8b-pretrain": _llama(4096, 32, 32, 14336, 128256, {"batch": 512, "seq": 8192}),
    "llama-70b-pretrain": _llama(8192, 80, 64, 28672, 128256, {"batch": 1024, "seq": 8192}),
    # attention and 192 experts of latent width 512 in each of 30 layers: 16.0B parameters
    "moe-16b-pretrain": _hybrid(
        "*E" * 30,
        {"batch": 1152, "seq": 4096},
        moe_latent_size=512,
        moe_intermediate_size=2560,
        n_routed_experts=192,
        num_experts_per_tok=22,
    ),
    "hybrid-8b-pretrain": _hybrid(
        _HYBRID,
        {"batch": 768, "seq": 4096},
        intermediate_size=8192,
        **_MAMBA,
        moe_intermediate_size=1024,
        n_routed_experts=64,
        num_experts_per_tok=6,
        moe_shared_expert_intermediate_size=2048,
    ),
    # a decoder over the tokens of images and videos, whose vocabulary is that of a visual tokenizer
    "world-model-8b": _llama(4096, 32, 32, 14336, 131072, {"batch": 512, "seq": 8192}),
    "diffusion-12b": {
        "_class_name": "FluxTransformer2DModel", "attention_head_dim": 128, "num_attention_heads": 24, "num_layers": 19,
        "num_single_layers": 38, "in_channels": 64, "joint_attention_dim": 4096, "pooled_projection_dim": 768, "guidance_embeds": True,
        "step": {"batch": 256, "latent": [128, 128], "prompt_tokens": 512},
    },
    "speech-1b": _config(
        "WhisperForConditionalGeneration",
        {"batch": 256, "audio_frames": 3000, "decoder_seq": 224},
        model_type="whisper", d_model=1280, encoder_layers=32, decoder_layers=32, encoder_attention_heads=20, decoder_attention_heads=20,
        encoder_ffn_dim=5120, decoder_ffn_dim=5120, num_mel_bins=128, max_source_positions=1500, vocab_size=51866,
    ),
    "vision-robot": _config(
        "SiglipVisionModel",
        {"batch": 1024, "image": [[384, 384]]},
        model_type="siglip_vision_model", hidden_size=1152, intermediate_size=4304, num_hidden_layers=27, num_attention_heads=16,
        image_size=384, patch_size=14, num_channels=3,
    ),
    "reward-model": _llama(4096, 32, 32, 14336, 128256, {"batch": 256, "seq": 4096}),
    "evaluation": _llama(4096, 32, 32, 14336, 128256, {"batch": 64, "seq": 4096, "forward_only": True}),
}  # fmt: skip

# What each planted mistake takes a family's model for: experts without their latent width; every mixer attention, every
# feed-forward layer dense, in each of the layers; and, of recomputation, how much of what is executed is counted.
_WITHOUT_LATENT = {**CONFIGS["moe-16b-pretrain"], "moe_latent_size": None}
_ALL_DENSE = {**CONFIGS["hybrid-8b-pretrain"], "hybrid_override_pattern": "*-" * len(_HYBRID)}


def taken_for(mistake: str) -> Fields | None:
    """Return the configuration that a planted mistake counts instead of the true one; None where it counts the true one."""
    return {"latent_moe": _WITHOUT_LATENT, "hybrid": _ALL_DENSE}.get(mistake)


def write(folder: Path) -> None:
    """Write the configurations into a folder, a file for each family."""
    folder.mkdir(parents=True, exist_ok=True)
    for family, fields in CONFIGS.items():
        (folder / f"{family}.json").write_text(json.dumps(fields, indent=1) + "\n", encoding="utf-8")
