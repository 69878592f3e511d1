"""Encoders of images, convolutional nets, autoencoders, and models that see or hear, small and odd, to be certified on."""

# fmt: off
from __future__ import annotations

from typing import Any

# Sections that several models of images and sound share
SEEN = {"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 4, "image_size": 56, "patch_size": 14}
READ = {"hidden_size": 40, "intermediate_size": 72, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "vocab_size": 101, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
HEARD = {"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 4, "num_mel_bins": 20,
         "max_source_positions": 32}
GRIDDED = {"depth": 3, "hidden_size": 48, "intermediate_size": 80, "num_heads": 4, "patch_size": 14, "temporal_patch_size": 2,
           "spatial_merge_size": 2, "in_channels": 3}
DELTA = {"head_dim": 12, "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 6,
         "layer_types": ["linear_attention", "full_attention"],
         "rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 1], "rope_theta": 10000.0, "partial_rotary_factor": 0.5}}
SECTIONED = {"rope_parameters": {"rope_type": "default", "mrope_section": [2, 1, 2], "rope_theta": 10000.0, "partial_rotary_factor": 1.0}}
MARKED = {"image_token_id": 100, "video_token_id": 99, "image_start_token_id": 98, "image_end_token_id": 97}

CONFIGS: dict[str, list[dict[str, Any]]] = {
    "resnet": [
        {"architectures": ["ResNetForImageClassification"], "model_type": "resnet", "embedding_size": 12, "hidden_sizes": [20, 28, 36,
         44], "depths": [2, 1, 3, 2], "num_labels": 11},
        {"architectures": ["ResNetForImageClassification"], "model_type": "resnet", "embedding_size": 12, "hidden_sizes": [20, 28],
         "depths": [2, 2], "layer_type": "basic", "num_labels": 7},
    ],
    "convnext": [
        {"architectures": ["ConvNextForImageClassification"], "model_type": "convnext", "hidden_sizes": [12, 20, 28, 36], "depths": [1, 2,
         3, 1], "num_labels": 11},
        {"architectures": ["ConvNextV2ForImageClassification"], "model_type": "convnextv2", "hidden_sizes": [12, 20, 28, 36], "depths":
         [2, 1, 1, 2], "num_labels": 11},
    ],
    "swin": [
        {"architectures": ["SwinForImageClassification"], "model_type": "swin", "embed_dim": 12, "depths": [2, 3], "num_heads": [2, 3],
         "window_size": 5, "image_size": 56, "num_labels": 11},
        {"architectures": ["Swinv2ForImageClassification"], "model_type": "swinv2", "embed_dim": 12, "depths": [2, 2], "num_heads": [2,
         3], "window_size": 7, "image_size": 56, "num_labels": 11},
    ],
    "vit": [
        {"architectures": ["ViTForImageClassification"], "model_type": "vit", "hidden_size": 48, "intermediate_size": 80,
         "num_hidden_layers": 3, "num_attention_heads": 4, "image_size": 56, "patch_size": 14, "num_labels": 11},
        {"architectures": ["DeiTForImageClassification"], "model_type": "deit", "hidden_size": 48, "intermediate_size": 80,
         "num_hidden_layers": 3, "num_attention_heads": 4, "image_size": 56, "patch_size": 14, "num_labels": 7},
        {"architectures": ["BeitForImageClassification"], "model_type": "beit", "hidden_size": 48, "intermediate_size": 80,
         "num_hidden_layers": 3, "num_attention_heads": 4, "image_size": 56, "patch_size": 14, "num_labels": 7},
    ],
    "dinov2": [
        {"architectures": ["Dinov2ForImageClassification"], "model_type": "dinov2", "hidden_size": 48, "intermediate_size": 80,
         "num_hidden_layers": 3, "num_attention_heads": 4, "image_size": 56, "patch_size": 14, "num_labels": 11, "mlp_ratio": 3},
        {"architectures": ["Dinov2WithRegistersModel"], "model_type": "dinov2_with_registers", "hidden_size": 48, "intermediate_size": 80,
         "num_hidden_layers": 3, "num_attention_heads": 4, "image_size": 56, "patch_size": 14, "mlp_ratio": 4, "num_register_tokens": 3},
    ],
    "dinov3": [
        {"architectures": ["DINOv3ViTModel"], "model_type": "dinov3_vit", "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers":
         3, "num_attention_heads": 3, "image_size": 56, "patch_size": 14, "num_register_tokens": 3},
    ],
    "segformer": [
        {"architectures": ["SegformerForSemanticSegmentation"], "model_type": "segformer", "num_encoder_blocks": 3, "depths": [2, 1, 2],
         "sr_ratios": [4, 2, 1], "hidden_sizes": [12, 20, 32], "patch_sizes": [7, 3, 3], "strides": [4, 2, 2], "num_attention_heads": [1,
         2, 4], "mlp_ratios": [2, 3, 4], "decoder_hidden_size": 28, "num_labels": 11},
    ],
    "mobilenet_v2": [
        {"architectures": ["MobileNetV2ForImageClassification"], "model_type": "mobilenet_v2", "depth_multiplier": 0.35, "image_size": 96,
         "num_labels": 11},
    ],
    "clip": [
        {"architectures": ["CLIPModel"], "model_type": "clip", "text_config": {"hidden_size": 36, "intermediate_size": 60,
         "num_hidden_layers": 2, "num_attention_heads": 3, "vocab_size": 101, "max_position_embeddings": 40, "projection_dim": 28,
         "eos_token_id": 2}, "vision_config": {"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads":
         4, "image_size": 56, "patch_size": 14, "projection_dim": 28}, "projection_dim": 28},
    ],
    "clip_vision": [
        {"architectures": ["CLIPVisionModelWithProjection"], "model_type": "clip_vision_model", "hidden_size": 48, "intermediate_size":
         80, "num_hidden_layers": 3, "num_attention_heads": 4, "image_size": 56, "patch_size": 14, "projection_dim": 28},
    ],
    "siglip": [
        {"architectures": ["SiglipModel"], "model_type": "siglip", "text_config": {"hidden_size": 36, "intermediate_size": 60,
         "num_hidden_layers": 2, "num_attention_heads": 3, "vocab_size": 101, "max_position_embeddings": 40, "projection_dim": 28,
         "eos_token_id": 2, "projection_size": 48}, "vision_config": {"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3,
         "num_attention_heads": 4, "image_size": 56, "patch_size": 14}},
    ],
    "siglip_vision": [
        {"architectures": ["SiglipVisionModel"], "model_type": "siglip_vision_model", "hidden_size": 48, "intermediate_size": 80,
         "num_hidden_layers": 3, "num_attention_heads": 4, "image_size": 56, "patch_size": 14},
        {"architectures": ["SiglipForImageClassification"], "model_type": "siglip", "vision_config": {"hidden_size": 48,
         "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 4, "image_size": 56, "patch_size": 14}, "num_labels": 7},
    ],
    "qwen2_vl_vision": [
        {"architectures": ["Qwen2VisionTransformerPretrainedModel"], "model_type": "qwen2_vl_vision", "depth": 3, "embed_dim": 32,
         "hidden_size": 48, "mlp_ratio": 3, "num_heads": 4, "patch_size": 14, "temporal_patch_size": 2},
    ],
    "qwen2_5_vl_vision": [
        {"architectures": ["Qwen2_5_VisionTransformerPretrainedModel"], "model_type": "qwen2_5_vl_vision", "depth": 3, "hidden_size": 32,
         "out_hidden_size": 48, "intermediate_size": 40, "num_heads": 4, "patch_size": 14, "temporal_patch_size": 2, "window_size": 56,
         "fullatt_block_indexes": [1], "spatial_merge_size": 2},
    ],
    "qwen3_vl_vision": [
        {"architectures": ["Qwen3VLVisionModel"], "model_type": "qwen3_vl_vision", "depth": 3, "hidden_size": 32, "out_hidden_size": 48,
         "intermediate_size": 40, "num_heads": 4, "patch_size": 16, "temporal_patch_size": 2, "deepstack_visual_indexes": [0, 1],
         "spatial_merge_size": 2, "num_position_embeddings": 64},
    ],
    "qwen2_vl": [
        {"architectures": ["Qwen2VLForConditionalGeneration"], "model_type": "qwen2_vl", "text_config": {"hidden_size": 48,
         "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2,
         "head_dim": 12, "pad_token_id": 0, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 2,
         2]}}, "vision_config": {"depth": 3, "embed_dim": 32, "hidden_size": 48, "mlp_ratio": 3, "num_heads": 4, "patch_size": 14,
         "temporal_patch_size": 2}, "image_token_id": 100, "video_token_id": 99, "vision_start_token_id": 98, "vision_end_token_id": 97},
    ],
    "qwen2_5_vl": [
        {"architectures": ["Qwen2_5_VLForConditionalGeneration"], "model_type": "qwen2_5_vl", "text_config": {"hidden_size": 48,
         "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2,
         "head_dim": 12, "pad_token_id": 0, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 2,
         2]}}, "vision_config": {"depth": 3, "hidden_size": 32, "out_hidden_size": 48, "intermediate_size": 40, "num_heads": 4,
         "patch_size": 14, "temporal_patch_size": 2, "window_size": 56, "fullatt_block_indexes": [1], "spatial_merge_size": 2},
         "image_token_id": 100, "video_token_id": 99, "vision_start_token_id": 98, "vision_end_token_id": 97},
    ],
    "exaone4_5": [
        {"architectures": ["Exaone4_5_ForConditionalGeneration"], "model_type": "exaone4_5", "vision_config": {"model_type":
         "exaone4_5_vision", "depth": 3, "hidden_size": 48, "out_hidden_size": 40, "intermediate_size": 44, "num_heads": 6,
         "num_key_value_heads": 2, "patch_size": 14, "temporal_patch_size": 2, "window_size": 56, "fullatt_block_indexes": [1],
         "spatial_merge_size": 2}, "text_config": {**READ, "model_type": "exaone4", "sliding_window": 6, "sliding_window_pattern": 2},
         "image_token_id": 100, "video_token_id": 99},
    ],
    "qwen3_vl": [
        {"architectures": ["Qwen3VLForConditionalGeneration"], "model_type": "qwen3_vl", "text_config": {"hidden_size": 48,
         "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2,
         "head_dim": 12, "pad_token_id": 0, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 2,
         2]}}, "vision_config": {"depth": 3, "hidden_size": 32, "out_hidden_size": 48, "intermediate_size": 40, "num_heads": 4,
         "patch_size": 16, "temporal_patch_size": 2, "deepstack_visual_indexes": [0, 1], "spatial_merge_size": 2,
         "num_position_embeddings": 64}, "image_token_id": 100, "video_token_id": 99, "vision_start_token_id": 98, "vision_end_token_id":
         97},
    ],
    "llama4_vision": [
        {"architectures": ["Llama4ForConditionalGeneration"], "model_type": "llama4", "text_config": {"hidden_size": 48,
         "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2,
         "head_dim": 20, "moe_intermediate_size": 24, "num_experts_per_tok": 2, "num_experts": 5, "num_local_experts": 5,
         "n_routed_experts": 5, "shared_expert_intermediate_size": 40, "n_shared_experts": 2, "num_shared_experts": 1,
         "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1, "pad_token_id": 0, "intermediate_size_mlp": 56,
         "interleave_moe_layer_step": 2}, "vision_config": {"hidden_size": 48, "intermediate_size": 192, "num_hidden_layers": 3,
         "num_attention_heads": 4, "image_size": 56, "patch_size": 14, "vision_output_dim": 44, "projector_input_dim": 44,
         "projector_output_dim": 44}, "image_token_index": 100},
    ],
    "llava": [
        {"architectures": ["LlavaForConditionalGeneration"], "model_type": "llava", "image_token_index": 100, "image_token_id": 100,
         "pad_token_id": 0, "text_config": {"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 4,
         "vocab_size": 101, "num_key_value_heads": 2, "head_dim": 20, "pad_token_id": 0, "model_type": "llama"}, "vision_feature_layer":
         -2, "vision_feature_select_strategy": "default", "vision_config": {"hidden_size": 36, "intermediate_size": 80,
         "num_hidden_layers": 3, "num_attention_heads": 4, "image_size": 56, "patch_size": 14, "model_type": "clip_vision_model"}},
        {"architectures": ["LlavaNextForConditionalGeneration"], "model_type": "llava_next", "vision_config": {**SEEN, "model_type":
         "clip_vision_model"}, "text_config": {**READ, "model_type": "llama"}, "image_token_index": 100, "vision_feature_layer": -2,
         "vision_feature_select_strategy": "default", "image_grid_pinpoints": [[56, 112], [112, 112]]},
        {"architectures": ["LlavaNextVideoForConditionalGeneration"], "model_type": "llava_next_video", "vision_config": {**SEEN,
         "model_type": "clip_vision_model"}, "text_config": {**READ, "model_type": "llama"}, "image_token_index": 100,
         "video_token_index": 99, "vision_feature_layer": -2, "vision_feature_select_strategy": "default", "image_grid_pinpoints":
         [[56, 112], [112, 112]]},
    ],
    "gemma3": [
        {"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "image_token_index": 100, "image_token_id": 100,
         "pad_token_id": 0, "mm_tokens_per_image": 4, "text_config": {"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3,
         "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "head_dim": 20, "pad_token_id": 0, "model_type":
         "gemma3_text", "sliding_window": 6}, "vision_config": {"hidden_size": 36, "intermediate_size": 80, "num_hidden_layers": 3,
         "num_attention_heads": 4, "image_size": 56, "patch_size": 14, "model_type": "siglip_vision_model"}},
    ],
    "paligemma": [
        {"architectures": ["PaliGemmaForConditionalGeneration"], "model_type": "paligemma", "image_token_index": 100, "image_token_id":
         100, "pad_token_id": 0, "projection_dim": 48, "text_config": {"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3,
         "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "head_dim": 20, "pad_token_id": 0, "model_type": "gemma"},
         "vision_config": {"hidden_size": 36, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 4, "image_size": 56,
         "patch_size": 14, "model_type": "siglip_vision_model", "projection_dim": 48}},
    ],
    "internvl": [
        {"architectures": ["InternVLForConditionalGeneration"], "model_type": "internvl", "image_token_index": 100, "image_token_id": 100,
         "pad_token_id": 0, "text_config": {"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 4,
         "vocab_size": 101, "num_key_value_heads": 2, "head_dim": 12, "pad_token_id": 0, "model_type": "qwen2"}, "downsample_ratio": 0.5,
         "vision_config": {"hidden_size": 36, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 4, "image_size": 56,
         "patch_size": 14, "model_type": "internvl_vision"}},
        {"architectures": ["QianfanOCRForConditionalGeneration"], "model_type": "qianfan_ocr", "image_token_id": 100, "text_config":
         {**READ, "model_type": "qwen3", "head_dim": 12}, "downsample_ratio": 0.5, "vision_config": {**SEEN, "model_type":
         "qianfan_ocr_vision"}},
    ],
    "idefics3": [
        {"architectures": ["Idefics3ForConditionalGeneration"], "model_type": "idefics3", "image_token_index": 100, "image_token_id": 100,
         "pad_token_id": 0, "scale_factor": 2, "text_config": {"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3,
         "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "head_dim": 20, "pad_token_id": 0, "model_type": "llama"},
         "vision_config": {"hidden_size": 36, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 4, "image_size": 56,
         "patch_size": 14, "model_type": "idefics3_vision"}},
    ],
    "mistral3": [
        {"architectures": ["Mistral3ForConditionalGeneration"], "model_type": "mistral3", "image_token_index": 100, "image_token_id": 100,
         "pad_token_id": 0, "spatial_merge_size": 2, "text_config": {"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3,
         "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "head_dim": 20, "pad_token_id": 0, "model_type":
         "mistral"}, "vision_feature_layer": -1, "vision_config": {"hidden_size": 32, "intermediate_size": 80, "num_hidden_layers": 3,
         "num_attention_heads": 4, "image_size": 56, "patch_size": 14, "model_type": "pixtral", "head_dim": 8}},
    ],
    "qwen2_audio": [
        {"architectures": ["Qwen2AudioForConditionalGeneration"], "model_type": "qwen2_audio", "audio_token_index": 100, "text_config":
         {"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 101,
         "num_key_value_heads": 2, "head_dim": 12, "pad_token_id": 0, "model_type": "qwen2"}, "audio_config": {"model_type":
         "qwen2_audio_encoder", "num_mel_bins": 20, "encoder_layers": 2, "encoder_attention_heads": 3, "encoder_ffn_dim": 80, "d_model":
         36, "max_source_positions": 52}},
    ],
    "autoencoder": [
        {"_class_name": "AutoencoderKL", "block_out_channels": [8, 12, 16, 20], "layers_per_block": 1, "norm_num_groups": 4,
         "latent_channels": 4, "sample_size": 64, "down_block_types": ["DownEncoderBlock2D", "DownEncoderBlock2D", "DownEncoderBlock2D",
         "DownEncoderBlock2D"], "up_block_types": ["UpDecoderBlock2D", "UpDecoderBlock2D", "UpDecoderBlock2D", "UpDecoderBlock2D"]},
    ],
    "video_autoencoder": [
        {"_class_name": "AutoencoderKLWan", "base_dim": 8, "z_dim": 6, "dim_mult": [1, 2, 3, 4], "num_res_blocks": 1,
         "temperal_downsample": [False, True, True]},
    ],
    "llava_onevision": [
        {"architectures": ["LlavaOnevisionForConditionalGeneration"], "model_type": "llava_onevision", "vision_config":
         {**SEEN, "model_type": "siglip_vision_model"}, "text_config": {**READ, "model_type": "qwen2"}, "image_token_index": 100,
         "vision_feature_layer": -1, "vision_feature_select_strategy": "full", "image_grid_pinpoints": [[56, 112], [112, 112]]},
    ],
    "vipllava": [
        {"architectures": ["VipLlavaForConditionalGeneration"], "model_type": "vipllava", "vision_config":
         {**SEEN, "model_type": "clip_vision_model"}, "text_config": {**READ, "model_type": "llama"}, "image_token_index": 100,
         "vision_feature_layers": [-2, -3]},
    ],
    "aya_vision": [
        {"architectures": ["AyaVisionForConditionalGeneration"], "model_type": "aya_vision", "vision_config":
         {**SEEN, "model_type": "siglip_vision_model"}, "text_config": {**READ, "model_type": "cohere2", "sliding_window": 5,
         "layer_types": ["sliding_attention", "full_attention"]}, "image_token_index": 100, "downsample_factor": 2,
         "alignment_intermediate_size": 56, "vision_feature_layer": -1, "vision_feature_select_strategy": "full"},
        {"architectures": ["Cohere2VisionForConditionalGeneration"], "model_type": "cohere2_vision", "vision_config":
         {**SEEN, "model_type": "siglip_vision_model"}, "text_config": {**READ, "model_type": "cohere2", "sliding_window": 5,
         "layer_types": ["sliding_attention", "full_attention"]}, "image_token_id": 100, "downsample_factor": 2,
         "alignment_intermediate_size": 56},
    ],
    "deepseek_vl": [
        {"architectures": ["DeepseekVLForConditionalGeneration"], "model_type": "deepseek_vl", "vision_config":
         {**SEEN, "model_type": "siglip_vision_model"}, "text_config": {**READ, "model_type": "llama"}, "image_token_id": 100},
    ],
    "lighton_ocr": [
        {"architectures": ["LightOnOcrForConditionalGeneration"], "model_type": "lighton_ocr", "vision_config": {"model_type": "pixtral",
         "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 4, "patch_size": 14, "image_size": 56,
         "head_dim": 12}, "text_config": {**READ, "model_type": "qwen3", "head_dim": 12}, "image_token_id": 100, "spatial_merge_size": 2},
    ],
    "hyperclovax_vision_v2": [
        {"architectures": ["HyperCLOVAXVisionV2ForConditionalGeneration"], "model_type": "hyperclovax_vision_v2", "vision_config":
         {**GRIDDED, "model_type": "qwen2_5_vl", "out_hidden_size": 36, "window_size": 56, "fullatt_block_indexes": [1]},
         "text_config": {**READ, "model_type": "hyperclovax", "head_dim": 10, "attention_multiplier": 0.1, "residual_multiplier": 0.5,
         "logits_scaling": 2.0, "embedding_multiplier": 3.0}, "image_token_id": 100, "video_token_id": 99},
    ],
    "qwen3_5": [
        {"architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5", "vision_config": {**GRIDDED, "model_type":
         "qwen3_5_vision", "num_position_embeddings": 64, "out_hidden_size": 40}, "text_config": {**READ, **DELTA, "model_type":
         "qwen3_5_text"}, "image_token_id": 100, "video_token_id": 99, "vision_start_token_id": 98, "vision_end_token_id": 97},
        {"architectures": ["Qwen3_5MoeForConditionalGeneration"], "model_type": "qwen3_5_moe", "vision_config": {**GRIDDED, "model_type":
         "qwen3_5_moe_vision", "num_position_embeddings": 64, "out_hidden_size": 40}, "text_config": {**READ, **DELTA, "model_type":
         "qwen3_5_moe_text", "moe_intermediate_size": 24, "num_experts_per_tok": 2, "num_experts": 5,
         "shared_expert_intermediate_size": 28}, "image_token_id": 100, "video_token_id": 99, "vision_start_token_id": 98,
         "vision_end_token_id": 97},
    ],
    "glm4v": [
        {"architectures": ["Glm4vForConditionalGeneration"], "model_type": "glm4v", "vision_config": {**GRIDDED, "model_type":
         "glm4v_vision", "image_size": 56, "out_hidden_size": 40}, "text_config": {**READ, **SECTIONED, "model_type": "glm4v_text"},
         **MARKED},
        {"architectures": ["Glm46VForConditionalGeneration"], "model_type": "glm46v", "vision_config": {**GRIDDED, "model_type":
         "glm4v_vision", "image_size": 56, "out_hidden_size": 40}, "text_config": {**READ, **SECTIONED, "model_type": "glm4v_text"},
         **MARKED},
        {"architectures": ["Glm4vMoeForConditionalGeneration"], "model_type": "glm4v_moe", "vision_config": {**GRIDDED, "model_type":
         "glm4v_moe_vision", "image_size": 56, "out_hidden_size": 40}, "text_config": {**READ, **SECTIONED, "model_type":
         "glm4v_moe_text", "num_hidden_layers": 3, "moe_intermediate_size": 24, "num_experts_per_tok": 2, "n_routed_experts": 5,
         "n_shared_experts": 1, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1}, **MARKED},
        {"architectures": ["GlmOcrForConditionalGeneration"], "model_type": "glm_ocr", "vision_config": {**GRIDDED, "model_type":
         "glm_ocr_vision", "image_size": 56, "out_hidden_size": 40}, "text_config": {**READ, **SECTIONED, "model_type": "glm_ocr_text",
         "head_dim": 10}, **MARKED},
    ],
    "gemma4_vision": [
        {"architectures": ["Gemma4ForConditionalGeneration"], "model_type": "gemma4", "vision_config": {"model_type": "gemma4_vision",
         "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 3, "num_key_value_heads": 3,
         "head_dim": 16, "patch_size": 4, "pooling_kernel_size": 3, "position_embedding_size": 40}, "text_config": {"model_type":
         "gemma4_text", "hidden_size": 40, "intermediate_size": 72, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 101,
         "num_key_value_heads": 2, "head_dim": 20, "pad_token_id": 0, "vocab_size_per_layer_input": 90, "hidden_size_per_layer_input": 7,
         "sliding_window": 6, "num_kv_shared_layers": 0, "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
         "global_head_dim": 28}, "image_token_id": 100, "video_token_id": 99, "audio_token_id": 98, "audio_config": None},
    ],
    "kimi_k25": [
        {"architectures": ["Kimi_K25ForConditionalGeneration"], "model_type": "kimi_k25", "vision_config": {"model_type":
         "kimi_k25_vision", "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 4, "patch_size": 4,
         "merge_kernel_size": [2, 2], "pos_emb_height": 12, "pos_emb_width": 12, "pos_emb_time": 4}, "text_config": {**READ,
         "model_type": "deepseek_v3", "num_key_value_heads": 4, "num_hidden_layers": 3, "moe_intermediate_size": 24,
         "num_experts_per_tok": 2, "n_routed_experts": 5, "n_shared_experts": 1, "n_group": 1, "topk_group": 1, "first_k_dense_replace":
         1, "q_lora_rank": 20, "kv_lora_rank": 16, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 10}, "image_token_id":
         100, "projection_hidden_size": 48},
    ],
    "qwen2_5_omni": [
        {"architectures": ["Qwen2_5OmniThinkerForConditionalGeneration"], "model_type": "qwen2_5_omni_thinker", "vision_config": {**GRIDDED,
         "model_type": "qwen2_5_omni_vision_encoder", "out_hidden_size": 40, "window_size": 56, "fullatt_block_indexes": [1]},
         "audio_config": {"model_type": "qwen2_5_omni_audio_encoder", "d_model": 48, "encoder_layers": 2, "encoder_attention_heads": 4,
         "encoder_ffn_dim": 80, "num_mel_bins": 20, "max_source_positions": 32, "n_window": 8, "output_dim": 40}, "text_config": {**READ,
         "model_type": "qwen2_5_omni_text", "rope_parameters": {"rope_type": "default", "mrope_section": [2, 2, 1], "rope_theta":
         10000.0}}, "image_token_index": 100, "audio_token_index": 99, "video_token_index": 98, "vision_start_token_id": 97,
         "vision_end_token_id": 96, "audio_start_token_id": 95, "audio_end_token_id": 94},
    ],
    "qwen3_omni_moe": [
        {"architectures": ["Qwen3OmniMoeThinkerForConditionalGeneration"], "model_type": "qwen3_omni_moe_thinker", "vision_config":
         {**GRIDDED, "patch_size": 16, "model_type": "qwen3_omni_moe_vision_encoder", "out_hidden_size": 40,
         "deepstack_visual_indexes": [0, 1], "num_position_embeddings": 64}, "audio_config": {"model_type":
         "qwen3_omni_moe_audio_encoder", "d_model": 48, "encoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 80,
         "num_mel_bins": 20, "max_source_positions": 150, "n_window": 50, "n_window_infer": 200, "downsample_hidden_size": 12,
         "output_dim": 40}, "text_config": {**READ, "head_dim": 10, "model_type": "qwen3_omni_moe_text", "num_experts": 5,
         "num_experts_per_tok": 2, "moe_intermediate_size": 24, "rope_parameters": {"rope_type": "default", "mrope_section": [2, 2, 1],
         "rope_theta": 10000.0}}, "image_token_id": 100, "audio_token_id": 99, "video_token_id": 98, "vision_start_token_id": 97,
         "vision_end_token_id": 96, "audio_start_token_id": 95, "audio_end_token_id": 94},
    ],
    "lfm2_vl": [
        {"architectures": ["Lfm2VlForConditionalGeneration"], "model_type": "lfm2_vl", "vision_config": {"model_type":
         "siglip2_vision_model", "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 4,
         "patch_size": 4, "num_patches": 16}, "text_config": {**READ, "model_type": "lfm2", "layer_types": ["conv", "full_attention"],
         "block_ff_dim": 72}, "image_token_id": 100, "downsample_factor": 2, "projector_hidden_size": 52},
    ],
    "audioflamingo3": [
        {"architectures": ["AudioFlamingo3ForConditionalGeneration"], "model_type": "audioflamingo3", "audio_config": {**HEARD,
         "model_type": "audioflamingo3_encoder"}, "text_config": {**READ, "model_type": "qwen2"}, "audio_token_id": 100},
    ],
    "voxtral": [
        {"architectures": ["VoxtralForConditionalGeneration"], "model_type": "voxtral", "audio_config": {**HEARD, "model_type":
         "voxtral_encoder", "intermediate_size": 96}, "text_config": {**READ, "model_type": "llama"}, "audio_token_id": 100},
    ],
}
