"""Mixtures of experts, small and odd, to be certified on."""

# fmt: off
from __future__ import annotations

from typing import Any

CONFIGS: dict[str, list[dict[str, Any]]] = {
    "mixtral": [
        {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "hidden_size": 48, "intermediate_size": 80,
         "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "head_dim": 20,
         "num_experts_per_tok": 2, "num_experts": 5, "num_local_experts": 5, "pad_token_id": 0},
        {"architectures": ["MiniMaxM2ForCausalLM"], "model_type": "minimax_m2", "hidden_size": 48, "intermediate_size": 80,
         "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "head_dim": 20,
         "num_experts_per_tok": 2, "num_experts": 5, "num_local_experts": 5, "pad_token_id": 0},
    ],
    "phimoe": [
        {"architectures": ["PhimoeForCausalLM"], "model_type": "phimoe", "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers":
         3, "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "head_dim": 20, "num_experts_per_tok": 2,
         "num_local_experts": 5, "pad_token_id": 0},
    ],
    "qwen2_moe": [
        {"architectures": ["Qwen2MoeForCausalLM"], "model_type": "qwen2_moe", "hidden_size": 48, "intermediate_size": 80,
         "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "head_dim": 20,
         "moe_intermediate_size": 24, "num_experts_per_tok": 2, "num_experts": 5, "shared_expert_intermediate_size": 40, "pad_token_id":
         0, "mlp_only_layers": [0]},
    ],
    "qwen3_moe": [
        {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 48, "intermediate_size": 80,
         "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "head_dim": 20,
         "moe_intermediate_size": 24, "num_experts_per_tok": 2, "num_experts": 5, "num_local_experts": 5, "pad_token_id": 0,
         "decoder_sparse_step": 2},
    ],
    "mellum": [
        {"architectures": ["MellumForCausalLM"], "model_type": "mellum", "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers":
         3, "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "head_dim": 20, "moe_intermediate_size": 24,
         "num_experts_per_tok": 2, "num_experts": 5, "num_local_experts": 5, "pad_token_id": 0},
    ],
    "olmoe": [
        {"architectures": ["OlmoeForCausalLM"], "model_type": "olmoe", "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3,
         "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "num_experts_per_tok": 2, "num_experts": 5,
         "num_local_experts": 5, "pad_token_id": 0},
        {"architectures": ["FlexOlmoForCausalLM"], "model_type": "flex_olmo", "hidden_size": 48, "intermediate_size": 80,
         "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "head_dim": 20,
         "num_experts_per_tok": 2, "num_experts": 5, "num_local_experts": 5, "pad_token_id": 0},
    ],
    "gpt_oss": [
        {"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers":
         3, "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "head_dim": 20, "num_experts_per_tok": 2,
         "num_experts": 5, "num_local_experts": 5, "pad_token_id": 0, "layer_types": ["sliding_attention", "full_attention",
         "sliding_attention"]},
    ],
    "granitemoe": [
        {"architectures": ["GraniteMoeForCausalLM"], "model_type": "granitemoe", "hidden_size": 48, "intermediate_size": 80,
         "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "head_dim": 20,
         "num_experts_per_tok": 2, "num_local_experts": 5, "pad_token_id": 0},
        {"architectures": ["GraniteMoeSharedForCausalLM"], "model_type": "granitemoeshared", "hidden_size": 48, "intermediate_size": 80,
         "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "head_dim": 20,
         "num_experts_per_tok": 2, "num_local_experts": 5, "pad_token_id": 0, "shared_intermediate_size": 56},
    ],
    "granitemoe_swa": [
        {"architectures": ["GraniteMoeSWAForCausalLM"], "model_type": "granitemoe_swa", "hidden_size": 48, "intermediate_size": 80,
         "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "head_dim": 20,
         "num_experts_per_tok": 2, "num_local_experts": 5, "pad_token_id": 0},
    ],
    "jetmoe": [
        {"architectures": ["JetMoeForCausalLM"], "model_type": "jetmoe", "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers":
         3, "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "num_experts_per_tok": 2, "num_local_experts": 5,
         "pad_token_id": 0, "kv_channels": 12},
    ],
    "dbrx": [
        {"architectures": ["DbrxForCausalLM"], "model_type": "dbrx", "d_model": 48, "n_heads": 4, "n_layers": 3, "vocab_size": 101,
         "max_seq_len": 2048, "attn_config": {"kv_n_heads": 2, "rope_theta": 10000.0, "clip_qkv": 8}, "ffn_config": {"ffn_hidden_size":
         40, "moe_num_experts": 5, "moe_top_k": 2, "hidden_size": 48}},
    ],
    "afmoe": [
        {"architectures": ["AfmoeForCausalLM"], "model_type": "afmoe", "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3,
         "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "head_dim": 20, "moe_intermediate_size": 24,
         "num_experts_per_tok": 2, "num_experts": 5, "num_shared_experts": 1, "pad_token_id": 0},
    ],
    "cohere2_moe": [
        {"architectures": ["Cohere2MoeForCausalLM"], "model_type": "cohere2_moe", "hidden_size": 48, "intermediate_size": 80,
         "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "head_dim": 20,
         "num_experts_per_tok": 2, "num_experts": 5, "num_shared_experts": 1, "pad_token_id": 0},
    ],
    "dots1": [
        {"architectures": ["Dots1ForCausalLM"], "model_type": "dots1", "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3,
         "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "head_dim": 20, "moe_intermediate_size": 24,
         "num_experts_per_tok": 2, "num_local_experts": 5, "n_routed_experts": 5, "n_shared_experts": 2, "first_k_dense_replace": 1,
         "n_group": 1, "topk_group": 1, "pad_token_id": 0},
    ],
    "exaone_moe": [
        {"architectures": ["ExaoneMoeForCausalLM"], "model_type": "exaone_moe", "hidden_size": 48, "intermediate_size": 80,
         "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "head_dim": 20,
         "moe_intermediate_size": 24, "num_experts_per_tok": 2, "num_experts": 5, "num_shared_experts": 1, "first_k_dense_replace": 1,
         "n_group": 1, "topk_group": 1, "pad_token_id": 0},
    ],
    "glm4_moe": [
        {"architectures": ["Glm4MoeForCausalLM"], "model_type": "glm4_moe", "hidden_size": 48, "intermediate_size": 80,
         "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "head_dim": 20,
         "moe_intermediate_size": 24, "num_experts_per_tok": 2, "num_local_experts": 5, "n_routed_experts": 5, "n_shared_experts": 2,
         "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1, "pad_token_id": 0},
    ],
    "hy_v3": [
        {"architectures": ["HYV3ForCausalLM"], "model_type": "hy_v3", "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3,
         "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "head_dim": 20, "moe_intermediate_size": 24,
         "num_experts_per_tok": 2, "num_experts": 5, "num_local_experts": 5, "num_shared_experts": 1, "pad_token_id": 0},
    ],
    "laguna": [
        {"architectures": ["LagunaForCausalLM"], "model_type": "laguna", "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers":
         3, "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "head_dim": 20, "moe_intermediate_size": 24,
         "num_experts_per_tok": 2, "num_experts": 5, "shared_expert_intermediate_size": 40, "pad_token_id": 0},
    ],
    "solar_open": [
        {"architectures": ["SolarOpenForCausalLM"], "model_type": "solar_open", "hidden_size": 48, "num_hidden_layers": 3,
         "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "head_dim": 20, "moe_intermediate_size": 24,
         "num_experts_per_tok": 2, "num_local_experts": 5, "n_routed_experts": 5, "n_shared_experts": 2, "n_group": 1, "topk_group": 1,
         "pad_token_id": 0},
    ],
    "ernie4_5_moe": [
        {"architectures": ["Ernie4_5_MoeForCausalLM"], "model_type": "ernie4_5_moe", "hidden_size": 48, "intermediate_size": 80,
         "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "head_dim": 20, "pad_token_id": 0,
         "moe_intermediate_size": 24, "moe_k": 2, "moe_num_experts": 5, "moe_num_shared_experts": 2, "moe_layer_start_index": 1,
         "moe_layer_end_index": 2, "moe_layer_interval": 1},
    ],
    "mimo_v2_flash": [
        {"architectures": ["MiMoV2FlashForCausalLM"], "model_type": "mimo_v2_flash", "hidden_size": 48, "intermediate_size": 80,
         "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "head_dim": 20,
         "moe_intermediate_size": 24, "num_experts_per_tok": 2, "num_local_experts": 5, "n_routed_experts": 5, "n_group": 1, "topk_group":
         1, "pad_token_id": 0, "sliding_window": 6, "v_head_dim": 12},
    ],
    "hunyuan_moe": [
        {"architectures": ["HunYuanMoEV1ForCausalLM"], "model_type": "hunyuan_v1_moe", "hidden_size": 48, "intermediate_size": 80,
         "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "head_dim": 20, "pad_token_id": 0,
         "num_experts": 5, "moe_topk": 2},
    ],
    "llama4": [
        {"architectures": ["Llama4ForCausalLM"], "model_type": "llama4_text", "hidden_size": 48, "intermediate_size": 80,
         "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "head_dim": 20,
         "num_experts_per_tok": 2, "num_local_experts": 5, "pad_token_id": 0, "intermediate_size_mlp": 56, "interleave_moe_layer_step":
         2},
    ],
    "deepseek_v2": [
        {"architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2", "hidden_size": 48, "intermediate_size": 80,
         "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 4, "moe_intermediate_size": 24,
         "num_experts_per_tok": 2, "num_experts": 5, "n_routed_experts": 5, "n_shared_experts": 2, "first_k_dense_replace": 1, "n_group":
         1, "topk_group": 1, "pad_token_id": 0, "q_lora_rank": 28, "kv_lora_rank": 20, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8,
         "v_head_dim": 10},
        {"architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2", "hidden_size": 48, "intermediate_size": 80,
         "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 4, "moe_intermediate_size": 24,
         "num_experts_per_tok": 2, "num_experts": 5, "n_routed_experts": 5, "n_shared_experts": 2, "first_k_dense_replace": 1, "n_group":
         1, "topk_group": 1, "pad_token_id": 0, "q_lora_rank": None, "kv_lora_rank": 20, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8,
         "v_head_dim": 10},
    ],
    "deepseek_v3": [
        {"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "hidden_size": 48, "intermediate_size": 80,
         "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 4, "moe_intermediate_size": 24,
         "num_experts_per_tok": 2, "num_local_experts": 5, "n_routed_experts": 5, "n_shared_experts": 2, "first_k_dense_replace": 1,
         "n_group": 1, "topk_group": 1, "pad_token_id": 0, "q_lora_rank": 28, "kv_lora_rank": 20, "qk_nope_head_dim": 12,
         "qk_rope_head_dim": 8, "v_head_dim": 10},
    ],
    "mistral4": [
        {"architectures": ["Mistral4ForCausalLM"], "model_type": "mistral4", "hidden_size": 48, "intermediate_size": 80,
         "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 4, "moe_intermediate_size": 24,
         "num_experts_per_tok": 2, "num_local_experts": 5, "n_routed_experts": 5, "n_shared_experts": 2, "first_k_dense_replace": 1,
         "n_group": 1, "topk_group": 1, "pad_token_id": 0, "q_lora_rank": 28, "kv_lora_rank": 20, "qk_nope_head_dim": 12,
         "qk_rope_head_dim": 8, "v_head_dim": 10},
    ],
    "glm4_moe_lite": [
        {"architectures": ["Glm4MoeLiteForCausalLM"], "model_type": "glm4_moe_lite", "hidden_size": 48, "intermediate_size": 80,
         "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 4, "moe_intermediate_size": 24,
         "num_experts_per_tok": 2, "num_local_experts": 5, "n_routed_experts": 5, "n_shared_experts": 2, "n_group": 1, "topk_group": 1,
         "pad_token_id": 0, "q_lora_rank": 28, "kv_lora_rank": 20, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 10},
    ],
    "deepseek_v32": [
        {"architectures": ["DeepseekV32ForCausalLM"], "model_type": "deepseek_v32", "hidden_size": 48, "intermediate_size": 80,
         "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 4, "moe_intermediate_size": 24,
         "num_experts_per_tok": 2, "num_local_experts": 5, "n_routed_experts": 5, "n_shared_experts": 2, "first_k_dense_replace": 1,
         "n_group": 1, "topk_group": 1, "pad_token_id": 0, "q_lora_rank": 28, "kv_lora_rank": 20, "qk_nope_head_dim": 12,
         "qk_rope_head_dim": 8, "v_head_dim": 10, "index_topk": 7, "index_n_heads": 3, "index_head_dim": 16},
    ],
    "glm_moe_dsa": [
        {"architectures": ["GlmMoeDsaForCausalLM"], "model_type": "glm_moe_dsa", "hidden_size": 48, "intermediate_size": 80,
         "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 4, "moe_intermediate_size": 24,
         "num_experts_per_tok": 2, "num_local_experts": 5, "n_routed_experts": 5, "n_shared_experts": 2, "first_k_dense_replace": 1,
         "n_group": 1, "topk_group": 1, "pad_token_id": 0, "q_lora_rank": 28, "kv_lora_rank": 20, "qk_nope_head_dim": 12,
         "qk_rope_head_dim": 8, "v_head_dim": 10, "index_topk": 7, "index_n_heads": 3, "index_head_dim": 16},
    ],
    "axk1": [
        {"architectures": ["AXK1ForCausalLM"], "model_type": "axk1", "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3,
         "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 4, "moe_intermediate_size": 24, "num_experts_per_tok": 2,
         "num_local_experts": 5, "n_routed_experts": 5, "n_shared_experts": 2, "n_group": 1, "topk_group": 1, "pad_token_id": 0,
         "q_lora_rank": 28, "kv_lora_rank": 20, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 10},
    ],
    "flint": [
        {"architectures": ["FlintForCausalLM"], "model_type": "flint", "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3,
         "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "head_dim": 20, "pad_token_id": 0,
         "moe_intermediate_size": 24, "shared_expert_intermediate_size": 40, "num_experts_per_tok": 2, "num_experts": 5,
         "mlp_only_layers": [0], "sliding_window": 6},
    ],
    "kolibri1": [
        {"architectures": ["Kolibri1ForCausalLM"], "model_type": "kolibri1", "hidden_size": 48, "num_hidden_layers": 3,
         "num_attention_heads": 4, "vocab_size": 101, "num_key_value_heads": 2, "head_dim": 20, "moe_intermediate_size": 24,
         "num_experts_per_tok": 2, "num_experts": 5, "num_local_experts": 5, "shared_expert_intermediate_size": 40, "pad_token_id": 0,
         "sliding_window": 6},
    ],
}
