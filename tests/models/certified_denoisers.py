"""Diffusion models, small and odd, to be certified on."""

# fmt: off
from __future__ import annotations

from typing import Any

CONFIGS: dict[str, list[dict[str, Any]]] = {
    "dit": [
        {"_class_name": "DiTTransformer2DModel", "num_attention_heads": 3, "attention_head_dim": 20, "in_channels": 4, "out_channels": 8,
         "num_layers": 3, "sample_size": 16},
    ],
    "sd3": [
        {"_class_name": "SD3Transformer2DModel", "sample_size": 32, "in_channels": 6, "attention_head_dim": 20, "num_attention_heads": 3,
         "joint_attention_dim": 44, "pooled_projection_dim": 28, "num_layers": 3, "caption_projection_dim": 60, "out_channels": 7,
         "pos_embed_max_size": 40},
        {"_class_name": "SD3Transformer2DModel", "sample_size": 32, "in_channels": 6, "attention_head_dim": 20, "num_attention_heads": 3,
         "joint_attention_dim": 44, "pooled_projection_dim": 28, "num_layers": 4, "caption_projection_dim": 60, "out_channels": 5,
         "pos_embed_max_size": 40, "dual_attention_layers": [0, 1], "qk_norm": "rms_norm"},
    ],
    "sd3_controlnet": [
        {"_class_name": "SD3ControlNetModel", "sample_size": 32, "in_channels": 6, "attention_head_dim": 20, "num_attention_heads": 3,
         "joint_attention_dim": 44, "pooled_projection_dim": 28, "num_layers": 3, "caption_projection_dim": 60, "pos_embed_max_size": 40,
         "extra_conditioning_channels": 1},
    ],
    "qwen_image": [
        {"_class_name": "QwenImageTransformer2DModel", "in_channels": 24, "attention_head_dim": 32, "num_attention_heads": 3,
         "joint_attention_dim": 44, "axes_dims_rope": [8, 12, 12], "num_layers": 3, "out_channels": 6},
    ],
    "qwen_image_controlnet": [
        {"_class_name": "QwenImageControlNetModel", "in_channels": 24, "attention_head_dim": 32, "num_attention_heads": 3,
         "joint_attention_dim": 44, "axes_dims_rope": [8, 12, 12], "num_layers": 2, "extra_condition_channels": 4},
    ],
    "flux": [
        {"_class_name": "FluxTransformer2DModel", "in_channels": 24, "attention_head_dim": 32, "num_attention_heads": 3,
         "joint_attention_dim": 44, "num_layers": 2, "num_single_layers": 3, "pooled_projection_dim": 28, "axes_dims_rope": [8, 12, 12]},
        {"_class_name": "FluxTransformer2DModel", "in_channels": 24, "attention_head_dim": 32, "num_attention_heads": 3,
         "joint_attention_dim": 44, "num_layers": 1, "num_single_layers": 4, "pooled_projection_dim": 28, "axes_dims_rope": [8, 12, 12],
         "guidance_embeds": True, "out_channels": 20},
    ],
    "flux2": [
        {"_class_name": "Flux2Transformer2DModel", "in_channels": 24, "attention_head_dim": 32, "num_attention_heads": 3,
         "joint_attention_dim": 44, "num_layers": 2, "num_single_layers": 3, "axes_dims_rope": [8, 8, 8, 8]},
    ],
    "flux_controlnet": [
        {"_class_name": "FluxControlNetModel", "in_channels": 24, "attention_head_dim": 32, "num_attention_heads": 3,
         "joint_attention_dim": 44, "num_layers": 2, "num_single_layers": 3, "pooled_projection_dim": 28, "axes_dims_rope": [8, 12, 12]},
    ],
    "wan": [
        {"_class_name": "WanTransformer3DModel", "num_attention_heads": 3, "attention_head_dim": 20, "in_channels": 5, "out_channels": 6,
         "text_dim": 44, "freq_dim": 32, "ffn_dim": 140, "num_layers": 3},
        {"_class_name": "WanTransformer3DModel", "num_attention_heads": 3, "attention_head_dim": 20, "in_channels": 5, "out_channels": 6,
         "text_dim": 44, "freq_dim": 32, "ffn_dim": 140, "num_layers": 2, "image_dim": 36, "added_kv_proj_dim": 60},
    ],
    "wan_vace": [
        {"_class_name": "WanVACETransformer3DModel", "num_attention_heads": 3, "attention_head_dim": 20, "in_channels": 5, "out_channels":
         6, "text_dim": 44, "freq_dim": 32, "ffn_dim": 140, "num_layers": 4, "vace_layers": [0, 2], "vace_in_channels": 7},
    ],
    "skyreels": [
        {"_class_name": "SkyReelsV2Transformer3DModel", "num_attention_heads": 3, "attention_head_dim": 20, "in_channels": 5,
         "out_channels": 6, "text_dim": 44, "freq_dim": 32, "ffn_dim": 140, "num_layers": 3},
    ],
    "hunyuan_video": [
        {"_class_name": "HunyuanVideoTransformer3DModel", "in_channels": 5, "out_channels": 6, "num_attention_heads": 3,
         "attention_head_dim": 20, "num_layers": 2, "num_single_layers": 3, "num_refiner_layers": 1, "text_embed_dim": 44,
         "pooled_projection_dim": 28, "rope_axes_dim": [4, 8, 8]},
    ],
    "ltx": [
        {"_class_name": "LTXVideoTransformer3DModel", "in_channels": 24, "out_channels": 20, "num_attention_heads": 3,
         "attention_head_dim": 20, "cross_attention_dim": 60, "num_layers": 3, "caption_channels": 44},
    ],
    "cogvideox": [
        {"_class_name": "CogVideoXTransformer3DModel", "num_attention_heads": 3, "attention_head_dim": 20, "in_channels": 5,
         "out_channels": 6, "time_embed_dim": 52, "text_embed_dim": 44, "num_layers": 3, "use_rotary_positional_embeddings": True},
    ],
    "pixart": [
        {"_class_name": "PixArtTransformer2DModel", "num_attention_heads": 3, "attention_head_dim": 20, "in_channels": 4, "out_channels":
         8, "num_layers": 3, "cross_attention_dim": 60, "sample_size": 32, "caption_channels": 44},
        {"_class_name": "PixArtTransformer2DModel", "num_attention_heads": 3, "attention_head_dim": 24, "in_channels": 4, "out_channels":
         8, "num_layers": 2, "cross_attention_dim": 72, "sample_size": 128, "caption_channels": 44, "use_additional_conditions": True},
    ],
    "sana": [
        {"_class_name": "SanaTransformer2DModel", "in_channels": 5, "out_channels": 6, "num_attention_heads": 5, "attention_head_dim": 12,
         "num_cross_attention_heads": 3, "cross_attention_head_dim": 20, "cross_attention_dim": 60, "caption_channels": 44, "num_layers":
         3},
        {"_class_name": "SanaTransformer2DModel", "in_channels": 5, "out_channels": 6, "num_attention_heads": 5, "attention_head_dim": 12,
         "num_cross_attention_heads": 3, "cross_attention_head_dim": 20, "cross_attention_dim": 60, "caption_channels": 44, "num_layers":
         2, "guidance_embeds": True, "qk_norm": "rms_norm_across_heads"},
    ],
    "stable_audio": [
        {"_class_name": "StableAudioDiTModel", "in_channels": 10, "out_channels": 10, "num_layers": 3, "attention_head_dim": 20,
         "num_attention_heads": 4, "num_key_value_attention_heads": 2, "cross_attention_dim": 40, "time_proj_dim": 32,
         "global_states_input_dim": 52, "cross_attention_input_dim": 44},
    ],
    "auraflow": [
        {"_class_name": "AuraFlowTransformer2DModel", "sample_size": 32, "in_channels": 5, "num_mmdit_layers": 2, "num_single_dit_layers":
         3, "attention_head_dim": 20, "num_attention_heads": 3, "joint_attention_dim": 44, "caption_projection_dim": 60, "out_channels":
         5, "pos_embed_max_size": 1024},
    ],
    "z_image": [
        {"_class_name": "ZImageTransformer2DModel", "in_channels": 5, "dim": 96, "n_layers": 3, "n_refiner_layers": 2, "n_heads": 3,
         "n_kv_heads": 3, "cap_feat_dim": 44, "axes_dims": [8, 12, 12], "axes_lens": [256, 64, 64]},
    ],
    "cogview3": [
        {"_class_name": "CogView3PlusTransformer2DModel", "in_channels": 5, "out_channels": 6, "num_layers": 3, "attention_head_dim": 20,
         "num_attention_heads": 3, "text_embed_dim": 44, "time_embed_dim": 52, "condition_dim": 24, "pos_embed_max_size": 40,
         "sample_size": 32},
    ],
    "cogview4": [
        {"_class_name": "CogView4Transformer2DModel", "in_channels": 5, "out_channels": 6, "num_layers": 3, "attention_head_dim": 20,
         "num_attention_heads": 3, "text_embed_dim": 44, "time_embed_dim": 52, "condition_dim": 24, "pos_embed_max_size": 40,
         "sample_size": 32, "rope_axes_dim": [32, 32]},
    ],
    "allegro": [
        {"_class_name": "AllegroTransformer3DModel", "num_attention_heads": 3, "attention_head_dim": 24, "in_channels": 5, "out_channels":
         6, "num_layers": 3, "cross_attention_dim": 72, "caption_channels": 44},
    ],
    "latte": [
        {"_class_name": "LatteTransformer3DModel", "num_attention_heads": 3, "attention_head_dim": 20, "in_channels": 5, "out_channels":
         6, "num_layers": 3, "patch_size": 2, "cross_attention_dim": 60, "caption_channels": 44, "sample_size": 32, "video_length": 5,
         "norm_type": "ada_norm_single", "num_embeds_ada_norm": 1000},
    ],
    "mochi": [
        {"_class_name": "MochiTransformer3DModel", "num_attention_heads": 3, "attention_head_dim": 20, "num_layers": 3,
         "pooled_projection_dim": 36, "in_channels": 5, "text_embed_dim": 48, "time_embed_dim": 32},
    ],
    "cosmos": [
        {"_class_name": "CosmosTransformer3DModel", "in_channels": 5, "out_channels": 6, "num_attention_heads": 3, "attention_head_dim":
         24, "num_layers": 3, "text_embed_dim": 44, "adaln_lora_dim": 28, "max_size": [8, 32, 32], "extra_pos_embed_type": None,
         "concat_padding_mask": False},
    ],
    "unet_condition": [
        {"_class_name": "UNet2DConditionModel", "block_out_channels": [16, 24, 32], "layers_per_block": 1, "norm_num_groups": 4,
         "cross_attention_dim": 44, "in_channels": 4, "attention_head_dim": 4, "out_channels": 5, "down_block_types":
         ["CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"], "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D",
         "CrossAttnUpBlock2D"]},
        {"_class_name": "UNet2DConditionModel", "block_out_channels": [16, 24, 32], "layers_per_block": 1, "norm_num_groups": 4,
         "cross_attention_dim": 44, "in_channels": 4, "attention_head_dim": 4, "out_channels": 4, "down_block_types":
         ["CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"], "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D",
         "CrossAttnUpBlock2D"], "use_linear_projection": True, "transformer_layers_per_block": [1, 2, 3], "addition_embed_type":
         "text_time", "addition_time_embed_dim": 8, "projection_class_embeddings_input_dim": 76},
    ],
    "unet_image": [
        {"_class_name": "UNet2DModel", "block_out_channels": [16, 24, 32], "layers_per_block": 1, "norm_num_groups": 4, "in_channels": 3,
         "out_channels": 3, "attention_head_dim": 4, "down_block_types": ["DownBlock2D", "AttnDownBlock2D", "DownBlock2D"],
         "up_block_types": ["UpBlock2D", "AttnUpBlock2D", "UpBlock2D"]},
    ],
    "controlnet": [
        {"_class_name": "ControlNetModel", "block_out_channels": [16, 24, 32], "layers_per_block": 1, "norm_num_groups": 4,
         "cross_attention_dim": 44, "in_channels": 4, "attention_head_dim": 4, "down_block_types": ["CrossAttnDownBlock2D",
         "CrossAttnDownBlock2D", "DownBlock2D"], "conditioning_embedding_out_channels": [8, 12, 20, 24]},
    ],
}
